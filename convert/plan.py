"""The Plan: the fused program that the executor runs and the C emitter writes. Data, no behaviour.

A Plan is what remains of a quantized ONNX graph when every parameter is resolved. Activations are
int8 (uint8 codes of the file minus 128, same bits otherwise), 4-D tensors lie NHWC, convolution
weights OHWI. Graph inputs and outputs keep the file's dtype and axis order.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.plan_float import FloatParams
from midge.convert.plan_general import GeneralParams
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]
ITEM_BYTES = {"int8": 1, "uint8": 1, "int32": 4, "float32": 4}
_ONE = np.float32(1)
ALIGNMENT = 16  # bytes, of the arena and of every buffer in it


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """One tensor of the program.

    Args:
        name: its name in the ONNX file.
        shape: its shape as stored.
        dtype: "int8", "uint8", "int32" or "float32", as stored.
        buffer: index of the buffer that holds it; tensors that share bytes share the buffer.
        params: quantization parameters of the stored codes (int8), None for float tensors.
        layout: storage axis j holds ONNX axis layout[j]; (0, 2, 3, 1) for an NCHW tensor.
        file_params: parameters as the ONNX file states them (uint8 or int8).
        file_shape: shape in the ONNX file.
        file_dtype: "int64" or "bool" of an input or output that is int32 here, else "".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: int
    params: QuantParams | None = None
    layout: tuple[int, ...] = ()
    file_params: QuantParams | None = None
    file_shape: tuple[int, ...] = ()
    file_dtype: str = ""

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Requantization:
    """R1 of one layer: q = clip(rint(f32(acc) * m) + zero_point, low, high).

    Args:
        m: float32 [channels] (or [1]) multipliers.
        zero_point: of the output, int8.
        low: lower saturation limit, int8.
        high: upper saturation limit, int8.
    """

    m: Array
    zero_point: int
    low: int = -128
    high: int = 127


@dataclass(frozen=True, slots=True)
class Conv2d:
    """Convolution of X [N, H, W, C] int8; a 1-D convolution has H = 1.

    Args:
        weight: int8 [O, kh, kw, C / groups].
        bias: int32 [O].
        stride: (y, x).
        pads: (top, left, bottom, right); padding holds x_zero_point.
        dilation: (y, x).
        groups: as in ONNX Conv; groups == C selects the depthwise kernel.
        x_zero_point: of the input, int8.
        requantization: of the output.
        weight_zero_point: subtracted from each weight code, int8.
    """

    weight: Array
    bias: Array
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    x_zero_point: int
    requantization: Requantization
    weight_zero_point: int = 0

    @property
    def centred(self) -> Array:
        """The weights less their zero-point, int16."""
        return self.weight.astype(np.int16) - np.int16(self.weight_zero_point)


@dataclass(frozen=True, slots=True)
class FullyConnected:
    """Y [rows, O] = X [rows, I] times weight int8 [O, I], plus bias int32 [O].

    `weight_zero_point` is subtracted from each weight code.
    """

    weight: Array
    bias: Array
    x_zero_point: int
    requantization: Requantization
    weight_zero_point: int = 0

    @property
    def centred(self) -> Array:
        """The weights less their zero-point, int16."""
        return self.weight.astype(np.int16) - np.int16(self.weight_zero_point)


@dataclass(frozen=True, slots=True)
class Add:
    """Elementwise sum of two tensors of one shape, by quant.arithmetic.add on the file's codes.

    Args:
        a: parameters of the first input, in the file's dtype.
        b: of the second.
        y: of the output.
        subtract: the difference instead.
    """

    a: QuantParams
    b: QuantParams
    y: QuantParams
    subtract: bool = False


@dataclass(frozen=True, slots=True)
class Mul:
    """Elementwise product of two tensors of equal rank; axes of size 1 are repeated.

    Args:
        a_zero_point: of the first input, int8.
        b_zero_point: of the other operand, int8.
        requantization: of the output, with one multiplier.
        constant: int8 codes of the other operand, None where it is the second input.
    """

    a_zero_point: int
    b_zero_point: int
    requantization: Requantization
    constant: Array | None = None


@dataclass(frozen=True, slots=True)
class MatMul:
    """Y [batch, M, N] = A [batch or 1, M, K] times B [batch or 1, K, N], two activations.

    Args:
        a_zero_point: of the first input, int8.
        b_zero_point: of the second input, int8.
        requantization: of the output, with one multiplier.
        a_order: axis i of A is stored axis a_order[i].
        b_order: the same of B.
        y_order: the same of Y.
        sizes: batch, M and N of Y.
    """

    a_zero_point: int
    b_zero_point: int
    requantization: Requantization
    a_order: tuple[int, int, int]
    b_order: tuple[int, int, int]
    y_order: tuple[int, int, int]
    sizes: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Constant:
    """Copies int8 codes into the arena, for steps that read activations only."""

    value: Array


@dataclass(frozen=True, slots=True)
class Pool2d:
    """Max or average pool of X [N, H, W, C] int8.

    Args:
        kind: "max" or "average".
        kernel: (y, x).
        stride: (y, x).
        pads: (top, left, bottom, right).
        x_zero_point: of the input; an average's padding holds it when counted.
        count_include_pad: an average divides by the whole window also at the borders.
        x_scale: float32, for the multiplier of each count (average only).
        y_scale: float32.
        requantization: zero point and limits of an average; `m` is that of the full window, or
            s_x / s_y where the elements are summed.
        dilation: (y, x).
    """

    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    x_zero_point: int
    count_include_pad: bool = False
    x_scale: np.float32 = _ONE
    y_scale: np.float32 = _ONE
    requantization: Requantization | None = None
    dilation: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Softmax:
    """Softmax over the last axis; `table` is uint32 [256] from quant.arithmetic.softmax_table."""

    table: Array


@dataclass(frozen=True, slots=True)
class Table:
    """Any unary function: y = table[x + 128], int8 [256]."""

    table: Array


@dataclass(frozen=True, slots=True)
class Pad:
    """Constant padding of each stored axis; `value` is an int8 code."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    value: int


@dataclass(frozen=True, slots=True)
class Concat:
    """Joins its inputs along a stored axis; all have the output's parameters."""

    axis: int


@dataclass(frozen=True, slots=True)
class Transpose:
    """Output axis j is input axis perm[j], any dtype; a true copy."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Start and step of each stored axis; the output's shape gives the count, step 0 repeats."""

    start: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quantize:
    """float32 to int8 codes, quant.arithmetic.quantize."""

    y: QuantParams


@dataclass(frozen=True, slots=True)
class Dequantize:
    """int8 codes to float32, quant.arithmetic.dequantize."""

    x: QuantParams


@dataclass(frozen=True, slots=True)
class FlipSign:
    """uint8 to int8 codes or back: every byte xor 0x80, in place where it may."""


Params = (
    Conv2d
    | FullyConnected
    | Add
    | Constant
    | MatMul
    | Mul
    | Pool2d
    | Softmax
    | Table
    | Pad
    | Concat
    | Transpose
    | Slice
    | Quantize
    | Dequantize
    | FlipSign
    | FloatParams
    | GeneralParams
)


@dataclass(frozen=True, slots=True)
class PlanOp:
    """One step: reads `inputs`, writes `output` (indices into Plan.tensors).

    Args:
        name: of the ONNX node, for messages and reports.
        params: what to do; its class selects the kernel.
        inputs: tensor indices.
        output: tensor index.
        macs: multiply-accumulates of one run.
    """

    name: str
    params: Params
    inputs: tuple[int, ...]
    output: int
    macs: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """Neighbouring steps that are carried out as one, strip by strip.

    Args:
        first: index of the first step.
        strips: rows of the output that each step makes at once.
    """

    first: int
    strips: tuple[int, ...]

    @property
    def steps(self) -> range:
        """Indices of the steps."""
        return range(self.first, self.first + len(self.strips))


@dataclass(slots=True)
class Plan:
    """A whole program.

    Args:
        name: of the model.
        tensors: every tensor, inputs and outputs included.
        ops: in execution order.
        inputs: tensor indices in graph order.
        outputs: tensor indices in graph order.
        buffer_bytes: size of each buffer.
        offsets: arena offset of each buffer, multiples of ALIGNMENT; filled by convert.memory.
        arena_bytes: exact size of the arena; filled by convert.memory.
        arena_bound: a lower bound on it, for any placement in this order.
        notices: lines that the user must see (a bound dynamic axis, a raised scale).
        scratch_bytes: bytes that each step needs for itself; empty where none does.
        scratch: arena offset of each step's scratch; filled by convert.memory.
        streams: steps that run strip by strip, in order; filled by convert.memory.
        rings: rows that are kept of a tensor inside a stream, by tensor index; filled by
            convert.memory.
    """

    name: str
    tensors: list[PlanTensor]
    ops: list[PlanOp]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    buffer_bytes: list[int]
    offsets: list[int] = field(default_factory=list)
    arena_bytes: int = 0
    arena_bound: int = 0
    notices: list[str] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    rings: dict[int, int] = field(default_factory=dict)
