"""Convolution and its two gradients on contiguous NHWC arrays; weights [O, kh, kw, C / groups].

A convolution is a matrix product with the patches of its input, made a chunk at a time; a 1x1
convolution of stride 1 is the product with the input itself. The order of every sum is fixed by
the shapes alone.
"""

from midge.core.backend import Array, xp_of
from midge.core.kernels.depthwise import depthwise, depthwise_grad_input, depthwise_grad_weight
from midge.core.kernels.im2col import Patches
from midge.core.kernels.window import Pair, Window


def conv2d(
    x: Array, weight: Array, bias: Array | None, out: Pair, window: Window, groups: int
) -> Array:
    """Return y [N, oh, ow, O].

    Args:
        x: [N, H, W, C].
        weight: [O, kh, kw, C / groups].
        bias: [O] or None.
        out: height and width of the output.
        window: geometry.
        groups: number of groups; both C and O are multiples of it.
    """
    if _is_depthwise(x.shape[3], weight, groups):
        return depthwise(x, _pack(weight), bias, out, window)
    xp = xp_of(x)
    n, outputs = x.shape[0], weight.shape[0]
    y = xp.empty((n, *out, outputs), x.dtype)
    flat, matrix = y.reshape(-1, outputs), weight.reshape(outputs, -1)
    for channels, produced in _groups(x.shape[3], outputs, groups):
        w = matrix[produced].T
        if window.is_pointwise:
            xp.matmul(x.reshape(-1, x.shape[3])[:, channels], w, out=flat[:, produced])
            continue
        patches = Patches(x, x.shape, (channels.start, channels.stop), out, window)
        for first, last, col in patches.chunks():
            patches.gather(x, first, last, col)
            xp.matmul(col, w, out=flat[first:last, produced])
    if bias is not None:
        y += bias
    return y


def conv2d_grad_input(
    gy: Array, weight: Array, shape: tuple[int, ...], window: Window, groups: int
) -> Array:
    """Return gx of `shape` [N, H, W, C]: the transposed convolution of gy [N, oh, ow, O]."""
    if _is_depthwise(shape[3], weight, groups):
        return depthwise_grad_input(gy, _pack(weight), shape, window)
    xp = xp_of(gy)
    outputs = weight.shape[0]
    flat, matrix = gy.reshape(-1, outputs), weight.reshape(outputs, -1)
    make = xp.empty if window.is_pointwise else xp.zeros
    gx = make(shape, gy.dtype)
    for channels, produced in _groups(shape[3], outputs, groups):
        if window.is_pointwise:
            gx_flat = gx.reshape(-1, shape[3])
            xp.matmul(flat[:, produced], matrix[produced], out=gx_flat[:, channels])
            continue
        patches = Patches(gy, shape, (channels.start, channels.stop), gy.shape[1:3], window)
        for first, last, col in patches.chunks():
            xp.matmul(flat[first:last, produced], matrix[produced], out=col)
            patches.scatter(col, gx, first, last)
    return gx


def conv2d_grad_weight(x: Array, gy: Array, window: Window, groups: int) -> Array:
    """Return gw [O, kh, kw, C / groups] for x [N, H, W, C] and gy [N, oh, ow, O]."""
    xp = xp_of(x)
    inputs, outputs = x.shape[3], gy.shape[3]
    gw = xp.zeros((outputs, *window.kernel, inputs // groups), x.dtype)
    if _is_depthwise(inputs, gw, groups):
        packed = depthwise_grad_weight(x, gy, window)
        gw[..., 0] = packed.transpose(2, 0, 1)
        return gw
    flat, matrix = gy.reshape(-1, outputs), gw.reshape(outputs, -1)
    for channels, produced in _groups(inputs, outputs, groups):
        if window.is_pointwise:
            xp.matmul(flat[:, produced].T, x.reshape(-1, inputs)[:, channels], out=matrix[produced])
            continue
        patches = Patches(x, x.shape, (channels.start, channels.stop), gy.shape[1:3], window)
        for first, last, col in patches.chunks():
            patches.gather(x, first, last, col)
            matrix[produced] += xp.matmul(flat[first:last, produced].T, col)
    return gw


def _is_depthwise(inputs: int, weight: Array, groups: int) -> bool:
    """Tell whether every output channel sees the one input channel of its own number."""
    return groups == inputs == weight.shape[0] and groups > 1


def _pack(weight: Array) -> Array:
    """Return depthwise weights [C, kh, kw, 1] as [kh, kw, C], the order the kernels read."""
    packed = weight[..., 0].transpose(1, 2, 0)
    return xp_of(weight).ascontiguousarray(packed)


def _groups(inputs: int, outputs: int, groups: int) -> list[tuple[slice, slice]]:
    """Return, per group, its input and its output channels."""
    c, o = inputs // groups, outputs // groups
    return [(slice(g * c, g * c + c), slice(g * o, g * o + o)) for g in range(groups)]
