"""Finds an integer form of the quantized Add or Sub that equals its definition everywhere."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.plan import Add
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]
_NUDGES = (0, -1, 1, -2, 2, -3, 3)


@dataclass(frozen=True, slots=True)
class AddForm:
    """y = half_even((a * ma + b * mb + k) / 2^shift) on int8 codes, saturated.

    Attributes:
        bits: 32 or 64, of the sum.
        shift: 1 or more.
        ma: factor of a, fits int32.
        mb: factor of b, fits int32.
        k: constant, fits `bits`.
    """

    bits: int
    shift: int
    ma: int
    mb: int
    k: int


def code_offset(params: QuantParams) -> int:
    """Return what is added to a stored int8 code to give the file's code."""
    return 128 if params.dtype == "uint8" else 0


def reference(params: Add) -> Array:
    """Return the int8 codes of every pair: [256, 256], a and b from -128 upwards."""
    a = np.arange(params.a.qmin, params.a.qmax + 1)[:, None]
    b = np.arange(params.b.qmin, params.b.qmax + 1)[None, :]
    A, B = np.broadcast_arrays(a, b)
    y = arithmetic.add(A, B, params.a, params.b, params.y, subtract=params.subtract)
    return y.astype(np.int64) - code_offset(params.y)


def find_form(params: Add) -> AddForm | None:
    """Return an integer form that agrees on all 65,536 pairs, the narrowest found, or None.

    For given factors every pair leaves an interval for k; the form exists where their
    intersection is not empty. Factors a few units off the rounded ones are tried too.
    """
    y = reference(params)
    ra, rb, _ = arithmetic.add_coefficients(params.a, params.b, params.y, subtract=params.subtract)
    for bits in (32, 64):
        top = _largest_shift(float(ra), float(rb), bits)
        for shift in range(top, max(top - 3, 0), -1):
            for da in _NUDGES:
                for db in _NUDGES:
                    ma, mb = round(float(ra) * 2**shift) + da, round(float(rb) * 2**shift) + db
                    k = _constant(y, ma, mb, shift)
                    if k is not None and _fits(ma, mb, k, shift, bits):
                        return AddForm(bits, shift, ma, mb, k)
    return None


def _largest_shift(ra: float, rb: float, bits: int) -> int:
    """Return the largest shift for which factors and sums are likely to fit."""
    # 32 bits hold 128 * (ma + mb) and a constant of about that size; 64 bits have int32 factors.
    ra, rb = abs(ra), abs(rb)
    room = 2**30 / (256 * (ra + rb) + 512) if bits == 32 else (2**31 - 8) / max(ra, rb)
    return min(int(np.floor(np.log2(room))), 30 if bits == 32 else 40)


def _fits(ma: int, mb: int, k: int, shift: int, bits: int) -> bool:
    """Return whether the factors fit int32 and no sum overflows `bits` or, shifted, int32."""
    largest = 128 * (abs(ma) + abs(mb)) + abs(k) + 2**shift
    return max(abs(ma), abs(mb)) < 2**31 and largest < 2 ** (bits - 1) and largest >> shift < 2**31


def _constant(y: Array, ma: int, mb: int, shift: int) -> int | None:
    """Return the middle of the interval of constants that give every pair its code, or None.

    half_even(t / 2^shift) = q from q * 2^shift - half to q * 2^shift + half, both included where q
    is even and excluded where it is odd; a saturated code has one bound only.
    """
    codes = np.arange(-128, 128, dtype=np.int64)
    products = codes[:, None] * ma + codes[None, :] * mb
    half = (1 << (shift - 1)) - (y & 1)
    low = (y << shift) - half - products
    high = (y << shift) + half - products
    least = int(low[y > -128].max(initial=-(2**62)))
    most = int(high[y < 127].min(initial=2**62))
    if least > most:
        return None
    return max(least, min(most, (max(least, -(2**40)) + min(most, 2**40)) // 2))
