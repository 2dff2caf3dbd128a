"""Maximum and average pooling on contiguous NHWC arrays."""

from functools import lru_cache

import numpy as np

from midge.core.backend import Array, xp_of
from midge.core.kernels.library import address, library_for
from midge.core.kernels.window import Pair, Window, c_window, crop, pad


def max_pool(x: Array, out: Pair, window: Window) -> tuple[Array, Array]:
    """Return the largest value of each window and where it lies.

    The first of equal values wins; a NaN wins over everything.

    Returns:
        y [N, oh, ow, C] and the pixels [N, oh, ow, C], int32 h * W + w; -1 where a window lies in
        the padding as a whole.
    """
    xp = xp_of(x)
    n, h, w, c = x.shape
    y = xp.empty((n, *out, c), x.dtype)
    index = xp.empty(y.shape, np.int32)
    library = library_for(x)
    if library is not None:
        record = c_window(x.shape, c, out, window)
        library.midge_max_pool_f32(address(x), address(y), address(index), record)
        return y, index
    padded = pad(x, window, -np.inf)
    pixels = xp.arange(h * w, dtype=np.int32).reshape(1, h, w, 1)
    places = pad(pixels, window, -1)
    y[...] = -np.inf
    index[...] = -1
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            rows, columns = window.tap(ky, kx, out)
            tap, place = padded[:, rows, columns], places[:, rows, columns]
            win = ((tap > y) | (tap != tap) | (index < 0)) & (place >= 0)
            y = xp.where(win, tap, y)
            index = xp.where(win, place, index)
    return y, index


def max_pool_scatter(gy: Array, index: Array, shape: tuple[int, ...], window: Window) -> Array:
    """Return gx of `shape` [N, H, W, C] with gy added at the pixels of `index`."""
    xp = xp_of(gy)
    library = library_for(gy)
    if library is not None:
        index = xp.ascontiguousarray(index, np.int32)
        gx = xp.empty(shape, gy.dtype)
        record = c_window(shape, shape[3], gy.shape[1:3], window)
        library.midge_max_pool_scatter_f32(address(gy), address(index), address(gx), record)
        return gx
    n, h, w, c = shape
    # Windows in the padding add to one extra pixel that is cut off.
    gx = xp.zeros((n, h * w + 1, c), gy.dtype)
    where = xp.where(index < 0, h * w, index).reshape(n, -1, c)
    images = xp.arange(n).reshape(n, 1, 1)
    channels = xp.arange(c).reshape(1, 1, c)
    xp.add.at(gx, (images, where, channels), gy.reshape(n, -1, c))
    return xp.ascontiguousarray(gx[:, :-1]).reshape(shape)


def max_pool_gather(x: Array, index: Array) -> Array:
    """Return x [N, H, W, C] at the pixels of `index` [N, oh, ow, C], 0 at -1."""
    n, c = x.shape[0], x.shape[3]
    xp = xp_of(x)
    flat = index.reshape(n, -1, c)
    found = xp.take_along_axis(x.reshape(n, -1, c), xp.maximum(flat, 0), 1)
    return xp.where(flat < 0, x.dtype.type(0), found).reshape(index.shape)


@lru_cache(maxsize=256)
def _divisors(size: Pair, out: Pair, window: Window, include_pad: bool, dtype: str) -> Array:
    """Return the number of taps that each output is divided by, [oh, ow]."""
    top, left, bottom, right = window.padding
    counts = []
    for axis, (before, after) in enumerate(((top, bottom), (left, right))):
        start = np.arange(out[axis]) * window.stride[axis] - before
        low, high = (-before, size[axis] + after) if include_pad else (0, size[axis])
        taps = start[:, None] + np.arange(window.kernel[axis])
        counts.append(((taps >= low) & (taps < high)).sum(1))
    return np.maximum(np.outer(*counts), 1).astype(dtype)


def avg_pool(x: Array, out: Pair, window: Window, include_pad: bool) -> Array:
    """Return y [N, oh, ow, C], the mean of each window.

    Args:
        x: [N, H, W, C].
        out: height and width of the output.
        window: geometry; its dilation is 1.
        include_pad: padding counts as zeros; otherwise the mean is over the inside only.
    """
    xp = xp_of(x)
    divisors = _divisors(x.shape[1:3], out, window, include_pad, str(x.dtype))
    y = xp.zeros((x.shape[0], *out, x.shape[3]), x.dtype)
    library = library_for(x)
    if library is not None:
        record = c_window(x.shape, x.shape[3], out, window)
        library.midge_avg_pool_f32(address(x), address(divisors), address(y), record)
        return y
    padded = pad(x, window)
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            rows, columns = window.tap(ky, kx, out)
            y += padded[:, rows, columns]
    y /= xp.asarray(divisors)[:, :, None]
    return y


def avg_pool_grad(gy: Array, shape: tuple[int, ...], window: Window, include_pad: bool) -> Array:
    """Return gx of `shape` [N, H, W, C]: each window gives gy / divisor to its pixels."""
    xp = xp_of(gy)
    out = gy.shape[1:3]
    divisors = _divisors(shape[1:3], out, window, include_pad, str(gy.dtype))
    library = library_for(gy)
    if library is not None:
        gx = xp.empty(shape, gy.dtype)
        record = c_window(shape, shape[3], out, window)
        library.midge_avg_pool_grad_f32(address(gy), address(divisors), address(gx), record)
        return gx
    padded = pad(xp.zeros(shape, gy.dtype), window)
    share = gy / xp.asarray(divisors)[:, :, None]
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            rows, columns = window.tap(ky, kx, out)
            padded[:, rows, columns] += share
    return crop(padded, shape, window)
