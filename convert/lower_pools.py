"""Lowers average pools, means and Softmax; MaxPool, which only moves codes, too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.layout import Layout, Shape
from midge.convert.lower_layers import pads_of
from midge.convert.lower_params import fail
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Destination, Target
from midge.convert.plan import Pool2d, Softmax
from midge.convert.plan_float import Pool2dF32
from midge.quant import arithmetic
from midge.quant.scheme import SOFTMAX_PARAMS

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


@dataclass(frozen=True, slots=True)
class Window:
    """What a pool slides: (y, x) pairs, pads (top, left, bottom, right)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]


def window_of(low: "Lowering", node: ir.Node, x: Stored) -> Window:
    """Return the window of a pool.

    Raises:
        UnsupportedError: it is dilated, not 1-D or 2-D, or of a rounding that has no step.
    """
    if len(x.shape) not in (3, 4):
        raise fail(node, f"its input has {len(x.shape)} axes", "use a 1-D or 2-D pool")
    size = lay.image_shape(x.shape)[2:]
    if node.op_type.startswith("Global"):
        return Window((size[0], size[1]), (1, 1), (0, 0, 0, 0))
    if any(d != 1 for d in g.attribute(node, "dilations", ())):
        raise fail(node, "it is dilated", "use a pool without dilations")
    kernel = _image_pair(g.attribute(node, "kernel_shape"))
    stride = _image_pair(g.attribute(node, "strides", (1,) * (len(x.shape) - 2)))
    top, left, bottom, right = pads_of(node)
    out = lay.image_shape(low.shape(node.outputs[0]))[2:]
    # ceil_mode lets the last window reach further than the pads say.
    reach = [(out[i] - 1) * stride[i] + kernel[i] - size[i] - (top, left)[i] for i in (0, 1)]
    extended = (top, left, max(bottom, reach[0]), max(right, reach[1]))
    if extended != (top, left, bottom, right) and g.attribute(node, "count_include_pad", 0):
        raise fail(
            node, "ceil_mode with count_include_pad", "set ceil_mode or count_include_pad to 0"
        )
    return Window(kernel, stride, extended)


def _image_pair(values: tuple[int, ...]) -> tuple[int, int]:
    return (int(values[0]), int(values[1])) if len(values) == 2 else (1, int(values[0]))


def max_pool(low: "Lowering", node: ir.Node, x: Stored, target: Target) -> Stored:
    """Lower MaxPool or GlobalMaxPool of codes."""
    if len(node.outputs) > 1:
        raise fail(node, "its indices are wanted", "use only the pooled values")
    w = window_of(low, node, x)
    params = Pool2d("max", w.kernel, w.stride, w.pads, x.stored_codes.zero_point)
    return pool_step(low, node, x, params, target)


def average_pool(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower AveragePool or GlobalAveragePool."""
    x = low.operand(node, 0)
    w = window_of(low, node, x)
    counted = bool(g.attribute(node, "count_include_pad", 0))
    return pool_step(low, node, x, _average(x, target, w, counted), target)


def _average(x: Stored, target: Target, w: Window, counted: bool) -> Pool2d:
    m = arithmetic.average_multiplier(x.codes.scale, target.params.scale, prod(w.kernel))
    return Pool2d(
        "average",
        w.kernel,
        w.stride,
        w.pads,
        x.stored_codes.zero_point,
        counted,
        x.codes.scale,
        target.params.scale,
        target.requantization(m),
    )


def pool_step(
    low: "Lowering", node: ir.Node, x: Stored, params: Pool2d | Pool2dF32, target: Destination
) -> Stored:
    """Add the step of an NCHW pool."""
    x = low.program.reorder(x, lay.channels_last(x.shape), "nhwc")
    shape = low.shape(node.outputs[0])
    y = low.program.new(target.name, shape, lay.channels_last(shape), target.params)
    source = low.program.view(x, lay.channels_last(x.shape).storage_shape)
    return low.program.op(g.label(node), params, [source], y)


def mean(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower ReduceMean over any axes: an average pool over [outer, reduced, 1, inner]."""
    x = low.operand(node, 0)
    r = reduction_of(low, x, reduced_axes(node, x))
    outer, count, inner = r.storage
    w = Window((count, 1), (1, 1), (0, 0, 0, 0))
    source = low.program.view(r.x, (outer, count, 1, inner))
    storage = (outer, 1, 1, inner)
    shape = low.shape(node.outputs[0])
    y = low.program.new(target.name, shape, r.layout, target.params, storage=storage)
    return low.program.op(g.label(node), _average(r.x, target, w, False), [source], y)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction over axes that lie side by side in memory.

    Args:
        x: the operand, reordered where that was needed.
        storage: (outer, number of elements reduced, inner).
        layout: of the result.
    """

    x: Stored
    storage: tuple[int, int, int]
    layout: Layout


def reduced_axes(node: ir.Node, x: Stored) -> list[int]:
    """Return the axes of a ReduceMean or its kin, all where it names none.

    Raises:
        UnsupportedError: they are computed.
    """
    given = g.constant(g.operand(node, 1))
    if given is None and g.operand(node, 1) is not None:
        raise fail(node, "its axes are computed", "make them constants")
    axes = g.attribute(node, "axes") if given is None else tuple(int(a) for a in given)
    if not axes and g.attribute(node, "noop_with_empty_axes", 0):
        return []
    rank = len(x.shape)
    return sorted({a % rank for a in axes} if axes else range(rank))


def reduction_of(low: "Lowering", x: Stored, reduced: Sequence[int]) -> Reduction:
    """Return what reducing these file axes does to x, in storage order."""
    rank = len(x.shape)
    kept = [a for a in range(rank) if a not in reduced]
    fine, groups = x.layout.axes(x.shape) or (None, [])
    inside = {k for a in reduced for k in groups[a]} if fine else set()
    runs = [] if fine is None else [i for i, k in enumerate(fine.order) if k in inside]
    if fine is None or (runs and runs != list(range(runs[0], runs[0] + len(runs)))):
        x = low.program.reorder(x, lay.permuted(x.shape, (*kept, *reduced)), "reduced_last")
        fine, groups = x.layout.axes(x.shape) or (x.layout, [])
        inside = {k for a in reduced for k in groups[a]}
        runs = [i for i, k in enumerate(fine.order) if k in inside]
    first = runs[0] if runs else len(fine.order)
    shape = fine.storage_shape
    storage = (
        prod(shape[:first]),
        prod(x.shape[a] for a in reduced),
        prod(shape[first + len(runs) :]),
    )
    return Reduction(x, storage, without(fine, inside))


def without(layout: Layout, gone: set[int]) -> Layout:
    """Return the layout with digits of size 1 in place of some."""
    return Layout(tuple(1 if k in gone else f for k, f in enumerate(layout.factors)), layout.order)


def softmax(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower Softmax; its output has scale 1/256 and the smallest code as zero-point."""
    x = low.operand(node, 0)
    if target.params != SOFTMAX_PARAMS.as_dtype(target.params.dtype):
        raise fail(
            node,
            f"its output has scale {target.params.scale} and zero-point "
            f"{target.params.zero_point}, not 1/256 and {target.params.qmin}",
            "quantize the float model with `midge quantize`",
        )
    axis = g.attribute(node, "axis", -1) % len(x.shape)
    last = axis_last(x, axis)
    x = low.program.reorder(x, last, "axis_last")
    depth = x.shape[axis]
    storage: Shape = (prod(x.shape) // depth, depth)
    params = Softmax(arithmetic.softmax_table(x.codes.scale, depth))
    y = low.program.new(target.name, x.shape, lay.spelt(x.shape, last), target.params)
    source = low.program.view(x, storage)
    return low.program.op(g.label(node), params, [source], y)


def axis_last(x: Stored, axis: int) -> Layout:
    """Return x's own layout where the axis already lies last in order, else one where it does."""
    cut = x.layout.axes(x.shape)
    if cut is not None:
        fine, groups = cut
        rest = [k for k in fine.order if k not in groups[axis]]
        return Layout(fine.factors, (*rest, *groups[axis]))
    rest = [a for a in range(len(x.shape)) if a != axis]
    return lay.permuted(x.shape, (*rest, axis))


POOLS: dict[str, Callable[["Lowering", ir.Node, Target], Stored]] = {
    "AveragePool": average_pool,
    "GlobalAveragePool": average_pool,
    "ReduceMean": mean,
    "Softmax": softmax,
}
