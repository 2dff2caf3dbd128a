"""Rows of pools: the windows that midge.core has, and all others element by element."""

from collections.abc import Callable
from functools import reduce
from typing import Literal

import numpy as np

from midge.convert.to_module_call import Call, Ints, Table, array, beside, root
from midge.convert.to_module_layers import Sliding, padded, sliding
from midge.core import ops
from midge.core.backend import Array
from midge.core.tensor import Tensor


def _window(call: Call, x: Tensor) -> tuple[Sliding, Ints]:
    """Return the window and the sizes of the output."""
    sizes = x.shape[2:]
    window = sliding(call, sizes, call.get("kernel_shape"))
    return window, window.outputs(sizes, ceil=bool(call.get("ceil_mode", 0)))


def _fits(x: Tensor, window: Sliding, out: Ints) -> bool:
    """Tell whether a 2-D pool of midge.core has this window."""
    inside = all(
        max(b, a) < r for b, a, r in zip(window.before, window.after, window.reach, strict=True)
    )
    return x.ndim == 4 and inside and out == window.outputs(x.shape[2:])


def _by_taps(
    x: Tensor, window: Sliding, out: Ints, value: float, join: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Join the elements of each window, which may lie partly behind the padding."""
    wide = padded(x, window.before, _behind(x.shape[2:], window, out), value)
    total: Tensor | None = None
    for _, place in window.taps(out):
        part = wide[(..., *place)]
        total = part if total is None else join(total, part)
    assert total is not None
    return total


def _behind(sizes: Ints, window: Sliding, out: Ints) -> Ints:
    """Return the padding at the end that the last windows reach."""
    reached = (
        (o - 1) * s + r - n - b
        for o, s, r, n, b in zip(
            out, window.strides, window.reach, sizes, window.before, strict=True
        )
    )
    return tuple(max(a, r) for a, r in zip(window.after, reached, strict=True))


def _max_pool(call: Call, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest elements and, where they are wanted, the places of the first of them."""
    if x.dtype.kind != "f":  # codes: float32 holds them exactly
        y = ops.cast(_largest(call, ops.cast(x, "float32")), x.dtype)
    else:
        y = _largest(call, x)
    return y if call.outputs == 1 else (y, _places(call, x))


def _places(call: Call, x: Tensor) -> Tensor:
    """Return where in x each window has its largest element, counted over the whole tensor."""
    window, out = _window(call, x)
    sizes = x.shape[2:]
    order: Literal["F", "C"] = "F" if call.get("storage_order", 0) else "C"
    one: Array = np.arange(np.prod(sizes)).reshape(sizes, order=order)
    images = np.arange(np.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(sizes))
    around = [(0, 0), (0, 0), *zip(window.before, _behind(sizes, window, out), strict=True)]
    values: Array = np.pad(array(x.detach()).astype(np.float64), around, constant_values=-np.inf)
    places: Array = np.pad(images * one.size + one, around)
    best: Array = np.full((*x.shape[:2], *out), -np.inf)
    found = np.zeros(best.shape, np.int64)
    for _, place in window.taps(out):
        part = values[(..., *place)]
        found = np.where(part > best, places[(..., *place)], found)
        best = np.maximum(part, best)
    return beside(x, found, np.dtype(np.int64))


def _largest(call: Call, x: Tensor) -> Tensor:
    window, out = _window(call, x)
    if not _fits(x, window, out):
        return _by_taps(x, window, out, -np.inf, ops.maximum)
    sides = (*window.before, *window.after)
    return ops.max_pool2d(x, window.kernel, window.strides, sides, window.dilations)


def _counts(sizes: Ints, window: Sliding, out: Ints, *, include_pad: bool) -> Array:
    """Return by how much each sum is divided: elements in x, or in x and its padding."""
    inner = np.ones(sizes)
    around = list(zip(window.before, window.after, strict=True))
    ones = np.pad(inner, around, constant_values=int(include_pad))
    reached = _behind(sizes, window, out)
    ones = np.pad(ones, [(0, r - a) for r, a in zip(reached, window.after, strict=True)])
    return np.sum([ones[place] for _, place in window.taps(out)], axis=0)


def _average_pool(call: Call, x: Tensor) -> Tensor:
    window, out = _window(call, x)
    include = bool(call.get("count_include_pad", 0))
    if _fits(x, window, out) and max(window.dilations) == 1:
        sides = (*window.before, *window.after)
        return ops.avg_pool2d(x, window.kernel, window.strides, sides, count_include_pad=include)
    total = _by_taps(x, window, out, 0.0, ops.add)
    return total / beside(x, _counts(x.shape[2:], window, out, include_pad=include))


def _lp_pool(call: Call, x: Tensor) -> Tensor:
    window, out = _window(call, x)
    p = float(call.get("p", 2))
    return root(_by_taps(_power(x, p), window, out, 0.0, ops.add), p)


def _power(x: Tensor, p: float) -> Tensor:
    """Return abs(x) ** p."""
    return x * x if p == 2 else ops.pow(ops.abs(x), p)


def _global_average(call: Call, x: Tensor) -> Tensor:
    return ops.global_avg_pool2d(x) if x.ndim == 4 else ops.mean(x, _spatial(x), keepdim=True)


def _global_max(call: Call, x: Tensor) -> Tensor:
    return ops.amax(x, _spatial(x), keepdim=True)


def _global_lp(call: Call, x: Tensor) -> Tensor:
    p = float(call.get("p", 2))
    return root(ops.sum(_power(x, p), _spatial(x), keepdim=True), p)


def _spatial(x: Tensor) -> Ints:
    return tuple(range(2, x.ndim))


def _lrn(call: Call, x: Tensor) -> Tensor:
    """Return x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta.

    Source: Krizhevsky et al., "ImageNet classification with deep convolutional neural networks",
    2012, section 3.3.
    """
    size = int(call.get("size"))
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    pads = [0, 0] * (x.ndim - 2) + [before, after]
    squares = ops.pad(x * x, pads)
    total = reduce(ops.add, (ops.narrow(squares, 1, i, x.shape[1]) for i in range(size)))
    scale = total * (call.get("alpha", 1e-4) / size) + call.get("bias", 1.0)
    return x / ops.pow(scale, call.get("beta", 0.75))


def _depth_to_space(call: Call, x: Tensor) -> Tensor:
    b, (n, c, h, w) = int(call.get("blocksize")), x.shape
    rest = c // (b * b)
    if call.get("mode", "DCR") == "DCR":
        y = ops.permute(ops.reshape(x, (n, b, b, rest, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = ops.permute(ops.reshape(x, (n, rest, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return ops.reshape(y, (n, rest, h * b, w * b))


def _space_to_depth(call: Call, x: Tensor) -> Tensor:
    b, (n, c, h, w) = int(call.get("blocksize")), x.shape
    y = ops.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if call.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return ops.reshape(ops.permute(y, order), (n, c * b * b, h // b, w // b))


POOLS: Table = {
    "AveragePool": _average_pool,
    "DepthToSpace": _depth_to_space,
    "GlobalAveragePool": _global_average,
    "GlobalLpPool": _global_lp,
    "GlobalMaxPool": _global_max,
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "SpaceToDepth": _space_to_depth,
}
