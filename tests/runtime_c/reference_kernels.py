"""One sample through one operator, in the plainest NumPy."""

import itertools

import numpy as np

from midge.convert.plan import (
    Add,
    Concat,
    Conv2d,
    Dequantize,
    FlipSign,
    FullyConnected,
    MatMul,
    Mul,
    Pad,
    Pool2d,
    Quantize,
    Requantization,
    Table,
    Transpose,
)
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams


def int8(scale=1.0, zero_point=0):
    return QuantParams(np.float32(scale), zero_point, "int8")


class Reference:
    """One sample through one operator, in the plainest NumPy."""

    @staticmethod
    def conv2d(p, x):
        N, H, W = x.shape[:3]
        out, kh, kw, per_group = p.weight.shape
        t, left, b, r = p.pads
        x = np.pad(
            x.astype(np.int64) - p.x_zero_point, ((0, 0), (t, b), (left, r), (0, 0))
        )  # padding holds the zero point
        span_y, span_x = (kh - 1) * p.dilation[0] + 1, (kw - 1) * p.dilation[1] + 1
        OH = (H + t + b - span_y) // p.stride[0] + 1
        OW = (W + left + r - span_x) // p.stride[1] + 1
        acc = np.zeros((N, OH, OW, out), np.int64) + p.bias
        for o, ky, kx in itertools.product(range(out), range(kh), range(kw)):
            first = o // (out // p.groups) * per_group
            ys, xs = ky * p.dilation[0], kx * p.dilation[1]
            part = x[:, ys : ys + OH * p.stride[0] : p.stride[0]]
            part = part[:, :OH, xs : xs + OW * p.stride[1] : p.stride[1]][:, :, :OW]
            acc[..., o] += part[..., first : first + per_group] @ (
                p.weight[o, ky, kx].astype(int) - p.weight_zero_point
            )
        return Reference.requantize(acc, p.requantization)

    @staticmethod
    def requantize(acc, r):
        assert abs(acc).max() < 2**31
        q = arithmetic.requantize(acc.astype(np.int32), r.m, int8(1, r.zero_point), r.low)
        return np.minimum(q, np.int8(r.high))

    @staticmethod
    def fully_connected(p, x):
        W = p.weight.T.astype(np.int64) - p.weight_zero_point
        acc = (x.astype(np.int64) - p.x_zero_point) @ W + p.bias
        return Reference.requantize(acc, p.requantization)

    @staticmethod
    def add(p, a, b):
        offset = 128 if p.y.dtype == "uint8" else 0
        A, B = a.astype(np.int32) + offset, b.astype(np.int32) + offset
        y = (arithmetic.sub if p.subtract else arithmetic.add)(A, B, p.a, p.b, p.y)
        return (y.astype(np.int32) - offset).astype(np.int8)

    @staticmethod
    def mul(p, a, b=None):
        b = p.constant if b is None else b
        acc = (a.astype(int) - p.a_zero_point) * (b.astype(int) - p.b_zero_point)
        return Reference.requantize(acc, p.requantization)

    @staticmethod
    def matmul(p, a, b):
        a, b = a.transpose(p.a_order).astype(int), b.transpose(p.b_order).astype(int)
        y = Reference.requantize((a - p.a_zero_point) @ (b - p.b_zero_point), p.requantization)
        stored = np.empty([y.shape[p.y_order.index(axis)] for axis in range(3)], np.int8)
        stored.transpose(p.y_order)[:] = y
        return stored

    @staticmethod
    def pool2d(p, x):
        N, H, W, C = x.shape
        t, left, b, r = p.pads
        spans = [(k - 1) * d + 1 for k, d in zip(p.kernel, p.dilation, strict=True)]
        OH = (H + t + b - spans[0]) // p.stride[0] + 1
        OW = (W + left + r - spans[1]) // p.stride[1] + 1
        y = np.zeros((N, OH, OW, C), np.int8)
        for oy, ox in itertools.product(range(OH), range(OW)):
            y0, x0 = oy * p.stride[0] - t, ox * p.stride[1] - left
            ys = [y for y in range(y0, y0 + spans[0], p.dilation[0]) if 0 <= y < H]
            xs = [v for v in range(x0, x0 + spans[1], p.dilation[1]) if 0 <= v < W]
            window = x[:, ys][:, :, xs]
            if p.kind == "max":
                y[:, oy, ox] = window.max(axis=(1, 2))
                continue
            n = window.shape[1] * window.shape[2]
            acc = (window.astype(np.int64) - p.x_zero_point).sum(axis=(1, 2))
            divisor = p.kernel[0] * p.kernel[1] if p.count_include_pad else n
            m = arithmetic.average_multiplier(p.x_scale, p.y_scale, divisor)
            zero_point = p.requantization.zero_point
            y[:, oy, ox] = Reference.requantize(acc, Requantization(m, zero_point))
        return y

    @staticmethod
    def run(p, *x):
        """The output of one PlanOp's params."""
        if isinstance(p, Conv2d):
            return Reference.conv2d(p, x[0])
        if isinstance(p, FullyConnected):
            return Reference.fully_connected(p, x[0])
        if isinstance(p, Add):
            return Reference.add(p, *x)
        if isinstance(p, Mul):
            return Reference.mul(p, *x)
        if isinstance(p, MatMul):
            return Reference.matmul(p, *x)
        if isinstance(p, Pool2d):
            return Reference.pool2d(p, x[0])
        if isinstance(p, Table):
            return p.table[x[0].astype(int) + 128]
        if isinstance(p, Pad):
            widths = list(zip(p.before, p.after, strict=True))
            return np.pad(x[0], widths, constant_values=p.value)
        if isinstance(p, Concat):
            return np.concatenate(x, axis=p.axis)
        if isinstance(p, Transpose):
            return x[0].transpose(p.perm)
        if isinstance(p, Quantize):
            return arithmetic.quantize(x[0], p.y)
        if isinstance(p, Dequantize):
            return arithmetic.dequantize(x[0], p.x)
        if isinstance(p, FlipSign):
            other = "int8" if x[0].dtype == np.uint8 else "uint8"
            return (x[0].view(np.uint8) ^ 128).view(other)
        raise NotImplementedError(type(p))
