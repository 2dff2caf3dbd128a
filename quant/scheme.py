"""Scales, zero-points and weight codes: how real ranges become 8-bit parameters.

Every rule here is stated in docs/numerics.md. Scales are float32 and enter every formula as such.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.core.errors import InputError

Array = npt.NDArray[Any]

CODE_RANGE = {"uint8": (0, 255), "int8": (-128, 127), "int32": (-(2**31), 2**31 - 1)}
WEIGHT_MAX = 127  # weight codes are symmetric: -127..127
REDUCED_WEIGHT_MAX = 64  # 255 * (64 + 64) fits int16: no sum of two products saturates
BIAS_LIMIT = 2**30  # |bias code| stays below this when midge chooses the scales
SCALE_FLOOR = np.float32(2.0**-60)  # a dead range or channel still gets a finite positive scale


@dataclass(frozen=True, slots=True)
class QuantParams:
    """How the codes of one activation map to real values: real = (code - zero_point) * scale.

    Args:
        scale: positive float32 scalar.
        zero_point: code of the real value 0, inside the range of `dtype`.
        dtype: "uint8" or "int8".
    """

    scale: np.float32
    zero_point: int
    dtype: str = "uint8"

    def __post_init__(self) -> None:
        """Refuse parameters that no operator could use."""
        scale = np.float32(self.scale)
        if not (np.isfinite(scale) and scale > 0):
            raise InputError(f"scale={scale} is not a positive finite number.")
        if not self.qmin <= self.zero_point <= self.qmax:
            raise InputError(f"zero_point={self.zero_point} lies outside {self.dtype}.")
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero_point", int(self.zero_point))

    @property
    def qmin(self) -> int:
        """Smallest code of the type."""
        return CODE_RANGE[self.dtype][0]

    @property
    def qmax(self) -> int:
        """Largest code of the type."""
        return CODE_RANGE[self.dtype][1]

    def as_dtype(self, dtype: str) -> "QuantParams":
        """Return the same mapping for codes of the other 8-bit type (uint8 = int8 + 128)."""
        shift = CODE_RANGE[dtype][0] - self.qmin
        return QuantParams(self.scale, self.zero_point + shift, dtype)


SOFTMAX_PARAMS = QuantParams(np.float32(1 / 256), 0, "uint8")


def activation_params(low: float, high: float, dtype: str = "uint8") -> QuantParams:
    """Choose asymmetric 8-bit parameters for the range [low, high], widened to contain 0.

    scale = f32((high - low) / 255), zero_point = rint(qmin - low / scale), clamped to the type.

    Raises:
        InputError: a bound is not finite or low > high.
    """
    if not (np.isfinite(low) and np.isfinite(high)) or low > high:
        raise InputError(f"[{low}, {high}] is no range.")
    qmin, qmax = CODE_RANGE[dtype]
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    scale = max(np.float32((high - low) / (qmax - qmin)), SCALE_FLOOR)
    zero_point = int(np.clip(np.rint(qmin - low / float(scale)), qmin, qmax))
    return QuantParams(np.float32(scale), zero_point, dtype)


@dataclass(frozen=True, slots=True)
class WeightCodes:
    """The integer parameters of one Conv, Gemm or MatMul.

    Args:
        weight: int8 codes in the layout of the ONNX operand, -127..127 or, with a reduced range,
            -64..64; zero-point 0.
        scale: float32 [channels], or [1] when per-tensor.
        bias: int32 codes [channels] with scale f32(s_x * s_w[c]), or None.
        raised: output channels whose scale was raised to keep the bias in range.
    """

    weight: Array
    scale: Array
    bias: Array | None
    raised: tuple[int, ...] = ()


def weight_scales(W: Array, axis: int, per_channel: bool, limit: int = WEIGHT_MAX) -> Array:
    """Return float32 scales max|W| / limit per output channel (or one), never below the floor."""
    moved = np.moveaxis(np.asarray(W, np.float64), axis, 0).reshape(W.shape[axis], -1)
    top = np.abs(moved).max(axis=1) if moved.shape[1] else np.zeros(moved.shape[0])
    if not per_channel:
        top = top.max(keepdims=True)
    return np.maximum((top / limit).astype(np.float32), SCALE_FLOOR)


def weight_codes(W: Array, scale: Array, axis: int, limit: int = WEIGHT_MAX) -> Array:
    """Return int8 codes sat(rint(W / scale)), -limit..limit, in the layout of W.

    The division is in float32, as QuantizeLinear's (ONNX specification).
    """
    shape = [1] * W.ndim
    shape[axis] = -1
    codes = np.rint(np.asarray(W, np.float32) / scale.reshape(shape))
    return np.clip(codes, -limit, limit).astype(np.int8)


def bias_scale(x_scale: np.float32, w_scale: Array) -> Array:
    """Return f32(s_x * s_w), float32, of the shape of `w_scale`."""
    return np.asarray(np.float32(x_scale) * w_scale.astype(np.float32), np.float32)


def quantize_weights(
    W: Array,
    B: Array | None,
    x_scale: np.float32,
    axis: int,
    per_channel: bool = True,
    limit: int = WEIGHT_MAX,
) -> WeightCodes:
    """Quantize the weights and bias of one layer.

    A channel whose |bias| / (s_x * s_w) would reach 2^30 gets a larger weight scale, just enough,
    and its weights are quantized anew; its index is in `raised`.

    Args:
        W: float weights, any layout.
        B: float bias [channels] or None.
        x_scale: scale of the layer's input.
        axis: output-channel axis of W.
        per_channel: one scale per output channel, or one for all.
        limit: largest code, WEIGHT_MAX or REDUCED_WEIGHT_MAX.
    """
    scale = weight_scales(W, axis, per_channel, limit)
    raised: tuple[int, ...] = ()
    bias = None
    if B is not None:
        B = np.asarray(B, np.float64)
        # 2^-20 below the limit: three float32 roundings lie between here and the code.
        need = np.abs(B) / (float(x_scale) * BIAS_LIMIT * (1 - 2.0**-20))
        if not per_channel:
            need = need.max(keepdims=True)
        low = need > scale
        raised = tuple(int(c) for c in np.flatnonzero(low))
        scale = np.where(low, need, scale).astype(np.float32)
        bias = np.rint(B / bias_scale(x_scale, scale).astype(np.float64)).astype(np.int32)
    return WeightCodes(weight_codes(W, scale, axis, limit), scale, bias, raised)
