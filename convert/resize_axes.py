"""Where the elements of a Resize come from, axis by axis.

Source: ONNX, operator Resize, with the coordinates that ONNX Runtime takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_params import fail

NEAR = 1e-3  # of an element: a scale within it gives the size that the output has


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a Resize; real numbers are float32 where the coordinates are to be.

    Args:
        n: elements of the input.
        m: elements of the output.
        scale: from input to output.
        roi: (start, end) of tf_crop_and_resize, in shares of the axis.
    """

    n: int
    m: int
    scale: Any
    roi: tuple[Any, Any] = (0.0, 1.0)

    @property
    def changes(self) -> bool:
        """Whether the output differs from the input."""
        return bool(self.n != self.m or self.scale != 1 or self.roi != (0.0, 1.0))

    @property
    def fits(self) -> bool:
        """Whether the scale gives the output's size, and not only that size rounded down."""
        return bool(abs(self.scale * self.n - self.m) <= NEAR)

    @property
    def length(self) -> Any:
        """Return the length of the output before it is rounded down."""
        return self.m if self.fits else self.scale * self.n


def _aligned(i: Any, axis: Axis) -> Any:
    return i * (axis.n - 1) / (axis.length - 1) if axis.length != 1 else 0.0


def _cropped(i: Any, axis: Axis) -> Any:
    start, end = axis.roi
    if axis.m == 1:
        return 0.5 * (start + end) * (axis.n - 1)
    return start * (axis.n - 1) + i * (end - start) * (axis.n - 1) / (axis.m - 1)


def _symmetric(i: Any, axis: Axis) -> Any:
    adjustment = axis.m / (axis.scale * axis.n)
    return axis.n / 2 * (1 - adjustment) + (i + 0.5) / axis.scale - 0.5


# Where in the input an output element lies.
COORDINATES: dict[str, Callable[[Any, Axis], Any]] = {
    "align_corners": _aligned,
    "asymmetric": lambda i, axis: i / axis.scale,
    "half_pixel": lambda i, axis: (i + 0.5) / axis.scale - 0.5,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda i, axis: (i + 0.5) / axis.scale - 0.5 if axis.m > 1 else 0.0,
    "tf_crop_and_resize": _cropped,
}


def mode_of(node: ir.Node) -> str:
    """Return the name of a Resize's coordinates."""
    return str(g.attribute(node, "coordinate_transformation_mode", "half_pixel"))


def axes_of(node: ir.Node, before: Sequence[int], after: Sequence[int]) -> list[Axis]:
    """Return every axis, resized or not.

    Args:
        node: a Resize.
        before: shape of its input.
        after: shape of its output.

    Raises:
        UnsupportedError: the region depends on the input, or engines disagree on the size.
    """
    rank = len(before)
    where = [a % rank for a in g.attribute(node, "axes", ()) or range(rank)]
    scales, roi = g.constant(g.operand(node, 2)), g.constant(g.operand(node, 1))
    if scales is not None and scales.size:
        given = [float(s) for s in scales]
        for a, scale in zip(where, given, strict=True):
            size = int(np.float32(scale) * np.float32(before[a]))
            if size != after[a]:
                what = f"it scales {before[a]} by {scale:.6g}, {after[a]} elements in ONNX"
                raise fail(node, f"{what} but {size} in ONNX Runtime", "give sizes")
    else:
        given = _scales_of_sizes(node, [before[a] for a in where], [after[a] for a in where])
    axes = [Axis(n, m, 1.0) for n, m in zip(before, after, strict=True)]
    for i, a in enumerate(where):
        span = (0.0, 1.0)
        if mode_of(node) == "tf_crop_and_resize":
            if roi is None:
                raise fail(node, "its roi is computed", "make it a constant")
            span = (float(roi[i]), float(roi[i + len(where)]))
        axes[a] = Axis(before[a], after[a], given[i], span)
    return axes


def _scales_of_sizes(node: ir.Node, before: list[int], after: list[int]) -> list[float]:
    """Return the scales that sizes ask for: one for all axes where the aspect is kept."""
    policy = g.attribute(node, "keep_aspect_ratio_policy", "stretch")
    wanted = g.constant(g.operand(node, 3))
    if policy == "stretch":
        return [m / n for n, m in zip(before, after, strict=True)]
    if wanted is None:
        raise fail(node, "its sizes are computed", "make them constants")
    scales = [np.float32(m) / np.float32(n) for n, m in zip(before, wanted, strict=True)]
    return [float(min(scales) if policy == "not_larger" else max(scales))] * len(before)


def in_float32(axis: Axis) -> Axis:
    """Return an axis whose coordinates are float32, as those of ONNX Runtime are."""
    start, end = (np.float32(v) for v in axis.roi)
    return Axis(axis.n, axis.m, np.float32(axis.scale), (start, end))
