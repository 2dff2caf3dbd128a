"""Lowers pools, reductions and Softmax of float values."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_float_values import apply, reduce
from midge.convert.lower_params import fail
from midge.convert.lower_pools import axis_last, pool_step, window_of
from midge.convert.lower_program import Stored
from midge.convert.lower_reductions import reduced_axes
from midge.convert.lower_target import Destination
from midge.convert.plan_float import Pool2dF32, SoftmaxF32

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


def _pool(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower MaxPool and AveragePool."""
    if len(node.outputs) > 1:
        raise fail(node, "its indices are wanted", "use only the pooled values")
    x = _source(low, node)
    w = window_of(low, node, x)
    kind = "max" if node.op_type == "MaxPool" else "average"
    counted = bool(g.attribute(node, "count_include_pad", 0))
    params = Pool2dF32(kind, w.kernel, w.stride, w.pads, counted, w.dilation)
    return pool_step(low, node, x, params, Destination(g.name_of(node.outputs[0]), None))


def _global_pool(low: "Lowering", node: ir.Node, index: int) -> Stored:
    x = _source(low, node)
    kind = "max" if node.op_type == "GlobalMaxPool" else "mean"
    return _reduced(low, node, kind, x, range(2, len(x.shape)))


def _reduce(low: "Lowering", node: ir.Node, index: int) -> Stored:
    x = _source(low, node)
    before, kind, after = REDUCTIONS[node.op_type]
    name, axes = g.name_of(node.outputs[0]), reduced_axes(node, x)
    if before is not None:
        x = apply(low, f"{name}_{before}", before, x)
    y = _reduced(low, node, kind, x, axes, f"{name}_{kind}" if after else name)
    return apply(low, name, after, y) if after else y


def _reduced(
    low: "Lowering",
    node: ir.Node,
    kind: str,
    x: Stored,
    axes: Sequence[int],
    name: str | None = None,
) -> Stored:
    shape = low.shape(node.outputs[0])
    return reduce(low, name or g.name_of(node.outputs[0]), kind, x, axes, shape)


def _softmax(low: "Lowering", node: ir.Node, index: int) -> Stored:
    x = _source(low, node)
    axis = g.attribute(node, "axis", -1) % len(x.shape)
    last = axis_last(x, axis)
    x = low.program.reorder(x, last, "axis_last")
    depth = x.shape[axis]
    layout = lay.spelt(x.shape, last)
    y = low.program.new(g.name_of(node.outputs[0]), x.shape, layout, None)
    source = low.program.view(x, (prod(x.shape) // depth, depth))
    return low.program.op(g.label(node), SoftmaxF32(node.op_type == "LogSoftmax"), [source], y)


def _source(low: "Lowering", node: ir.Node) -> Stored:
    assert node.inputs[0] is not None
    return low.reals.of(node.inputs[0])


# operator -> function before, reduction, function after
REDUCTIONS: dict[str, tuple[str | None, str, str | None]] = {
    "ReduceL1": ("abs", "sum", None),
    "ReduceL2": ("square", "sum", "sqrt"),
    "ReduceLogSum": (None, "sum", "log"),
    "ReduceMax": (None, "max", None),
    "ReduceMean": (None, "mean", None),
    "ReduceMin": (None, "min", None),
    "ReduceProd": (None, "prod", None),
    "ReduceSum": (None, "sum", None),
    "ReduceSumSquare": ("square", "sum", None),
}

POOLS_F32: dict[str, Callable[["Lowering", ir.Node, int], Stored]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "LogSoftmax": _softmax,
    "MaxPool": _pool,
    "Softmax": _softmax,
}
