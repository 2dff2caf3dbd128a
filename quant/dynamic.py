"""Quantization at run time: the arithmetic of dynamic INT8, one definition for executor and C.

The scale and zero-point of an activation follow from its own values, once per tensor and run; the
sums are exact integers and every float step is one float32 operation (docs/numerics.md).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
f32 = np.float32

CODES = 255  # steps between the lowest and the highest code


def dynamic_params(X: Array) -> tuple[Array, Array]:
    """Return the scale and zero-point of each sample's values.

    s = f32(f32(max - min) / 255), z = sat(rint(f32(0 - f32(min / s)))) among uint8 codes, where min
    and max include 0; a sample of zeros has s = 1. NaN counts for neither end.

    Args:
        X: float32 [samples, n].

    Returns:
        float32 [samples] and int32 [samples], the zero-point of int8 codes (uint8 less 128).

    Source: ONNX DynamicQuantizeLinear.
    """
    low = np.minimum(np.fmin.reduce(X, axis=1, initial=f32(0)), f32(0))
    high = np.maximum(np.fmax.reduce(X, axis=1, initial=f32(0)), f32(0))
    with np.errstate(all="ignore"):
        scale = (high - low).astype(f32) / f32(CODES)
        scale = np.where(scale == 0, f32(1), scale)
        zero = f32(0) - low / scale
    zero = np.rint(_between(zero, 0, CODES))
    return scale.astype(f32), zero.astype(np.int32) - 128


def dynamic_codes(X: Array, scale: Array, zero_point: Array) -> Array:
    """Return int8 codes sat(rint(x / s) + z), each sample by its own parameters.

    Args:
        X: float32 [samples, n].
        scale: float32 [samples].
        zero_point: int32 [samples], of int8 codes.
    """
    zero = zero_point[:, None].astype(f32)
    with np.errstate(all="ignore"):
        q = np.rint(_between(X / scale[:, None], -128 - zero, 127 - zero))
    return (q + zero).astype(np.int8)


def dynamic_rescale(acc: Array, x_scale: Array, w_scale: Array, bias: Array) -> Array:
    """Return float32 f32( f32(f32(acc) * f32(s_x * s_w)) + bias ), three roundings, no FMA.

    Args:
        acc: exact integers [..., channels].
        x_scale: float32, broadcast against acc.
        w_scale: float32 [channels].
        bias: float32 [channels].
    """
    with np.errstate(all="ignore"):
        m = x_scale.astype(f32) * w_scale.astype(f32)
        y: Array = acc.astype(f32) * m + bias.astype(f32)
    return y


def _between(v: Array, low: Any, high: Any) -> Array:
    """Clamp; NaN becomes the lower end, as the comparisons of the C code have it."""
    v = np.where(v > low, v, low)
    return np.where(v < high, v, high).astype(f32)
