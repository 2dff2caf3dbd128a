"""Steps of a Plan on words: float32, and int32 that stand for the integers and truths of the file.

They stand beside the float steps of plan_float.py. A truth (bool) is 0 or 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RecurrentF32:
    """One direction of an LSTM, GRU or RNN over X [T, B, I], by the equations of ONNX.

    The output is [T + 1, B, H]: h after each step at the step's own place, then what the kernel
    keeps: the last cell state of an LSTM, the last r * h of a GRU. An RNN has no such row.

    Args:
        kind: "lstm" (gates i, o, f, c), "gru" (z, r, h) or "rnn".
        weight: W, float32 [gates * H, I].
        recurrence: R, float32 [gates * H, H].
        bias: Wb + Rb, float32 [gates * H]; of a GRU's h that resets after: Wb alone.
        hidden_bias: Rb of a GRU's h that resets after, float32 [H], else zeros.
        peepholes: P of an LSTM, float32 [3 * H] (i, o, f), zeros where it has none.
        backward: from the last step to the first.
        reset_after: linear_before_reset of a GRU.
        relu: an RNN's function is Relu, not Tanh.
        has_state: (h, c): further inputs [B, H] hold the first state, which else is 0.
    """

    kind: str
    weight: Array
    recurrence: Array
    bias: Array
    hidden_bias: Array
    peepholes: Array
    backward: bool = False
    reset_after: bool = False
    relu: bool = False
    has_state: tuple[bool, bool] = (False, False)

    @property
    def hidden(self) -> int:
        """Number of units."""
        return int(self.recurrence.shape[1])


@dataclass(frozen=True, slots=True)
class ResampleF32:
    """Y [outer, m, inner] = sum over taps of weight[m, k] * X [outer, index[m, k], inner].

    Args:
        index: int32 [m, taps].
        weight: float32 [m, taps].
    """

    index: Array
    weight: Array

    @property
    def magnitude(self) -> "ResampleF32":
        """The same with weights of no sign."""
        return ResampleF32(self.index, np.abs(self.weight))


@dataclass(frozen=True, slots=True)
class Compare:
    """Elementwise int32 truth about two float32 tensors of equal rank; axes of 1 are repeated.

    Args:
        kind: "equal", "less" or "less_equal"; all are false where an operand is NaN.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class BinaryS32:
    """Elementwise function of two int32 tensors of equal rank; axes of 1 are repeated.

    Args:
        kind: "add", "sub", "mul" (wrapping), "div" (towards 0), "mod" (sign of b), "fmod" (of a),
            "max", "min", "and", "or", "xor", "equal", "less" or "less_equal".
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Where:
    """Elements of the second input where the first, int32, is not 0, else of the third."""


@dataclass(frozen=True, slots=True)
class Cast:
    """One element type into another.

    Args:
        kind: "to_s32" (float32 towards 0, saturating, NaN gives 0), "to_f32" (int32, rounded),
            "truth_f32" or "truth_s32" (1 where it is not 0).
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Arg:
    """Index of the largest (or smallest) of X [outer, n, inner], int32 [outer, 1, inner].

    X is float32, or codes, whose order is that of the real values.

    Args:
        smallest: of the smallest.
        last: of equal ones the last, not the first.
    """

    smallest: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class TopF32:
    """Indices of the largest of X [outer, n, inner], or the smallest, in order: [outer, k, inner].

    Of equal ones the first comes first; NaN is in no order, and where too few are left stands 0.

    Args:
        k: how many.
        smallest: the smallest ones.
    """

    k: int
    smallest: bool = False


@dataclass(frozen=True, slots=True)
class Gather:
    """Y [outer, m, inner] = X [outer, index[m], inner]; the indices are the last input, int32 [m].

    An index below 0 counts from the end; one outside is moved to the nearest.

    Args:
        table: X as a constant of four-byte elements, None where it is the first input.
    """

    table: Array | None = None


@dataclass(frozen=True, slots=True)
class GatherElements:
    """Y [outer, m, inner] = X [outer, index[outer, m, inner], inner]; indices as for Gather."""


@dataclass(frozen=True, slots=True)
class ConstantS32:
    """Copies an int32 constant into the arena."""

    value: Array


GeneralParams = (
    RecurrentF32
    | ResampleF32
    | Compare
    | BinaryS32
    | Where
    | Cast
    | Arg
    | TopF32
    | Gather
    | GatherElements
    | ConstantS32
)
EXACT = (
    *(Compare, BinaryS32, Where, Cast, Arg, TopF32),
    *(Gather, GatherElements, ConstantS32),
)
