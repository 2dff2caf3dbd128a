"""Depthwise convolution on contiguous NHWC arrays; weights [kh, kw, C]."""

from midge.core.backend import Array, xp_of
from midge.core.kernels.library import address, library_for
from midge.core.kernels.window import Pair, Window, c_window, crop, pad


def depthwise(x: Array, w: Array, bias: Array | None, out: Pair, window: Window) -> Array:
    """Return y [N, oh, ow, C], y = bias + sum over the taps (ky, kx in order) of x * w.

    Args:
        x: [N, H, W, C].
        w: [kh, kw, C].
        bias: [C] or None.
        out: height and width of the output.
        window: geometry.
    """
    xp = xp_of(x)
    y = xp.empty((x.shape[0], *out, x.shape[3]), x.dtype)
    library = library_for(x, w, bias)
    if library is not None:
        b = None if bias is None else xp.ascontiguousarray(bias)
        record = c_window(x.shape, x.shape[3], out, window)
        library.midge_depthwise_f32(
            address(x), address(w), None if b is None else address(b), address(y), record
        )
        return y
    padded = pad(x, window)
    y[...] = 0
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            rows, columns = window.tap(ky, kx, out)
            y += padded[:, rows, columns] * w[ky, kx]
    return y if bias is None else xp.add(y, bias, out=y)


def depthwise_grad_input(gy: Array, w: Array, shape: tuple[int, ...], window: Window) -> Array:
    """Return gx of `shape` [N, H, W, C] for gy [N, oh, ow, C] and w [kh, kw, C]."""
    xp = xp_of(gy)
    out = gy.shape[1:3]
    library = library_for(gy, w)
    if library is not None:
        gx = xp.empty(shape, gy.dtype)
        record = c_window(shape, shape[3], out, window)
        library.midge_depthwise_grad_input_f32(address(gy), address(w), address(gx), record)
        return gx
    padded = pad(xp.zeros(shape, gy.dtype), window)
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            rows, columns = window.tap(ky, kx, out)
            padded[:, rows, columns] += gy * w[ky, kx]
    return crop(padded, shape, window)


def depthwise_grad_weight(x: Array, gy: Array, window: Window) -> Array:
    """Return gw [kh, kw, C] for x [N, H, W, C] and gy [N, oh, ow, C]."""
    xp = xp_of(x)
    out = gy.shape[1:3]
    gw = xp.empty((*window.kernel, x.shape[3]), x.dtype)
    library = library_for(x, gy)
    if library is not None:
        record = c_window(x.shape, x.shape[3], out, window)
        library.midge_depthwise_grad_weight_f32(address(x), address(gy), address(gw), record)
        return gw
    padded = pad(x, window)
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            rows, columns = window.tap(ky, kx, out)
            gw[ky, kx] = (padded[:, rows, columns] * gy).sum((0, 1, 2))
    return gw
