"""Softmax before ArgMax, on request: who only asks where the largest value stands needs no Softmax.

1. A Softmax, LogSoftmax or Sigmoid that only ArgMax and the indices of a TopK of the largest read
   is removed: these functions rise strictly, so the order of their results is that of their input.
   A Softmax must run along the readers' axis.

It stays where anything else reads it, where it is a graph output, and behind an attention mask,
whose huge negative sums would have no range of 8 bits. The answer is the exact one: where float32
rounds different probabilities to the same number, the first of those may have been another.
"""

from collections.abc import Iterable

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassRecord, PassResult
from midge.convert.passes.clamp_masks import find_masks

ALONG_AN_AXIS = ("Softmax", "LogSoftmax")
RISING = (*ALONG_AN_AXIS, "Sigmoid")
AXES = {"ArgMax": 0, "TopK": -1, **dict.fromkeys(ALONG_AN_AXIS, -1)}  # by default
OPTION = "--drop-softmax"


class DropSoftmax(Pass):
    """Remove functions that do not change the order which is all that is asked for."""

    def call(self, model: ir.Model) -> PassResult:
        """Apply rule 1, from the outputs to the inputs: two in a row go both."""
        result = PassResult()
        masks = {node for node, _ in find_masks(model)}
        for node in reversed(list(model.graph)):
            y, x = node.outputs[0], node.inputs[0] if node.inputs else None
            orders = [use.node for use in y.uses() if _asks_for_the_largest(use.node)]
            if x is None or not orders or not g.is_op(node, *RISING):
                continue
            why = _obstacle(node, masks)
            if why:
                result.kept(node, why)
                continue
            readers = ", ".join(sorted({f"{g.label(n)} ({n.op_type})" for n in orders}))
            g.replace(y, x)
            g.remove(node)
            result.folded(node, f"{OPTION}: {readers} finds the same place in its input")
        return result


def _asks_for_the_largest(node: ir.Node) -> bool:
    """Tell whether a node looks only for the places of the largest values."""
    if g.is_op(node, "TopK"):
        values = node.outputs[0]
        read = bool(values.uses()) or values.is_graph_output()
        return not read and bool(g.attribute(node, "largest", 1))
    return g.is_op(node, "ArgMax")


def _obstacle(node: ir.Node, masks: set[ir.Node]) -> str:
    """Return why a function has to stay, or nothing."""
    y, x = node.outputs[0], node.inputs[0]
    if y.is_graph_output():
        return f"{y.name!r} is an output of the graph"
    for use in y.uses():
        if not _asks_for_the_largest(use.node):
            return f"{g.label(use.node)} ({g.operator(use.node)}) reads its values"
        if g.is_op(node, *ALONG_AN_AXIS) and _axis(use.node, y) != _axis(node, y):
            return f"{g.label(use.node)} ({use.node.op_type}) looks along another axis"
    if x is not None and x.producer() in masks:
        return "its input is masked, which leaves no range for 8 bits"
    return ""


def _axis(node: ir.Node, value: ir.Value) -> int:
    """Return the axis that a node works along, not negative where the rank is known."""
    axis = int(g.attribute(node, "axis", AXES[node.op_type]))
    rank = g.rank(value)
    return axis if rank is None else axis % rank


def drop_notices(records: Iterable[PassRecord]) -> list[str]:
    """Return lines about what stays though the option was given, or that it has no effect."""
    found = [r for r in records if r.op_type in RISING and _is_ours(r)]
    if not found:
        return [
            f"{OPTION} has no effect: no {', '.join(RISING[:-1])} or {RISING[-1]} stands right "
            "before an ArgMax or TopK."
        ]
    return [
        f"{OPTION}: {r.node} ({r.op_type}) stays: {r.reason}." for r in found if r.state == "kept"
    ]


def _is_ours(record: PassRecord) -> bool:
    return record.state == "kept" or record.reason.startswith(OPTION)
