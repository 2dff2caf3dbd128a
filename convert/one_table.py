"""Several elementwise nodes that compute one function of one tensor: in codes, one table of 256.

This is how exporters spell GELU (Div, Erf, Add, Mul, Mul), SiLU (Sigmoid, Mul), Mish, hard-swish,
softshrink and whatever a user wrote by hand. One table rounds once where its nodes would round
each, takes one step on the device, and leaves no operator of it in float.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.elementwise import function_of, operands
from midge.quant import arithmetic
from midge.quant.rules import Kind, rule_of
from midge.quant.scheme import QuantParams

STEEPEST = 0.25  # of the output's range: what one code of the input may move it by
LAYERS = (Kind.ACCUMULATE, Kind.ADD, Kind.MULTIPLY, Kind.AVERAGE, Kind.SUM)


@dataclass(frozen=True, slots=True)
class OneTable:
    """Nodes that are one function.

    Args:
        nodes: in graph order; the last one gives the result, nobody else reads the others.
    """

    nodes: tuple[ir.Node, ...]

    @property
    def source(self) -> ir.Value:
        """The tensor that it is a function of; rewriting the graph may make it another one."""
        return next(v for n in self.nodes for v in operands(n) if _flows(v, set(self.nodes)))

    def __call__(self, x: g.Array) -> g.Array:
        """Return the function of real values, in their dtype."""
        known: dict[ir.Value, g.Array | float] = {self.source: x}
        for node in self.nodes:
            function = function_of(node)
            assert function is not None
            arrays = [known[v] if v in known else x.dtype.type(g.scalar(v)) for v in operands(node)]
            known[node.outputs[0]] = np.asarray(function(*arrays))
        return np.asarray(known[self.nodes[-1].outputs[0]], x.dtype) + np.zeros_like(x)


def find_tables(graph: ir.Graph, may_join: Callable[[ir.Node], bool]) -> dict[ir.Node, OneTable]:
    """Return each function that is worth a table of its own, by its last node.

    A single node is found where its operator has no other form in 8 bits.

    Args:
        graph: canonical.
        may_join: tells whether a node may become part of a table.
    """
    order = {node: index for index, node in enumerate(graph)}
    found: dict[ir.Node, OneTable] = {}
    taken: set[ir.Node] = set()
    for node in reversed(list(order)):
        if node in taken or not g.is_float(node.outputs[0]) or not may_join(node):
            continue
        table = _grow(node, order, may_join)
        if table is None:
            continue
        if len(table.nodes) == 1 and rule_of(node.op_type).kind != Kind.FLOAT:
            continue
        found[node] = table
        taken |= set(table.nodes)
    return found


def tables_of_nodes(graph: ir.Graph, groups: Iterable[Iterable[str]]) -> dict[ir.Node, OneTable]:
    """Return the functions that training made tables of, by their last node.

    Args:
        graph: canonical.
        groups: names of the nodes of each; one that was merged into another is passed over.
    """
    by_name = {g.label(node): node for node in graph}
    found = [OneTable(tuple(by_name[n] for n in names if n in by_name)) for names in groups]
    return {table.nodes[-1]: table for table in found if table.nodes}


def _grow(
    end: ir.Node, order: dict[ir.Node, int], may_join: Callable[[ir.Node], bool]
) -> OneTable | None:
    """Return the largest function of one tensor that ends here."""
    inside, best = {end}, None
    if function_of(end) is None:
        return None
    while True:
        edge = {v: None for n in inside for v in operands(n) if _flows(v, inside)}
        if len(edge) == 1:
            (source,) = edge
            if g.is_float(source) and all(_is_number(v, source) for v in _constants(inside)):
                best = OneTable(tuple(sorted(inside, key=order.__getitem__)))
            if _saturates_a_layer(source):
                return best
        following = [p for v in edge if (p := v.producer()) is not None and p in order]
        # The latest first: what an earlier node feeds is inside by the time that it is asked.
        following.sort(key=order.__getitem__, reverse=True)
        joined = next((p for p in following if may_join(p) and _joins(p, inside)), None)
        if joined is None:
            return best
        inside.add(joined)


def _flows(value: ir.Value, inside: set[ir.Node]) -> bool:
    return not g.is_constant(value) and value.producer() not in inside


def _constants(inside: set[ir.Node]) -> list[ir.Value]:
    return [v for n in inside for v in operands(n) if g.is_constant(v)]


def _is_number(value: ir.Value, source: ir.Value) -> bool:
    """Tell whether a constant is one finite number, and adds no axis to the tensor."""
    number = g.scalar(value)
    if number is None or not np.isfinite(number) or not g.is_float(value):
        return False
    return (g.rank(value) or 0) <= (g.rank(source) or 0)


def _joins(node: ir.Node, inside: set[ir.Node]) -> bool:
    """Tell whether only nodes of the function read what a node computes."""
    if function_of(node) is None or node.outputs[0].is_graph_output():
        return False
    return all(use.node in inside for use in node.outputs[0].uses())


def _saturates_a_layer(value: ir.Value) -> bool:
    """Tell whether a value is a Relu or Clip that becomes the saturation of the layer before it."""
    node = value.producer()
    source = None if node is None else node.inputs[0]
    layer = None if source is None else source.producer()
    if node is None or layer is None or rule_of(node.op_type).kind != Kind.BOUND:
        return False
    return rule_of(layer.op_type).kind in LAYERS and not _is_unary(layer)


def _is_unary(node: ir.Node) -> bool:
    return function_of(node) is not None and sum(not g.is_constant(v) for v in operands(node)) < 2


def unfit_for_table(table: OneTable, x: QuantParams, bounds: tuple[float, float]) -> str:
    """Return why a function cannot be a table of codes, or nothing.

    Args:
        table: the function.
        x: parameters of the tensor that it is a function of.
        bounds: calibrated range of the result.
    """
    reals = arithmetic.reals(x)
    with np.errstate(all="ignore"):
        single, double = table(reals.astype(np.float32)), table(reals)
    if not (np.isfinite(single).all() and np.isfinite(double).all()):
        return "it gives no finite number at some code of its input"
    low, high = min(bounds[0], 0.0), max(bounds[1], 0.0)
    step = float(np.abs(np.diff(np.clip(double, low, high))).max())
    if step > STEEPEST * (high - low):
        return f"one code of its input moves it by {step / (high - low):.0%} of its range"
    return ""
