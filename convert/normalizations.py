"""Which nodes normalize: those that compute what a tensor is divided by, from the tensor itself.

RMSNorm, L2 normalization, a Softmax or a standard deviation written out: a reduction, and behind it
a division. The statistic of one row may be a thousand times that of another, so that one 8-bit
scale for all would leave nothing of most; such nodes stay in float, where they are few.

1. The divisor of a Div, and what a Reciprocal or a Pow with a negative exponent reads, is followed
   back through elementwise nodes and reductions, as long as nobody else reads them.
2. If there was a reduction on that way, these nodes normalize, and so does what multiplies or
   divides by their result.
3. So is a magnitude, the root of a sum of squares of several tensors or elements: a square of a
   tenth is a hundredth.
"""

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.elementwise import function_of, operands

REDUCTIONS = (
    "GlobalAveragePool",
    "GlobalMaxPool",
    "ReduceL1",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceSum",
    "ReduceSumSquare",
)


def normalizing(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that normalize.

    Args:
        graph: canonical.
    """
    found: set[ir.Node] = set()
    for node in graph:
        root = _root_of(node)
        if root is not None:
            way = _way_back(node, root)
            sources = {v for n in way for v in operands(n) if v.producer() not in way}
            several = sum(not g.is_constant(v) for v in sources) > 1
            if any(map(_squares, way)) and (several or any(g.is_op(n, *REDUCTIONS) for n in way)):
                found |= way | {node}
        divisor = _divisor(node)
        if divisor is None:
            continue
        way = _way_back(node, divisor)
        if any(g.is_op(n, *REDUCTIONS) for n in way):
            found |= way | _applied(node)
    return found


def _divisor(node: ir.Node) -> ir.Value | None:
    """Return the activation that a node divides by, or None."""
    inverts = g.is_op(node, "Pow") and (g.scalar(g.operand(node, 1)) or 0) < 0
    value = None
    if g.is_op(node, "Div"):
        value = g.operand(node, 1)
    elif inverts or g.is_op(node, "Reciprocal"):
        value = g.operand(node, 0)
    return None if value is None or g.is_constant(value) else value


def _root_of(node: ir.Node) -> ir.Value | None:
    """Return what a node takes the square root of, or None."""
    halves = g.is_op(node, "Pow") and g.scalar(g.operand(node, 1)) == 0.5
    return node.inputs[0] if halves or g.is_op(node, "Sqrt") else None


def _squares(node: ir.Node) -> bool:
    if g.is_op(node, "Pow"):
        return g.scalar(g.operand(node, 1)) == 2
    return g.is_op(node, "Mul") and node.inputs[0] is node.inputs[1]


def _way_back(node: ir.Node, divisor: ir.Value) -> set[ir.Node]:
    """Return the nodes that make the divisor, and whose results nobody else reads."""
    way, waiting = set[ir.Node](), [divisor]
    while waiting:
        maker = waiting.pop().producer()
        if maker is None or maker in way or maker.graph is not node.graph:
            continue
        if not g.is_op(maker, *REDUCTIONS) and function_of(maker) is None:
            continue
        output = maker.outputs[0]
        readers = {use.node for use in output.uses()}
        if output.is_graph_output() or not readers <= way | {node}:
            continue
        way.add(maker)
        # Another operand may have had a reader that is on the way only now.
        waiting += [v for n in way for v in operands(n)[:2] if v.producer() not in way]
    return way


def _applied(node: ir.Node) -> set[ir.Node]:
    """Return the division, or the Muls by its result."""
    if g.is_op(node, "Div"):
        return {node}
    applied = {node}
    waiting = [node.outputs[0]]
    while waiting:
        for use in waiting.pop().uses():
            if not g.is_op(use.node, "Mul") or use.node in applied:
                continue
            applied.add(use.node)
            if any(g.is_constant(v) for v in use.node.inputs):  # the scale comes first
                waiting.append(use.node.outputs[0])
    return applied
