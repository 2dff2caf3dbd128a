"""Lowers linear and cubic Resize: along each axis in turn, weighted sums of a few elements.

Source of the weights: ONNX, operator Resize.
"""

from collections.abc import Callable, Sequence
from math import ceil, floor, prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes
from midge.convert.lower_float_moves import MOVES_F32
from midge.convert.lower_float_values import combine
from midge.convert.lower_program import Stored
from midge.convert.plan_general import ResampleF32
from midge.convert.resize_axes import COORDINATES, Axis, axes_of, mode_of

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


def _resize(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower a Resize of real values."""
    mode = g.attribute(node, "mode", "nearest")
    if mode == "nearest":
        return MOVES_F32["Resize"](low, node, index)
    assert node.inputs[0] is not None
    x, name = low.reals.of(node.inputs[0]), g.name_of(node.outputs[0])
    axes, mode = axes_of(node, x.shape, low.shape(node.outputs[0])), mode_of(node)
    if mode == "align_corners" and not all(axis.fits for axis in axes):
        low.notices.append(
            f"{g.label(node)} (Resize) aligns corners with scales that give no whole size: it is "
            "computed as ONNX defines it, which ONNX Runtime does not."
        )
    changed = [a for a, axis in enumerate(axes) if axis.changes]
    value = float(g.attribute(node, "extrapolation_value", 0.0))
    outside = _outside(axes) if value and mode == "tf_crop_and_resize" else None
    for a in changed:
        made = name if a == changed[-1] and outside is None else f"{name}_{a}"
        x = _along(low, node, made, x, a, taps(node, axes[a]))
    return x if outside is None else combine(low, name, "add", x, value * outside)


def _outside(axes: Sequence[Axis]) -> g.Array | None:
    """Return float32 1 where an element comes from outside of the input, or None if none does."""
    found = np.zeros((1,) * len(axes), bool)
    for a, axis in enumerate(axes):
        places = np.array([COORDINATES["tf_crop_and_resize"](i, axis) for i in range(axis.m)])
        beyond = (places < 0) | (places > axis.n - 1)
        if beyond.any():
            found = found | beyond.reshape([-1 if k == a else 1 for k in range(len(axes))])
    return found.astype(np.float32) if found.any() else None


def taps(node: ir.Node, axis: Axis) -> ResampleF32:
    """Return which elements an output element is made of, and their weights."""
    mode, cubic = mode_of(node), g.attribute(node, "mode") == "cubic"
    a = float(g.attribute(node, "cubic_coeff_a", -0.75))
    antialias = bool(g.attribute(node, "antialias", 0))
    # ONNX Runtime knows it of cubic and of antialiasing weights only.
    excludes = (cubic or antialias) and bool(g.attribute(node, "exclude_outside", 0))
    # An antialiasing filter is as much wider as the output is smaller.
    shrink = min(float(axis.scale), 1.0) if antialias else 1.0
    reach = ceil((2 if cubic else 1) / shrink)
    index, weight = [], []
    for i in range(axis.m):
        at = COORDINATES[mode](i, axis)
        places = np.arange(floor(at) - reach + 1, floor(at) + reach + 1)
        distance = shrink * np.abs(places - at)
        w = _cubic(distance, a) if cubic else np.maximum(1 - distance, 0)
        if mode == "tf_crop_and_resize" and not 0 <= at <= axis.n - 1:
            w = 0 * w
        else:
            if excludes:
                w = w * ((places >= 0) & (places < axis.n))
            w = w / w.sum()
        index.append(np.clip(places, 0, axis.n - 1))
        weight.append(w)
    return ResampleF32(np.array(index, np.int32), np.array(weight, np.float32))


def _cubic(distance: g.Array, a: float) -> g.Array:
    """Return the weights of elements at these distances.

    Source: Keys, "Cubic convolution interpolation for digital image processing", 1981, eq. 15.
    """
    d = distance
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    weights: g.Array = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return weights


def _along(
    low: "Lowering", node: ir.Node, name: str, x: Stored, axis: int, params: ResampleF32
) -> Stored:
    """Resize one axis."""
    (x,), order = by_axes(low, [x])
    sizes, j = [x.shape[a] for a in order], order.index(axis)
    outer, inner = prod(sizes[:j]), prod(sizes[j + 1 :])
    shape = (*x.shape[:axis], len(params.index), *x.shape[axis + 1 :])
    source = low.program.view(x, (outer, sizes[j], inner))
    storage = (outer, len(params.index), inner)
    y = low.program.new(name, shape, lay.permuted(shape, order), None, storage=storage)
    macs = prod(shape) * params.index.shape[1]
    return low.program.op(g.label(node), params, [source], y, macs)


RESIZE: dict[str, Callable[["Lowering", ir.Node, int], Stored]] = {"Resize": _resize}
