"""The float32 operators of a Plan in NumPy, and those that quantize at run time.

A kernel computes in the dtype of its inputs: float32 in the executor, float64 where float_bounds.py
needs a reference. FLOAT_KERNELS is keyed by the Plan's parameter class.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor_functions import BINARY, UNARY
from midge.convert.executor_general import GENERAL_KERNELS
from midge.convert.executor_ops import Operands, depthwise, images, padded, product, windows
from midge.convert.plan_float import (
    DYNAMIC_HEADER,
    BinaryF32,
    ConstantF32,
    Conv2dDynamic,
    Conv2dF32,
    DynamicQuantize,
    FullyConnectedDynamic,
    FullyConnectedF32,
    Limits,
    MatMulF32,
    PadF32,
    Pool2dF32,
    ReduceF32,
    SoftmaxF32,
    UnaryF32,
)
from midge.quant import arithmetic
from midge.quant.dynamic import dynamic_codes, dynamic_params, dynamic_rescale

Array = npt.NDArray[Any]
f32 = np.float32


def _limited(Y: Array, limits: Limits) -> Array:
    if limits.low > -np.inf:
        Y = np.where(limits.low > Y, Y.dtype.type(limits.low), Y)
    if limits.high < np.inf:
        Y = np.where(limits.high < Y, Y.dtype.type(limits.high), Y)
    return Y


def _sums(X: Array, p: Conv2dF32 | Conv2dDynamic, W: Array, size: tuple[int, ...]) -> Array:
    """Return sums over the window: X [N, H, W, C], W [O, kh, kw, C / groups] of X's dtype."""
    channels, kh, kw, depth = W.shape
    views = windows(padded(X, p.pads, 0), (kh, kw), p.stride, size, p.dilation)
    W = W.reshape(channels, kh * kw, depth)
    if p.groups == X.shape[-1]:
        return depthwise(views, W[..., 0])
    parts = [
        product([v[..., c * depth : (c + 1) * depth] for v in views], w)
        for c, w in enumerate(np.split(W, p.groups))
    ]
    return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def conv2d(p: Conv2dF32, o: Operands) -> Array:
    """Convolve."""
    X = images(o.x[0])
    acc = _sums(X, p, p.weight.astype(X.dtype), o.y.shape[1:3])
    return _finished(acc, p).reshape(-1, *o.y.shape)


def fully_connected(p: FullyConnectedF32, o: Operands) -> Array:
    """Multiply rows by the weights."""
    X = o.x[0].reshape(-1, p.weight.shape[1])
    return _finished(X @ p.weight.astype(X.dtype).T, p).reshape(-1, *o.y.shape)


def _finished(acc: Array, p: Conv2dF32 | FullyConnectedF32) -> Array:
    """Scale sums of weight codes, add the bias, limit."""
    if p.scale is not None:
        acc = acc * p.scale.astype(acc.dtype)
    return _limited(acc + p.bias.astype(acc.dtype), p.limits)


def matmul(p: MatMulF32, o: Operands) -> Array:
    """Multiply two activations."""
    product_: Array = o.x[0] @ o.x[1]
    return product_.reshape(-1, *o.y.shape)


def binary(p: BinaryF32, o: Operands) -> Array:
    """Combine two tensors, or one and a constant."""
    A = o.x[0]
    B = o.x[1] if p.constant is None else p.constant.astype(A.dtype)
    if p.swapped:
        A, B = B, A
    with np.errstate(all="ignore"):
        Y: Array = BINARY[p.kind](A, B)
    return Y.reshape(-1, *o.y.shape)


def unary(p: UnaryF32, o: Operands) -> Array:
    """Apply a function."""
    X = o.x[0]
    alpha, beta = X.dtype.type(f32(p.alpha)), X.dtype.type(f32(p.beta))
    with np.errstate(all="ignore"):
        Y: Array = np.asarray(UNARY[p.kind](X, alpha, beta), X.dtype)
    return Y.reshape(-1, *o.y.shape)


def pool2d(p: Pool2dF32, o: Operands) -> Array:
    """Max or average pool."""
    X, size = images(o.x[0]), o.y.shape[1:3]
    if p.kind == "max":
        views = windows(padded(X, p.pads, -np.inf), p.kernel, p.stride, size, p.dilation)
        best = views[0].copy()
        for view in views[1:]:
            np.copyto(best, view, where=view > best)
        return best.reshape(-1, *o.y.shape)
    views = windows(padded(X, p.pads, 0), p.kernel, p.stride, size, p.dilation)
    acc = np.asarray(sum(views))
    n: Any = X.dtype.type(p.kernel[0] * p.kernel[1])
    if any(p.pads) and not p.count_include_pad:
        inside = padded(np.ones((1, *X.shape[1:3], 1), X.dtype), p.pads, 0)
        n = np.maximum(sum(windows(inside, p.kernel, p.stride, size, p.dilation)), 1)
    mean: Array = acc / n
    return mean.reshape(-1, *o.y.shape)


def softmax(p: SoftmaxF32, o: Operands) -> Array:
    """Softmax over the last stored axis."""
    D = o.x[0] - o.x[0].max(axis=-1, keepdims=True)
    E = np.exp(D)
    S = E.sum(axis=-1, keepdims=True)
    Y: Array = D - np.log(S) if p.log else E / S
    return Y.reshape(-1, *o.y.shape)


def reduce(p: ReduceF32, o: Operands) -> Array:
    """Reduce the middle axis, [S, outer, n, inner]."""
    X = o.x[0]
    if p.kind in ("max", "min"):
        best = X[:, :, 0].copy()
        for i in range(1, X.shape[2]):
            view = X[:, :, i]
            np.copyto(best, view, where=view > best if p.kind == "max" else view < best)
        return best.reshape(-1, *o.y.shape)
    Y: Array = X.prod(axis=2) if p.kind == "prod" else X.sum(axis=2)
    if p.kind == "mean":
        Y = Y / X.dtype.type(X.shape[2])
    return Y.reshape(-1, *o.y.shape)


def pad(p: PadF32, o: Operands) -> Array:
    """Surround with one value."""
    width = [(0, 0), *zip(p.before, p.after, strict=True)]
    return np.pad(o.x[0], width, constant_values=f32(p.value))


def constant(p: ConstantF32, o: Operands) -> Array:
    """Return the constant once; the executor repeats it for every sample."""
    return p.value.reshape(1, *o.y.shape)


def dynamic_quantize(p: DynamicQuantize, o: Operands) -> Array:
    """Return header and codes, uint8 [S, 16 + n]."""
    X = o.x[0].reshape(len(o.x[0]), -1).astype(f32)
    scale, zero_point = dynamic_params(X)
    codes = dynamic_codes(X, scale, zero_point)
    Y = np.zeros((len(X), o.y.bytes), np.uint8)
    Y[:, 0:4] = scale.reshape(-1, 1).view(np.uint8)
    Y[:, 4:8] = zero_point.astype("<i4").reshape(-1, 1).view(np.uint8)
    Y[:, DYNAMIC_HEADER:] = codes.view(np.uint8)
    return Y


def _centred(Y: Array, dtype: Any) -> tuple[Array, Array]:
    """Return (scale [S], codes less their zero-point [S, n] of this float dtype)."""
    scale = np.ascontiguousarray(Y[:, 0:4]).view("<f4")[:, 0]
    zero_point = np.ascontiguousarray(Y[:, 4:8]).view("<i4")
    codes = np.ascontiguousarray(Y[:, DYNAMIC_HEADER:]).view(np.int8)
    return scale, codes.astype(dtype) - zero_point.astype(dtype)


def fully_connected_dynamic(p: FullyConnectedDynamic, o: Operands) -> Array:
    """Multiply rows of codes by weight codes, exactly; then three float32 roundings."""
    dtype = arithmetic.accumulation_dtype(p.weight, 0)
    scale, X = _centred(o.x[0], dtype)
    acc = X.reshape(len(X), -1, p.weight.shape[1]) @ p.weight.astype(dtype).T
    return _rescaled(acc, scale, p).reshape(-1, *o.y.shape)


def conv2d_dynamic(p: Conv2dDynamic, o: Operands) -> Array:
    """Convolve codes with weight codes, exactly; then three float32 roundings."""
    dtype = arithmetic.accumulation_dtype(p.weight, 0)
    scale, X = _centred(o.x[0], dtype)
    acc = _sums(X.reshape(-1, *p.x_shape[1:]), p, p.weight.astype(dtype), o.y.shape[1:3])
    acc = acc.reshape(len(scale), -1, acc.shape[-1])
    return _rescaled(acc, scale, p).reshape(-1, *o.y.shape)


def _rescaled(acc: Array, x_scale: Array, p: FullyConnectedDynamic | Conv2dDynamic) -> Array:
    """Return float32 [S, n, O] of exact sums [S, n, O]."""
    Y = dynamic_rescale(acc, x_scale[:, None, None], p.scale, p.bias)
    return _limited(Y, p.limits)


FLOAT_KERNELS: dict[type, Callable[[Any, Operands], Array]] = {
    BinaryF32: binary,
    ConstantF32: constant,
    Conv2dDynamic: conv2d_dynamic,
    Conv2dF32: conv2d,
    DynamicQuantize: dynamic_quantize,
    FullyConnectedDynamic: fully_connected_dynamic,
    FullyConnectedF32: fully_connected,
    MatMulF32: matmul,
    PadF32: pad,
    Pool2dF32: pool2d,
    ReduceF32: reduce,
    SoftmaxF32: softmax,
    UnaryF32: unary,
    **GENERAL_KERNELS,
}
