"""Lowers average pools and Softmax; MaxPool, which only moves codes, too."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.layout import Layout, Shape
from midge.convert.lower_layers import pads_of
from midge.convert.lower_params import ACCUMULATOR_LIMIT, fail
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Destination, Target
from midge.convert.plan import Pool2d, Softmax
from midge.convert.plan_float import Pool2dF32
from midge.quant import arithmetic
from midge.quant.scheme import SOFTMAX_PARAMS, QuantParams

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


@dataclass(frozen=True, slots=True)
class Window:
    """What a pool slides: (y, x) pairs, pads (top, left, bottom, right)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)


def window_of(low: "Lowering", node: ir.Node, x: Stored) -> Window:
    """Return the window of a pool.

    Raises:
        UnsupportedError: it is not 1-D or 2-D, or of a rounding that has no step.
    """
    if len(x.shape) not in (3, 4):
        raise fail(node, f"its input has {len(x.shape)} axes", "use a 1-D or 2-D pool")
    size = lay.image_shape(x.shape)[2:]
    if node.op_type.startswith("Global"):
        return Window((size[0], size[1]), (1, 1), (0, 0, 0, 0))
    kernel = _image_pair(g.attribute(node, "kernel_shape"))
    ones = (1,) * (len(x.shape) - 2)
    stride = _image_pair(g.attribute(node, "strides", ones))
    dilation = _image_pair(g.attribute(node, "dilations", ones))
    extent = [(kernel[i] - 1) * dilation[i] + 1 for i in (0, 1)]
    top, left, bottom, right = pads_of(node)
    out = lay.image_shape(low.shape(node.outputs[0]))[2:]
    # ceil_mode lets the last window reach further than the pads say.
    reach = [(out[i] - 1) * stride[i] + extent[i] - size[i] - (top, left)[i] for i in (0, 1)]
    extended = (top, left, max(bottom, reach[0]), max(right, reach[1]))
    if extended != (top, left, bottom, right) and g.attribute(node, "count_include_pad", 0):
        raise fail(
            node, "ceil_mode with count_include_pad", "set ceil_mode or count_include_pad to 0"
        )
    return Window(kernel, stride, extended, dilation)


def _image_pair(values: tuple[int, ...]) -> tuple[int, int]:
    return (int(values[0]), int(values[1])) if len(values) == 2 else (1, int(values[0]))


def max_pool(low: "Lowering", node: ir.Node, x: Stored, target: Target) -> Stored:
    """Lower MaxPool or GlobalMaxPool of codes."""
    if len(node.outputs) > 1:
        raise fail(node, "its indices are wanted", "use only the pooled values")
    w = window_of(low, node, x)
    zero_point = x.stored_codes.zero_point
    params = Pool2d("max", w.kernel, w.stride, w.pads, zero_point, dilation=w.dilation)
    return pool_step(low, node, x, params, target)


def average_pool(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower AveragePool or GlobalAveragePool."""
    x = low.operand(node, 0)
    w = window_of(low, node, x)
    counted = bool(g.attribute(node, "count_include_pad", 0))
    return pool_step(low, node, x, average(node, x, target, w, counted=counted), target)


def average(
    node: ir.Node,
    x: Stored,
    target: Target,
    w: Window,
    *,
    counted: bool = False,
    divisor: int | None = None,
) -> Pool2d:
    """Return what averages, or with a divisor of 1 sums, the codes of each window.

    Raises:
        UnsupportedError: a sum could leave int32.
    """
    count = prod(w.kernel)
    reach = max(x.codes.qmax - x.codes.zero_point, x.codes.zero_point - x.codes.qmin)
    if count * reach >= ACCUMULATOR_LIMIT:
        raise fail(
            node,
            f"sums of {count} codes can reach {count * reach}, beyond int32",
            "leave it in float with --nodes-to-exclude",
        )
    m = arithmetic.average_multiplier(x.codes.scale, target.params.scale, divisor or count)
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
        w.dilation,
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


def float_softmax(node: ir.Node, params: QuantParams) -> str:
    """Return why a Softmax is computed in float, or nothing: it has other steps of its output."""
    if not g.is_op(node, "Softmax") or params == SOFTMAX_PARAMS.as_dtype(params.dtype):
        return ""
    return (
        f"{g.label(node)} (Softmax) is computed in float: its output has scale {params.scale:.6g} "
        f"and zero-point {params.zero_point}, not 1/256 and {params.qmin}; ONNX Runtime's own "
        "integer form, which cuts 1 / scale to a whole number, may be a code lower."
    )


def softmax(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower Softmax; its output has scale 1/256 and the smallest code as zero-point."""
    x = low.operand(node, 0)
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
    "Softmax": softmax,
}
