"""Lowers pools, reductions and Softmax of float values."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes, take
from midge.convert.lower_float_values import apply, combine, constant_step, reduce
from midge.convert.lower_params import fail
from midge.convert.lower_pools import axis_last, pool_step, window_of
from midge.convert.lower_program import Stored
from midge.convert.lower_reductions import reduced_axes
from midge.convert.lower_target import Destination
from midge.convert.plan_float import PadF32, Pool2dF32, SoftmaxF32

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


def _lp_pool(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Return the root of the sum of powers of a window, or of an image."""
    name, p = g.name_of(node.outputs[0]), float(g.attribute(node, "p", 2))
    powers = _power(low, f"{name}_powers", _source(low, node), p)
    if node.op_type == "GlobalLpPool":
        total = _reduced(low, node, "sum", powers, range(2, len(powers.shape)), f"{name}_sum")
    else:
        w = window_of(low, node, powers)
        params = Pool2dF32("average", w.kernel, w.stride, w.pads, True, w.dilation)
        mean = pool_step(low, node, powers, params, Destination(f"{name}_mean", None))
        count = np.array([prod(w.kernel)], np.float32)
        total = combine(low, f"{name}_sum", "mul", mean, count)
    if p == 1:
        return total
    if p == 2:
        return apply(low, name, "sqrt", total)
    return combine(low, name, "pow", total, np.array([1 / p], np.float32))


def _power(low: "Lowering", name: str, x: Stored, p: float) -> Stored:
    """Return abs(x) to the power of p."""
    if p == 2:
        return apply(low, name, "square", x)
    magnitude = apply(low, f"{name}_abs", "abs", x)
    return magnitude if p == 1 else combine(low, name, "pow", magnitude, np.array([p], np.float32))


def _lrn(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Return x / (bias + alpha * mean of the squares of near channels) ^ beta."""
    x, name, size = _source(low, node), g.name_of(node.outputs[0]), g.attribute(node, "size")
    alpha, beta, bias = (
        np.array([g.attribute(node, key, default)], np.float32)
        for key, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    x = low.program.reorder(x, lay.identity(x.shape), "in_order")
    squares = apply(low, f"{name}_squares", "square", x)
    # Channels are the rows of an image, and the pixels its channels.
    storage = (*x.shape[:2], 1, prod(x.shape[2:]))
    before = (size - 1) // 2
    params = Pool2dF32("average", (size, 1), (1, 1), (before, 0, size - 1 - before, 0), True)
    mean = low.program.new(f"{name}_mean", x.shape, lay.identity(x.shape), None, storage=storage)
    source = low.program.view(squares, storage)
    mean = low.program.op(f"{name}_mean", params, [source], mean)
    raised = combine(low, f"{name}_scaled", "mul", mean, alpha)
    raised = combine(low, f"{name}_raised", "add", raised, bias)
    return combine(low, name, "div", x, combine(low, f"{name}_power", "pow", raised, beta))


def _cum_sum(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Add up along an axis: in round k the sums of 2^k elements, 2^k places apart."""
    x, name, axis = _source(low, node), g.name_of(node.outputs[0]), g.scalar(node.inputs[1])
    if axis is None:
        raise fail(node, "its axis is computed", "make it a constant")
    axis = int(axis) % len(x.shape)
    towards = -1 if g.attribute(node, "reverse", 0) else 1
    if g.attribute(node, "exclusive", 0) and x.shape[axis] == 1:
        return constant_step(low, name, np.zeros(x.shape, np.float32))
    if g.attribute(node, "exclusive", 0):
        x = _shifted(low, f"{name}_before", x, axis, towards)
    apart = 1
    while apart < x.shape[axis]:
        moved = _shifted(low, f"{name}_moved_{apart}", x, axis, towards * apart)
        x = combine(low, f"{name}_{apart}", "add", x, moved)
        apart *= 2
    return x


def _shifted(low: "Lowering", name: str, x: Stored, axis: int, places: int) -> Stored:
    """Move elements up or down an axis, by fewer than it has; zeros come in."""
    start, ones, shape = [0] * len(x.shape), [1] * len(x.shape), list(x.shape)
    count = abs(places)
    start[axis], shape[axis] = max(-places, 0), x.shape[axis] - count
    kept = take(low, (name, f"{name}_kept"), x, start, ones, tuple(shape))
    (kept,), order = by_axes(low, [kept])
    ends = [tuple(count * (a == axis) * way for a in order) for way in (places > 0, places < 0)]
    y = low.program.new(name, x.shape, lay.permuted(x.shape, order), None)
    inputs = [low.program.view(kept, [kept.shape[a] for a in order])]
    return low.program.op(name, PadF32(ends[0], ends[1], 0.0), inputs, y)


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
    "CumSum": _cum_sum,
    "GlobalAveragePool": _global_pool,
    "GlobalLpPool": _lp_pool,
    "GlobalMaxPool": _global_pool,
    "LRN": _lrn,
    "LogSoftmax": _softmax,
    "LpPool": _lp_pool,
    "MaxPool": _pool,
    "Softmax": _softmax,
}
