"""Steps of a Plan that compute in float32, and those that quantize activations at run time.

They stand beside the integer steps of plan.py and share its layouts: images NHWC, weights OHWI.
Constant operands are kept in storage order.
"""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

NO_LIMIT = float("inf")
DYNAMIC_HEADER = 16  # bytes before the codes of a DynamicQuantize: scale, zero-point, two zeros


@dataclass(frozen=True, slots=True)
class Limits:
    """What a fused Relu or Clip leaves of a result: y = min(max(y, low), high)."""

    low: float = -NO_LIMIT
    high: float = NO_LIMIT


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Conv2dF32:
    """Convolution of X [N, H, W, C] float32; padding holds 0.

    Args:
        weight: [O, kh, kw, C / groups] float32, or int8 codes where `scale` is given.
        bias: float32 [O].
        stride: (y, x).
        pads: (top, left, bottom, right).
        dilation: (y, x).
        groups: as in ONNX Conv; groups == C > 1 selects the depthwise kernel.
        scale: float32 [O] of int8 weights, which stand for weight * scale[o]; else None.
        limits: of the output.
    """

    weight: Array
    bias: Array
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    scale: Array | None = None
    limits: Limits = UNLIMITED


@dataclass(frozen=True, slots=True)
class FullyConnectedF32:
    """Y [rows, O] = X [rows, I] times weight [O, I], plus bias; `scale` as in Conv2dF32."""

    weight: Array
    bias: Array
    scale: Array | None = None
    limits: Limits = UNLIMITED


@dataclass(frozen=True, slots=True)
class MatMulF32:
    """Y [batch, M, N] = A [batch or 1, M, K] times B [batch or 1, K, N], two activations."""


@dataclass(frozen=True, slots=True)
class BinaryF32:
    """Elementwise function of two tensors of equal rank; axes of size 1 are repeated.

    Args:
        kind: "add", "sub", "mul", "div", "max", "min", "prelu" (a, or b * a below 0), "pow",
            "fmod" (remainder with the sign of a) or "mod" (with that of b).
        constant: float32 second operand of the step, None where it is an activation.
        swapped: the constant is the first operand of the function.
    """

    kind: str
    constant: Array | None = None
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class UnaryF32:
    """Elementwise function of one tensor; alpha and beta as in the ONNX operator of that name.

    Args:
        kind: a key of float_bounds.UNARY_BOUNDS.
        alpha: first parameter (of "clip": the lower limit).
        beta: second parameter (of "clip": the upper limit).
    """

    kind: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Pool2dF32:
    """Max or average pool of X [N, H, W, C]; the fields as in plan.Pool2d."""

    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    count_include_pad: bool = False
    dilation: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class SoftmaxF32:
    """Softmax over the last stored axis, or its logarithm."""

    log: bool = False


@dataclass(frozen=True, slots=True)
class ReduceF32:
    """Reduction of the middle axis of X [outer, n, inner]: "sum", "mean", "max", "min", "prod"."""

    kind: str


@dataclass(frozen=True, slots=True)
class PadF32:
    """Constant padding of each stored axis with a real value."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class ConstantF32:
    """Copies a constant into the arena, for steps that read activations only."""

    value: Array


@dataclass(frozen=True, slots=True)
class DynamicQuantize:
    """float32 to codes whose scale and zero-point follow from the data, as DynamicQuantizeLinear.

    The output is one uint8 tensor: float32 scale, int32 zero-point of int8 codes, 8 zero bytes,
    then the int8 codes in the order of the input.
    """


@dataclass(frozen=True, slots=True)
class FullyConnectedDynamic:
    """Y [rows, O] float32 of codes [rows, I] behind a DynamicQuantize header.

    y = f32( f32( f32(acc) * f32(s_x * s_w[o]) ) + bias[o] ), acc = sum((x - z_x) * w) in int32.

    Args:
        weight: int8 [O, I].
        scale: float32 [O].
        bias: float32 [O].
        limits: of the output.
    """

    weight: Array
    scale: Array
    bias: Array
    limits: Limits = UNLIMITED


@dataclass(frozen=True, slots=True)
class Conv2dDynamic:
    """Convolution of codes [N, H, W, C] behind a DynamicQuantize header; y as above.

    Args:
        weight: int8 [O, kh, kw, C / groups].
        scale: float32 [O].
        bias: float32 [O].
        x_shape: [N, H, W, C].
        stride: (y, x).
        pads: (top, left, bottom, right); padding holds z_x.
        dilation: (y, x).
        groups: as in ONNX Conv.
        limits: of the output.
    """

    weight: Array
    scale: Array
    bias: Array
    x_shape: tuple[int, int, int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    limits: Limits = UNLIMITED


FloatParams = (
    Conv2dF32
    | FullyConnectedF32
    | MatMulF32
    | BinaryF32
    | UnaryF32
    | Pool2dF32
    | SoftmaxF32
    | ReduceF32
    | PadF32
    | ConstantF32
    | DynamicQuantize
    | FullyConnectedDynamic
    | Conv2dDynamic
)
