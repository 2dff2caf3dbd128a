"""Lowers linear and cubic Resize: along each axis in turn, weighted sums of a few elements.

Source of the weights: ONNX, operator Resize, with the coordinates that ONNX Runtime takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes
from midge.convert.lower_float_moves import MOVES_F32
from midge.convert.lower_params import fail
from midge.convert.lower_program import Stored
from midge.convert.plan_general import ResampleF32

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a Resize.

    Args:
        n: elements of the input.
        m: elements of the output.
        scale: from input to output.
        roi: (start, end) of tf_crop_and_resize, in shares of the axis.
    """

    n: int
    m: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def changes(self) -> bool:
        """Whether the output differs from the input."""
        return self.n != self.m or self.scale != 1 or self.roi != (0.0, 1.0)


def _cropped(i: int, axis: Axis) -> float:
    start, end = axis.roi
    if axis.m == 1:
        return 0.5 * (start + end) * (axis.n - 1)
    return start * (axis.n - 1) + i * (end - start) * (axis.n - 1) / (axis.m - 1)


def _symmetric(i: int, axis: Axis) -> float:
    adjustment = axis.m / (axis.scale * axis.n)
    return axis.n / 2 * (1 - adjustment) + (i + 0.5) / axis.scale - 0.5


# Where in the input an output element lies.
COORDINATES: dict[str, Callable[[int, Axis], float]] = {
    "align_corners": lambda i, axis: i * (axis.n - 1) / max(axis.m - 1, 1),
    "asymmetric": lambda i, axis: i / axis.scale,
    "half_pixel": lambda i, axis: (i + 0.5) / axis.scale - 0.5,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda i, axis: (i + 0.5) / axis.scale - 0.5 if axis.m > 1 else 0.0,
    "tf_crop_and_resize": _cropped,
}


def _resize(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower a Resize of real values."""
    mode = g.attribute(node, "mode", "nearest")
    if mode == "nearest":
        return MOVES_F32["Resize"](low, node, index)
    assert node.inputs[0] is not None
    x, name = low.reals.of(node.inputs[0]), g.name_of(node.outputs[0])
    axes = _axes(node, x.shape, low.shape(node.outputs[0]))
    changed = [a for a, axis in enumerate(axes) if axis.changes]
    for a in changed:
        made = name if a == changed[-1] else f"{name}_{a}"
        x = _along(low, node, made, x, a, taps(node, axes[a]))
    return x


def _axes(node: ir.Node, before: Sequence[int], after: Sequence[int]) -> list[Axis]:
    """Return every axis, scaled or not.

    Raises:
        UnsupportedError: the form is one that engines disagree on, or it depends on the input.
    """
    policy = g.attribute(node, "keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        raise fail(node, f"its keep_aspect_ratio_policy is {policy}", "give all sizes")
    rank = len(before)
    where = [a % rank for a in g.attribute(node, "axes", ()) or range(rank)]
    scales, roi = g.constant(g.operand(node, 2)), g.constant(g.operand(node, 1))
    axes = [Axis(n, m, m / n) for n, m in zip(before, after, strict=True)]
    mode = g.attribute(node, "coordinate_transformation_mode", "half_pixel")
    for i, a in enumerate(where):
        scale = float(scales[i]) if scales is not None and scales.size else after[a] / before[a]
        span = (0.0, 1.0)
        if mode == "tf_crop_and_resize":
            if roi is None:
                raise fail(node, "its roi is computed", "make it a constant")
            span = (float(roi[i]), float(roi[i + len(where)]))
        axes[a] = Axis(before[a], after[a], scale, span)
        if mode == "align_corners" and abs(scale * before[a] - after[a]) > 1e-3:
            raise fail(
                node, f"it aligns corners and scales {before[a]} by {scale:.6g}", "give sizes"
            )
        if g.attribute(node, "antialias", 0) and scale < 1:
            raise fail(node, "its antialias is set", "export it without antialias")
    return axes


def taps(node: ir.Node, axis: Axis) -> ResampleF32:
    """Return which elements an output element is made of, and their weights."""
    mode = g.attribute(node, "coordinate_transformation_mode", "half_pixel")
    cubic = g.attribute(node, "mode") == "cubic"
    a = float(g.attribute(node, "cubic_coeff_a", -0.75))
    outside = bool(g.attribute(node, "exclude_outside", 0))
    index, weight = [], []
    for i in range(axis.m):
        at = COORDINATES[mode](i, axis)
        base, ratio = floor(at), at - floor(at)
        places = np.arange(base - 1, base + 3) if cubic else np.arange(base, base + 2)
        w = _cubic(ratio, a) if cubic else np.array([1 - ratio, ratio])
        if mode == "tf_crop_and_resize" and not 0 <= at <= axis.n - 1:
            if g.attribute(node, "extrapolation_value", 0.0):
                raise fail(node, "it extrapolates with a value", "use extrapolation_value 0")
            w = 0 * w
        elif outside and cubic:
            w = w * ((places >= 0) & (places < axis.n))
            w = w / w.sum()
        index.append(np.clip(places, 0, axis.n - 1))
        weight.append(w)
    return ResampleF32(np.array(index, np.int32), np.array(weight, np.float32))


def _cubic(t: float, a: float) -> g.Array:
    """Return the weights of the elements at -1, 0, 1 and 2 for a place t of the way from 0 to 1.

    Source: Keys, "Cubic convolution interpolation for digital image processing", 1981, eq. 15.
    """
    d = np.abs(np.array([-1.0, 0.0, 1.0, 2.0]) - t)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    weights: g.Array = np.where(d <= 1, near, far)
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
