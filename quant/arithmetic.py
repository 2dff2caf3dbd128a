"""One arithmetic: the integer operators that QAT and the integer executor both call.

docs/numerics.md is the specification. Every function takes codes and returns codes, bit for bit the
same in NumPy, CuPy and C. Codes may be held in integer or float arrays; accumulators are exact
integers (any dtype that holds them exactly). Nothing here knows about graphs, layouts or training.
Arrays are handled through their methods and ufuncs only, so that CuPy arrays stay on their device.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from midge.core.backend import xp_of
from midge.quant.scheme import CODE_RANGE, QuantParams

Array = npt.NDArray[Any]
f32 = np.float32

SOFTMAX_BITS = 22  # the largest exponent of the softmax table
PORTABLE_STEPS = 1000  # raises a scale by less than 0.013 %
TABLE_STEPS = 64  # raises a scale by less than 0.4 %
FLOAT32_ERROR = 2.0**-17  # relative, of a function of a few float32 steps
FLOAT32_EXACT = 2**24  # integers up to here are exact in float32


def quantize(x: Array, y: QuantParams) -> Array:
    """Return codes sat(rint(x / scale) + zero_point): float32 division, ties to even.

    Source: ONNX QuantizeLinear.
    """
    with np.errstate(over="ignore"):  # a huge x over a small scale is inf, and saturates
        q: Array = np.rint(x.astype(f32) / y.scale) + f32(y.zero_point)
    return saturate(q, y.qmin, y.qmax, y.dtype)


def saturate(v: Array, low: int, high: int, dtype: str) -> Array:
    """Clamp integer-valued floats to [low, high] and return them as codes of `dtype`."""
    codes: Array = np.clip(v, low, high).astype(dtype)
    return codes


def dequantize(q: Array, x: QuantParams) -> Array:
    """Return float32 (q - zero_point) * scale.

    Source: ONNX DequantizeLinear.
    """
    real: Array = (q.astype(np.int32) - x.zero_point).astype(f32) * x.scale
    return real


def multiplier(x_scale: Any, w_scale: Any, y_scale: Any) -> Array:
    """Return R1's m = f32( f32(s_x * s_w[c]) / s_y ), float32, in this order."""
    product = np.asarray(x_scale, f32) * np.asarray(w_scale, f32)
    return np.asarray(product / np.asarray(y_scale, f32), f32)


def requantize(acc: Array, m: Array, y: QuantParams, low: int | None = None) -> Array:
    """R1: q = sat( rint( f32(acc) * m ) + zy ).

    Args:
        acc: exact int32 accumulators, output channel last (or whatever `m` broadcasts to).
        m: float32 multipliers, from `multiplier`.
        y: parameters of the output.
        low: lower saturation limit where a fused Relu raises it above the type's.
    """
    with np.errstate(over="ignore"):  # what leaves float32 saturates as well
        v: Array = np.rint(acc.astype(f32) * m) + f32(y.zero_point)
    return saturate(v, y.qmin if low is None else low, y.qmax, y.dtype)


def fma32(a: Array, b: Any, c: Any) -> Array:
    """Return float32 a * b + c rounded once, for finite float32 operands.

    The product is exact in float64; the sum is made odd where it is inexact (TwoSum), so that the
    final rounding to float32 is the only one that counts.

    Args:
        a: float32 array.
        b: float32 scalar or array.
        c: float32 scalar or array.

    Source: Boldo, Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    p = a.astype(np.float64) * b.astype(np.float64)
    c64 = c.astype(np.float64)
    s = p + c64
    t = s - p
    error = (p - (s - t)) + (c64 - t)
    even = s.view(np.int64) & 1 == 0
    # Away from or towards zero by one ulp: integers order float64 values of one sign.
    step = np.where((error > 0) == (s > 0), 1, -1)
    odd = s.view(np.int64) + np.where((error != 0) & even, step, 0)
    rounded: Array = odd.view(np.float64).astype(f32)
    return rounded


def add_coefficients(
    a: QuantParams, b: QuantParams, y: QuantParams, *, subtract: bool = False
) -> tuple[f32, f32, f32]:
    """Return Add's float32 (ra, rb, c), for the codes as the exported file stores them.

    Where the scales lie too far apart, they are not finite. Sub is Add with -rb in place of rb.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        ra, rb = f32(a.scale / y.scale), f32(b.scale / y.scale)
        rb = -rb if subtract else rb
        c = f32(f32(y.zero_point) - f32(f32(ra * f32(a.zero_point)) + f32(rb * f32(b.zero_point))))
    return ra, rb, c


def is_portable_sum(a: QuantParams, b: QuantParams, y: QuantParams) -> bool:
    """Tell whether Add's constant survives a compiler that contracts ra * za + rb * zb to one fma.

    ONNX Runtime 1.32 is built so; where the constant is the same either way, so is every code.
    """
    ra, rb, c = add_coefficients(a, b, y)
    if not np.isfinite([ra, rb, c]).all():
        return True  # no scale nearby helps; lowering refuses it
    products = [(ra, f32(a.zero_point)), (rb, f32(b.zero_point))]
    for (r0, z0), (r1, z1) in (products, products[::-1]):
        fused = fma32(np.array([r0]), z0, f32(r1 * z1))[0]
        if f32(f32(y.zero_point) - fused) != c:
            return False
    return True


def portable_sum_params(
    a: QuantParams, b: QuantParams, y: QuantParams, *, subtract: bool = False
) -> QuantParams:
    """Return y with its scale raised by as few float32 steps as make ONNX Runtime's codes ours.

    For an Add, `is_portable_sum` decides.
    """
    if subtract:
        return _portable_difference_params(a, b, y)
    scale = y.scale
    for _ in range(PORTABLE_STEPS):
        candidate = QuantParams(scale, y.zero_point, y.dtype)
        if is_portable_sum(a, b, candidate):
            return candidate
        scale = np.nextafter(scale, f32(np.inf))
    return y


def _portable_difference_params(a: QuantParams, b: QuantParams, y: QuantParams) -> QuantParams:
    """Do so for a Sub, by comparing all 65,536 pairs of codes.

    ONNX Runtime has no integer Sub: it subtracts float32 values and quantizes the difference.
    """
    if not np.isfinite(add_coefficients(a, b, y, subtract=True)).all():
        return y  # no scale nearby helps; lowering refuses it
    codes = [np.arange(p.qmin, p.qmax + 1) for p in (a, b)]
    every = suspects = np.stack(np.meshgrid(*codes, indexing="ij")).reshape(2, -1)
    scale = y.scale
    for _ in range(PORTABLE_STEPS):
        candidate = QuantParams(scale, y.zero_point, y.dtype)
        wrong = _unlike_float(suspects, a, b, candidate)
        if not wrong.size and suspects is not every:  # the pairs that differed last are a few
            wrong = _unlike_float(every, a, b, candidate)
        if not wrong.size:
            return candidate
        suspects = wrong
        scale = np.nextafter(scale, f32(np.inf))
    return y


def _unlike_float(pairs: Array, a: QuantParams, b: QuantParams, y: QuantParams) -> Array:
    """Return the pairs, [2, n], whose difference float32 arithmetic rounds to another code."""
    A, B = pairs
    with np.errstate(over="ignore", invalid="ignore"):
        real = dequantize(A, a) - dequantize(B, b)
    differs: Array = pairs[:, sub(A, B, a, b, y) != quantize(real, y)]
    return differs


def add(
    A: Array,
    B: Array,
    a: QuantParams,
    b: QuantParams,
    y: QuantParams,
    *,
    subtract: bool = False,
) -> Array:
    """Quantized Add: q = sat(rint(fma(A, ra, fma(B, rb, c)))).

    Args:
        A: codes of the first operand, in the dtype of `a` (the file's: u8 and s8 round ties apart).
        B: codes of the second operand.
        a: parameters of A.
        b: parameters of B.
        y: parameters of the sum.
        subtract: compute the difference, with -rb in place of rb.
    """
    ra, rb, c = add_coefficients(a, b, y, subtract=subtract)
    inner = fma32(B.astype(f32), rb, c)
    v: Array = np.rint(fma32(A.astype(f32), ra, inner))
    return saturate(v, y.qmin, y.qmax, y.dtype)


def sub(A: Array, B: Array, a: QuantParams, b: QuantParams, y: QuantParams) -> Array:
    """Quantized Sub: Add with the second ratio negated; the arguments are those of `add`."""
    return add(A, B, a, b, y, subtract=True)


def mul(A: Array, B: Array, a: QuantParams, b: QuantParams, y: QuantParams) -> Array:
    """Quantized Mul: R1 on (A - za) * (B - zb) with m = f32(f32(s_a * s_b) / s_y)."""
    acc = (A.astype(np.int32) - a.zero_point) * (B.astype(np.int32) - b.zero_point)
    return requantize(acc, multiplier(a.scale, b.scale, y.scale), y)


def average_multiplier(x_scale: f32, y_scale: f32, n: Any) -> Array:
    """Return m = f32(s_x / f32(s_y * n)) for an average over n elements."""
    return np.asarray(f32(x_scale) / (f32(y_scale) * np.asarray(n, f32)), f32)


def softmax_bits(n: int) -> int:
    """Return k = min(22, 32 - ceil(log2(n + 1))): n table entries then sum below 2^32."""
    return min(SOFTMAX_BITS, 32 - int(np.ceil(np.log2(n + 1))))


def softmax_table(x_scale: f32, n: int) -> Array:
    """Return E[d] = rint(2^k * exp(-d * s_x)), d = 0..255, as uint32."""
    d = np.arange(256, dtype=np.float64)
    return np.rint(2.0 ** softmax_bits(n) * np.exp(-d * np.float64(x_scale))).astype(np.uint32)


def softmax(X: Array, x: QuantParams, axis: int = -1) -> Array:
    """Quantized Softmax; codes with scale 1/256 and zero-point 0, as uint8.

    d = max - X, S = sum E[d], q = min(255, (256 * E[d] + (S >> 1)) / S), all in uint32.
    """
    codes = X.astype(np.int32)
    E = take(softmax_table(x.scale, X.shape[axis]), codes.max(axis=axis, keepdims=True) - codes)
    E = E.astype(np.uint64)
    S = E.sum(axis=axis, keepdims=True)
    q: Array = np.minimum(255, (256 * E + (S >> np.uint64(1))) // S).astype(np.uint8)
    return q


def take(table: Array, index: Array) -> Array:
    """Return table[index], on the device of `index`."""
    values: Array = xp_of(index).asarray(table)[index]
    return values


def table(function: Any, x: QuantParams, y: QuantParams) -> Array:
    """Return the 256 output codes of a unary function, indexed by X - qmin.

    Args:
        function: float64 array to float64 array.
        x: parameters of the input.
        y: parameters of the output.
    """
    with np.errstate(all="ignore"):  # infinities saturate
        return quantize(np.asarray(function(reals(x)), np.float64).astype(f32), y)


def portable_table_params(function: Any, x: QuantParams, y: QuantParams) -> QuantParams:
    """Return y with its scale raised so little that no entry of a table lies near a tie.

    Whoever computes the function in float32 (ONNX Runtime between DequantizeLinear and
    QuantizeLinear) then gets the codes of the table. y itself is returned where nothing helps.

    Args:
        function: float64 array to float64 array.
        x: parameters of the input.
        y: parameters of the output.
    """
    with np.errstate(all="ignore"):
        results = np.asarray(function(reals(x)), np.float64)
    results = np.where(np.isfinite(results), results, 0)  # the others have no tie
    scale = y.scale
    for _ in range(TABLE_STEPS):
        v = results / np.float64(scale)
        inside = (v > y.qmin - y.zero_point) & (v < y.qmax - y.zero_point)
        near = np.abs(v - np.floor(v) - 0.5) < FLOAT32_ERROR * np.maximum(np.abs(v), 1)
        if not (near & inside).any():
            return QuantParams(scale, y.zero_point, y.dtype)
        scale = f32(scale * f32(1 + 2.0**-14))
    return y


def reals(x: QuantParams) -> Array:
    """Return the 256 real values that codes stand for, float64, from the smallest on."""
    codes = np.arange(CODE_RANGE[x.dtype][0], CODE_RANGE[x.dtype][1] + 1)
    return (codes - x.zero_point) * np.float64(x.scale)


def accumulation_dtype(weight: Array, axis: int) -> Any:
    """Return the float dtype in which sums of (x - zx) * w are exact for these int8 codes.

    float32 where max over channels of sum|w| * 255 stays below 2^24, else float64.
    """
    moved = np.moveaxis(np.abs(weight.astype(np.int64)), axis, 0).reshape(weight.shape[axis], -1)
    bound = int(moved.sum(axis=1).max(initial=0)) * 255
    return np.float32 if bound < FLOAT32_EXACT else np.float64
