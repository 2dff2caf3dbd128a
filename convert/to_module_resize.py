"""Resize: along each axis in turn, picked elements or a product with a matrix of weights."""

from collections.abc import Callable
from math import ceil, floor

import numpy as np

from midge.convert.lower_resize import taps
from midge.convert.resize_axes import COORDINATES, Axis
from midge.convert.to_module_call import Call, array, axes_of, beside
from midge.core import ops
from midge.core.tensor import Tensor

# Which element is the nearest to a place between two.
ROUNDINGS: dict[str, Callable[[float], int]] = {
    "ceil": ceil,
    "floor": floor,
    "round_prefer_ceil": lambda at: floor(at + 0.5),
    "round_prefer_floor": lambda at: ceil(at - 0.5),
}
MISFIT = 1e-3  # elements: by how much scale * size may miss a whole number with align_corners


def resize(
    call: Call,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """Resample x.

    Raises:
        UnsupportedError: a form that engines disagree on.
    """
    for dim, axis in _axes(call, x, roi, scales, sizes).items():
        if not axis.changes:
            continue
        along = _nearest if call.get("mode", "nearest") == "nearest" else _weighted
        x = along(call, x, dim, axis)
    return x


def _axes(
    call: Call, x: Tensor, roi: Tensor | None, scales: Tensor | None, sizes: Tensor | None
) -> dict[int, Axis]:
    """Return the axes that are named, or all."""
    named = axes_of(call, None, x.ndim)
    dims = tuple(range(x.ndim)) if named is None else named
    before = [x.shape[d] for d in dims]
    if sizes is not None and sizes.numel():
        after = [int(n) for n in array(sizes)]
        factors = [m / n for m, n in zip(after, before, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors = [one] * len(dims)
            after = [floor(n * one + 0.5) for n in before]
    else:
        assert scales is not None
        factors = [float(s) for s in array(scales)]
        after = [floor(n * s) for n, s in zip(before, factors, strict=True)]
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    spans = [(0.0, 1.0)] * len(dims)
    if mode == "tf_crop_and_resize" and roi is not None:
        edges = array(roi).reshape(2, -1).T
        spans = [(float(start), float(end)) for start, end in edges]
    found = {}
    for d, n, m, scale, span in zip(dims, before, after, factors, spans, strict=True):
        found[d] = Axis(n, m, scale, span)
    return found


def _nearest(call: Call, x: Tensor, dim: int, axis: Axis) -> Tensor:
    nearest = ROUNDINGS[call.get("nearest_mode", "round_prefer_floor")]
    index = np.clip([nearest(place) for place in _places(call, axis)], 0, axis.n - 1)
    y = ops.index_select(x, dim, beside(x, index, np.dtype(np.int64)))
    return _with_outside(call, y, dim, axis)


def _weighted(call: Call, x: Tensor, dim: int, axis: Axis) -> Tensor:
    made = taps(call.node, axis)
    matrix = np.zeros((axis.m, axis.n), np.float32)
    np.add.at(matrix, (np.arange(axis.m)[:, None], made.index), made.weight)
    y = ops.linear(ops.transpose(x, dim, -1), beside(x, matrix))
    return _with_outside(call, ops.transpose(y, dim, -1), dim, axis)


def _places(call: Call, axis: Axis) -> list[float]:
    """Return where each output lies along the input."""
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    return [COORDINATES[mode](i, axis) for i in range(axis.m)]


def _with_outside(call: Call, y: Tensor, dim: int, axis: Axis) -> Tensor:
    """Return y with the value for places outside of the input, which a cropping Resize has."""
    if call.get("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return y
    outside = [not 0 <= place <= axis.n - 1 for place in _places(call, axis)]
    if not any(outside):
        return y
    shape = [-1 if d == dim else 1 for d in range(y.ndim)]
    mask = beside(y, np.reshape(outside, shape), np.dtype(np.bool_))
    return ops.where(mask, beside(y, call.get("extrapolation_value", 0.0)), y)
