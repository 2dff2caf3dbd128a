"""Lowers PRelu with one slope a channel: R1 with a multiplier for each sign.

    y = sat( P + N - z_y )
    P = the code of max(x, 0), by a table
    N = sat( rint( f32(min(x - z_x, 0)) * m[c] ) + z_y ),  m[c] = f32( f32(s_x * slope[c]) / s_y )

One of P and N always is z_y, so the sum is exact. The slopes are multipliers of a depthwise
convolution by 1 (by -1 where a slope is negative): they keep the precision of float32. A single
slope makes a table (lower_tables.py).
"""

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_params import Array, fail, real_constant
from midge.convert.lower_pools import axis_last
from midge.convert.lower_program import Stored
from midge.convert.lower_reductions import sides
from midge.convert.lower_target import Target
from midge.convert.plan import Add, Conv2d
from midge.quant import arithmetic

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


def channel_slopes(node: ir.Node) -> tuple[int, Array] | None:
    """Return the axis, counted from the end, along which a PRelu's slopes differ, and the slopes.

    Returns:
        None where they differ along several axes, or are no finite constants.
    """
    slope = real_constant(g.operand(node, 1))
    if slope is None or not np.all(np.isfinite(slope)):
        return None
    long = [axis - slope.ndim for axis, size in enumerate(slope.shape) if size > 1]
    if len(long) > 1:
        return None
    return (long or [-1])[0], slope.reshape(-1)


def prelu(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower a PRelu of codes."""
    x, found = low.operand(node, 0), channel_slopes(node)
    if found is None:
        raise fail(node, "its slopes are not one a channel", "give it one slope a channel")
    axis, slope = found
    axis += len(x.shape)
    x = low.program.reorder(x, axis_last(x, axis), "channels_last")
    width, height = sides(prod(x.shape) // slope.size)
    image = (1, height, width, slope.size)
    if len(x.shape) == 4 and axis == 1:
        image = (x.shape[0], *x.shape[2:], x.shape[1])  # as the layers around it have it
    y = target.params
    above = low.map(x, lambda v: np.maximum(v, 0), Target.of(f"{target.name}_above", y))
    codes = np.minimum(np.arange(x.codes.qmin, x.codes.qmax + 1), x.codes.zero_point)
    below = low.look_up(x, codes, Target.of(f"{target.name}_below", x.codes))
    scaled = _made(low, f"{target.name}_scaled", x, Target.of("", y), image)
    params = _multiply(slope, x, Target.of("", y))
    name = g.label(node)
    low.program.op(name, params, [low.program.view(below, image)], scaled, prod(x.shape))
    inputs = [low.program.view(above, image), scaled.tensor]
    result = _made(low, target.name, x, target, image)
    return low.program.op(f"{name}_sum", Add(y, y, y), inputs, result)


def _multiply(slope: Array, x: Stored, target: Target) -> Conv2d:
    """Return the depthwise convolution that multiplies each channel by its slope."""
    m = arithmetic.multiplier(x.codes.scale, np.abs(slope), target.params.scale)
    weight = np.where(slope < 0, -1, 1).astype(np.int8)
    return Conv2d(
        weight=weight.reshape(-1, 1, 1, 1),
        bias=np.zeros(slope.size, np.int32),
        stride=(1, 1),
        pads=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=slope.size,
        x_zero_point=x.stored_codes.zero_point,
        requantization=target.requantization(m),
    )


def _made(low: "Lowering", name: str, x: Stored, target: Target, image: tuple[int, ...]) -> Stored:
    """Add a tensor of x's shape and order that a step writes as an image."""
    layout = lay.spelt(x.shape, x.layout)
    y = low.program.new(name, x.shape, layout, target.params, storage=image)
    return y if image == layout.storage_shape else low.program.as_written(y)


PRELU: dict[str, Callable[["Lowering", ir.Node, Target], Stored]] = {"PRelu": prelu}
