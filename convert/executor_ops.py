"""The integer operators of a Plan in NumPy: layouts and loops here, formulas in quant.arithmetic.

Every kernel takes int8 codes with a leading samples axis, [S, *shape as stored], and returns the
same. KERNELS is keyed by the Plan's parameter class.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.plan import (
    Add,
    Concat,
    Constant,
    Conv2d,
    Dequantize,
    FlipSign,
    FullyConnected,
    MatMul,
    Mul,
    Pad,
    PlanTensor,
    Pool2d,
    Quantize,
    Requantization,
    Slice,
    Softmax,
    Table,
    Transpose,
)
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Operands:
    """What one step reads and how it writes.

    Args:
        x: inputs, each [S, *shape].
        tensors: their descriptions.
        y: description of the output.
        seen: what a run under test wrote, for a step that reads what it wrote before; else None.
    """

    x: Sequence[Array]
    tensors: Sequence[PlanTensor]
    y: PlanTensor
    seen: Array | None = None


def _requantize(acc: Array, r: Requantization, m: Array | None = None) -> Array:
    """R1 and the saturation limits: int32 sums to int8 codes."""
    y = QuantParams(np.float32(1), r.zero_point, "int8")
    codes = arithmetic.requantize(acc, r.m if m is None else m, y, r.low)
    return np.minimum(codes, np.int8(r.high)) if r.high < 127 else codes


def padded(X: Array, pads: tuple[int, int, int, int], value: Any) -> Array:
    """Return [N, H, W, C] with rows and columns added."""
    top, left, bottom, right = pads
    if not any(pads):
        return X
    return np.pad(X, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def windows(
    X: Array,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    size: tuple[int, ...],
    dilation: tuple[int, int] = (1, 1),
) -> list[Array]:
    """Return one view [N, *size, C] of the padded X for each element of the window."""
    return [
        X[
            :,
            i * dilation[0] : i * dilation[0] + (size[0] - 1) * stride[0] + 1 : stride[0],
            j * dilation[1] : j * dilation[1] + (size[1] - 1) * stride[1] + 1 : stride[1],
        ]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]


def images(X: Array) -> Array:
    """Merge samples and batch: [S, N, H, W, C] to [S * N, H, W, C]."""
    return X.reshape(-1, *X.shape[2:])


def conv2d(p: Conv2d, o: Operands) -> Array:
    """Convolve: exact integer sums held in floats, then R1."""
    weight = p.centred
    dtype = arithmetic.accumulation_dtype(weight, 0)
    channels, kh, kw, depth = weight.shape
    X = images(o.x[0]).astype(dtype) - dtype(p.x_zero_point)
    views = windows(padded(X, p.pads, 0), (kh, kw), p.stride, o.y.shape[1:3], p.dilation)
    W = weight.reshape(channels, kh * kw, depth).astype(dtype)
    if p.groups == X.shape[-1]:
        acc = depthwise(views, W[..., 0])
    else:
        acc = np.concatenate(
            [
                product([v[..., c * depth : (c + 1) * depth] for v in views], w)
                for c, w in enumerate(np.split(W, p.groups))
            ],
            axis=-1,
        )
    codes = _requantize(acc.astype(np.int32) + p.bias, p.requantization)
    return codes.reshape(len(o.x[0]), *o.y.shape)


def product(views: list[Array], W: Array) -> Array:
    """Return sums over taps and channels: views [N, H, W, C] each, W [O, taps, C]."""
    columns = np.concatenate(views, axis=-1) if len(views) > 1 else views[0]
    sums: Array = columns.reshape(-1, W[0].size) @ W.reshape(len(W), -1).T
    return sums.reshape(*columns.shape[:3], len(W))


def depthwise(views: list[Array], W: Array) -> Array:
    """Return sums over taps of one channel each: views [N, H, W, C], W [O, taps]."""
    channels = views[0].shape[-1]
    multiplier = len(W) // channels
    acc = np.zeros((*views[0].shape, multiplier), W.dtype)
    for view, w in zip(views, W.T, strict=True):
        acc += view[..., None] * w.reshape(channels, multiplier)
    return acc.reshape(*views[0].shape[:3], len(W))


def fully_connected(p: FullyConnected, o: Operands) -> Array:
    """Multiply rows by the weights, then R1."""
    weight = p.centred
    dtype = arithmetic.accumulation_dtype(weight, 0)
    X = o.x[0].reshape(-1, weight.shape[1]).astype(dtype) - dtype(p.x_zero_point)
    acc = (X @ weight.astype(dtype).T).astype(np.int32) + p.bias
    return _requantize(acc, p.requantization).reshape(len(o.x[0]), *o.y.shape)


@lru_cache(maxsize=64)
def _sums(p: Add) -> Array:
    """Return the int8 sum or difference of every pair of codes, [256 * 256]."""
    a = np.arange(p.a.qmin, p.a.qmax + 1)[:, None]
    b = np.arange(p.b.qmin, p.b.qmax + 1)[None, :]
    A, B = np.broadcast_arrays(a, b)
    codes = arithmetic.add(A, B, p.a, p.b, p.y, subtract=p.subtract)
    codes = codes.astype(np.int32) - p.y.qmin - 128
    return codes.astype(np.int8).reshape(-1)


def add(p: Add, o: Operands) -> Array:
    """Add or Sub: one of 65,536 results, all made by arithmetic.add."""
    a, b = (_index(x).reshape(len(x), *o.y.shape) for x in o.x)
    codes: Array = _sums(p)[a.astype(np.uint16) << 8 | b]
    return codes


def mul(p: Mul, o: Operands) -> Array:
    """Multiply, then R1."""
    A = o.x[0].astype(np.int32) - p.a_zero_point
    B = (o.x[1] if p.constant is None else p.constant).astype(np.int32) - p.b_zero_point
    return _requantize(A * B, p.requantization).reshape(-1, *o.y.shape)


def matmul(p: MatMul, o: Operands) -> Array:
    """Multiply two activations, exactly in float64, then R1."""
    A, B = (
        x.transpose(0, *(1 + axis for axis in order)).astype(np.float64) - zero_point
        for x, order, zero_point in zip(
            o.x, (p.a_order, p.b_order), (p.a_zero_point, p.b_zero_point), strict=True
        )
    )
    codes = _requantize((A @ B).astype(np.int32), p.requantization)
    stored: Array = np.argsort(p.y_order)
    return codes.transpose(0, *(1 + stored)).reshape(-1, *o.y.shape)


def constant(p: Constant, o: Operands) -> Array:
    """Return the constant once; the executor repeats it for every sample."""
    return p.value.reshape(1, *o.y.shape)


def _index(X: Array) -> Array:
    """Return int8 codes counted from -128, as uint8."""
    return X.view(np.uint8) ^ np.uint8(0x80)


def pool2d(p: Pool2d, o: Operands) -> Array:
    """Max or average pool."""
    X, size = images(o.x[0]), o.y.shape[1:3]
    if p.kind == "max":
        views = windows(padded(X, p.pads, -128), p.kernel, p.stride, size, p.dilation)
        best = views[0].copy()
        for view in views[1:]:
            np.maximum(best, view, out=best)
        return best.reshape(-1, *o.y.shape)
    assert p.requantization is not None
    centred = padded(X.astype(np.int32) - p.x_zero_point, p.pads, 0)
    acc = sum(windows(centred, p.kernel, p.stride, size, p.dilation))
    m = None
    if any(p.pads) and not p.count_include_pad:
        inside = padded(np.ones((1, *X.shape[1:3], 1), np.int32), p.pads, 0)
        n = sum(windows(inside, p.kernel, p.stride, size, p.dilation))
        m = arithmetic.average_multiplier(p.x_scale, p.y_scale, n)
    return _requantize(np.asarray(acc), p.requantization, m).reshape(-1, *o.y.shape)


def softmax(p: Softmax, o: Operands) -> Array:
    """Softmax over the last stored axis."""
    params = o.tensors[0].params
    assert params is not None
    codes = arithmetic.softmax(o.x[0], params)
    return _flip(codes, "int8").reshape(-1, *o.y.shape)


def table(p: Table, o: Operands) -> Array:
    """Look every code up."""
    codes: Array = p.table[_index(o.x[0])]
    return codes.reshape(-1, *o.y.shape)


def pad(p: Pad, o: Operands) -> Array:
    """Surround with one code."""
    width = [(0, 0), *zip(p.before, p.after, strict=True)]
    return np.pad(o.x[0], width, constant_values=p.value)


def concat(p: Concat, o: Operands) -> Array:
    """Join along a stored axis."""
    return np.concatenate(o.x, axis=p.axis + 1)


def transpose(p: Transpose, o: Operands) -> Array:
    """Reorder the stored axes."""
    return np.ascontiguousarray(o.x[0].transpose(0, *(a + 1 for a in p.perm)))


def slice_(p: Slice, o: Operands) -> Array:
    """Take every step-th element from a start."""
    X = o.x[0]
    for axis, (start, step, count) in enumerate(zip(p.start, p.step, o.y.shape, strict=True)):
        X = np.take(X, start + step * np.arange(count), axis=axis + 1)
    return X


def quantize(p: Quantize, o: Operands) -> Array:
    """Make codes of real values."""
    return arithmetic.quantize(o.x[0], p.y.as_dtype("int8")).reshape(-1, *o.y.shape)


def dequantize(p: Dequantize, o: Operands) -> Array:
    """Make real values of codes."""
    return arithmetic.dequantize(o.x[0], p.x.as_dtype("int8")).reshape(-1, *o.y.shape)


def flip_sign(p: FlipSign, o: Operands) -> Array:
    """Turn uint8 codes into int8 codes or back."""
    return _flip(o.x[0], o.y.dtype).reshape(-1, *o.y.shape)


def _flip(X: Array, dtype: str) -> Array:
    return _index(X).view(dtype)


KERNELS: dict[type, Callable[[Any, Operands], Array]] = {
    Add: add,
    Concat: concat,
    Constant: constant,
    Conv2d: conv2d,
    Dequantize: dequantize,
    FlipSign: flip_sign,
    FullyConnected: fully_connected,
    MatMul: matmul,
    Mul: mul,
    Pad: pad,
    Pool2d: pool2d,
    Quantize: quantize,
    Slice: slice_,
    Softmax: softmax,
    Table: table,
    Transpose: transpose,
}
