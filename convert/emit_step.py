"""What a step of a Plan becomes in C: records of words, and what is needed to fill them.

A record's words are C expressions keyed by the enumerators of midge_model.h, so that the numbering
lives in that header alone and the generated C can be read.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from midge.convert.pack import ConstData
from midge.convert.plan import PlanOp, PlanTensor
from midge.convert.target import C99, Target
from midge.core.errors import UnsupportedError

Words = dict[str, str | int]  # enumerator (or "ENUMERATOR + n") to C expression
HALF_WORD = 2**16  # MIDGE_PAIR holds two numbers below this


@dataclass(frozen=True, slots=True)
class Record:
    """One midge_op.

    Attributes:
        kernel: name of the C function.
        words: enumerator (or "ENUMERATOR + n") to C expression; words left out are 0.
        rows: of the output, which the kernel makes in strips.
        split: strips may be made at the same time.
    """

    kernel: str
    words: dict[str, str]
    rows: int = 1
    split: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A PlanOp with what its record needs looked up.

    Attributes:
        op: the step.
        x: its input tensors.
        y: its output tensor.
        x_at: arena offsets of the inputs.
        y_at: arena offset of the output.
        data: constants of the model so far; appended to.
        target: selects the kernel.
        streamed: it runs strip by strip.
        rings: rows kept of each input and of the output, 0 for all.
        scratch: arena offset and size of what it needs for itself.
    """

    op: PlanOp
    x: tuple[PlanTensor, ...]
    y: PlanTensor
    x_at: tuple[int, ...]
    y_at: int
    data: ConstData
    target: Target = C99
    streamed: bool = False
    rings: tuple[int, ...] = ()
    scratch: tuple[int, int] = (0, 0)

    def fail(self, why: str) -> UnsupportedError:
        """Return the error that names this step."""
        return UnsupportedError(f"{self.op.name} ({type(self.op.params).__name__}): {why}.")

    def pair(self, what: str, low: int, high: int) -> str:
        """Return a MIDGE_PAIR, or raise UnsupportedError naming what is too large."""
        if not (0 <= low < HALF_WORD and 0 <= high < HALF_WORD):
            raise self.fail(f"{what} {(low, high)} is outside 0..{HALF_WORD - 1} of the C record")
        return f"MIDGE_PAIR({low}, {high})"


def record(step: Step, kernel: str, words: Words, rows: int = 1) -> Record:
    """Return a record with the offsets that all kernels share.

    Raises:
        UnsupportedError: there are too many rows.
    """
    step.pair("rows", rows, 0)
    common: Words = {"MIDGE_OP_Y": step.y_at}
    if step.x_at:
        common["MIDGE_OP_X"] = step.x_at[0]
    if any(step.rings):
        common["MIDGE_OP_RINGS"] = step.pair("rings", step.rings[0], step.rings[-1])
    if step.scratch[1]:
        common["MIDGE_OP_SCRATCH"] = step.scratch[0]
    return Record(kernel, {k: str(v) for k, v in {**common, **words}.items()}, rows)


def bits(value: Any) -> str:
    """Return the bits of a float32 as C hex."""
    return f"0x{np.float32(value).view(np.uint32):08x}"


def word(value: int) -> str:
    """Return the 32 bits of an integer, two's complement, as C."""
    return str(value) if value >= 0 else f"0x{value & 0xFFFFFFFF:08x}"


def count(tensor: PlanTensor) -> int:
    """Return the number of elements."""
    return int(np.prod(tensor.shape, dtype=np.int64))


def map_rows(step: Step) -> tuple[int, int]:
    """Return rows and elements of a row of an elementwise step: one row where it may be."""
    rows = image_rows(step.y) if step.streamed else 1
    return rows, count(step.y) // rows


def image_rows(tensor: PlanTensor) -> int:
    """Return the rows of all images of a tensor [N, H, W, C]."""
    return tensor.shape[0] * tensor.shape[1]
