"""Identities: nodes that hand on what they get.

1. Identity, and Dropout in inference.
2. Cast to the type the input has.
3. Pad with no padding; Transpose with perm 0, 1, 2, ...; pooling with a window of 1.
4. Reshape, Flatten, Squeeze, Unsqueeze, Expand, Tile, Slice to the shape the input has.
5. Concat, Sum, Max, Min, Mean of one input; Clip without limits.
6. Inputs of a Concat that have no elements are left out, where others have some.

A node between a graph input (or constant) and a graph output stays: both names are the user's.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult


class RemoveIdentities(Pass):
    """Remove nodes whose output equals their input."""

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 to 6."""
        result = PassResult()
        for node in model.graph:
            if g.is_op(node, "Concat") and _drop_empty(node):
                result.modified = True
            test = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
            source = g.operand(node, 0)
            if test is None or source is None or not test(node):
                continue
            if not g.may_replace(node.outputs[0], source):
                continue
            g.replace(node.outputs[0], source)
            g.remove(node)
            result.folded(node, "it changes nothing")
        return result


def _drop_empty(node: ir.Node) -> bool:
    """Leave inputs without elements out of a Concat, and tell whether there were any."""
    filled = [v for v in node.inputs if 0 not in (g.dims(v) or ())]
    if len(filled) in (0, len(node.inputs)):
        return False
    for index, value in enumerate(filled):
        node.replace_input_with(index, value)
    node.resize_inputs(len(filled))
    return True


def _always(node: ir.Node) -> bool:
    return True


def _dropout(node: ir.Node) -> bool:
    training = g.operand(node, 2)
    mask_used = len(node.outputs) > 1 and bool(node.outputs[1].uses())
    return not mask_used and (training is None or g.scalar(training) == 0)


def _cast(node: ir.Node) -> bool:
    source = node.inputs[0]
    return source is not None and source.dtype == ir.DataType(g.attribute(node, "to"))


def _pad(node: ir.Node) -> bool:
    pads = g.constant(g.operand(node, 1))
    return pads is not None and not pads.any()


def _transpose(node: ir.Node) -> bool:
    perm = g.attribute(node, "perm")
    return perm is not None and list(perm) == list(range(len(perm)))


def _pool(node: ir.Node) -> bool:
    ones = (*g.attribute(node, "kernel_shape", (2,)), *g.attribute(node, "strides", (1,)))
    return set(ones) == {1} and not any(g.attribute(node, "pads", (0,))) and len(node.outputs) == 1


def _same_shape(node: ir.Node) -> bool:
    """Tell whether the shape stays: known, or unknown in the leading dimension only."""
    before, after = g.dims(node.inputs[0]), g.dims(node.outputs[0])
    if before is None or before != after or None in before[1:]:
        return False
    if before[:1] != (None,):
        return True
    # One unknown dimension beside equal known ones is the same number, as the element count is.
    return node.op_type in ("Reshape", "Flatten") and 0 not in before


def _whole_slice(node: ir.Node) -> bool:
    """Tell whether a Slice takes everything, in order."""
    steps = g.constant(g.operand(node, 4))
    forward = g.operand(node, 4) is None or (steps is not None and bool(np.all(steps == 1)))
    before, after = g.dims(node.inputs[0]), g.dims(node.outputs[0])
    return forward and before is not None and None not in before and before == after


def _one_input(node: ir.Node) -> bool:
    return len(node.inputs) == 1


def _no_limits(node: ir.Node) -> bool:
    low, high = g.scalar(g.operand(node, 1)), g.scalar(g.operand(node, 2))
    given = [v for v in node.inputs[1:] if v is not None]
    open_low = g.operand(node, 1) is None or low == -np.inf
    open_high = g.operand(node, 2) is None or high == np.inf
    return not given or (open_low and open_high)


RULES: dict[str, Callable[[ir.Node], bool]] = {
    "AveragePool": _pool,
    "Cast": _cast,
    "Clip": _no_limits,
    "Concat": _one_input,
    "Dropout": _dropout,
    "Expand": _same_shape,
    "Flatten": _same_shape,
    "Identity": _always,
    "Max": _one_input,
    "MaxPool": _pool,
    "Mean": _one_input,
    "Min": _one_input,
    "Pad": _pad,
    "Reshape": _same_shape,
    "Slice": _whole_slice,
    "Squeeze": _same_shape,
    "Sum": _one_input,
    "Tile": _same_shape,
    "Transpose": _transpose,
    "Unsqueeze": _same_shape,
}
