"""Chains of moves: two Transposes, or two Reshapes, in a row become one.

1. Transpose(Transpose(x, p), q) = Transpose(x, p[q]).
2. Reshape(Reshape(x, s), t) = Reshape(x, t), where t is constant and copies no dimension (no 0);
   Flatten, Squeeze and Unsqueeze count as Reshapes when they come first.

The first node stays if anything else uses it.
"""

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class MergeMoves(Pass):
    """Merge neighbouring Transposes and Reshapes."""

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 and 2."""
        result = PassResult()
        for node in model.graph:
            while _merge(node, result):
                result.modified = True
        return result


def _merge(node: ir.Node, result: PassResult) -> bool:
    """Merge a node with the one before it; tell whether there was one."""
    source = g.operand(node, 0)
    before = source.producer() if source is not None else None
    if source is None or before is None:
        return False
    if g.is_op(node, "Transpose") and g.is_op(before, "Transpose"):
        _merge_transposes(before, node)
    elif not (g.is_op(node, "Reshape") and g.is_op(before, *RESHAPES) and _free(node)):
        return False
    node.replace_input_with(0, before.inputs[0])
    if not source.uses() and not source.is_graph_output():
        g.remove(before)
        result.folded(before, f"into {g.label(node)}")
    return True


def _merge_transposes(first: ir.Node, second: ir.Node) -> None:
    p, q = _perm(first), _perm(second)
    second.attributes["perm"] = ir.AttrInt64s("perm", [p[axis] for axis in q])


def _perm(node: ir.Node) -> list[int]:
    size = g.rank(node.inputs[0]) or g.rank(node.outputs[0]) or 0
    return list(g.attribute(node, "perm", tuple(range(size))[::-1]))


def _free(node: ir.Node) -> bool:
    """Tell whether a Reshape's target does not look at its input's dimensions."""
    target = g.constant(g.operand(node, 1))
    return target is not None and 0 not in target
