"""What the golden test of a compiled model allows: no bit, or a little where floats decide.

The golden test tells a broken build from a working one on any target; how close every float step
comes is what `midge verify` measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.float_bounds import inexact_buffers
from midge.convert.plan import Plan

Array = npt.NDArray[Any]

FLOAT_SHARE = 2.0**-10  # of the largest output: float32 nets differ by some 2^-20 among libraries
# Behind a Quantize step a rounding error can select the neighbouring code, which weighs as much as
# quantization itself does.
CODE_SHARE = 2.0**-4
_SPAN = 255  # codes

FLOATS_NEAR = """
/* Whether floats equal the expected ones or differ by no more than `limit`. */
static int floats_near(const void *got, const uint32_t *want, size_t bytes, float limit) {
    for (size_t i = 0; i < bytes; i += sizeof limit) {
        float a, b;
        memcpy(&a, (const uint8_t *)got + i, sizeof a);
        memcpy(&b, (const uint8_t *)want + i, sizeof b);
        if (!(a - b <= limit && b - a <= limit) && memcmp(&a, &b, sizeof a) != 0)
            return 0;
    }
    return 1;
}
"""

CODES_NEAR = """
/* Whether codes differ from the expected ones by no more than `limit`; flip is 0x80 for int8. */
static int codes_near(const void *got, const uint32_t *want, size_t bytes, int flip, int limit) {
    for (size_t i = 0; i < bytes; ++i) {
        const int a = ((const uint8_t *)got)[i] ^ flip, b = ((const uint8_t *)want)[i] ^ flip;
        if (a - b > limit || b - a > limit)
            return 0;
    }
    return 1;
}
"""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How far one output may be from the golden one.

    Args:
        dtype: of the output.
        limit: the largest difference, in the output's own units; 0 for none in any bit.
    """

    dtype: str
    limit: float

    def condition(self, got: str, want: str, size: str) -> str:
        """Return the C condition under which the output is refused."""
        if not self.limit:
            return f"memcmp({got}, {want}, {size})"
        if self.dtype == "float32":
            return f"!floats_near({got}, {want}, {size}, {np.float32(self.limit):.9e}f)"
        flip = "0x80" if self.dtype == "int8" else "0"
        return f"!codes_near({got}, {want}, {size}, {flip}, {int(self.limit)})"


def allowances(plan: Plan, outputs: Sequence[Array]) -> list[Allowance]:
    """Return what is allowed for each output.

    Args:
        plan: the program.
        outputs: the golden ones, in graph order.
    """
    inexact, found = inexact_buffers(plan), []
    for index, y in zip(plan.outputs, outputs, strict=True):
        tensor = plan.tensors[index]
        share = 0.0
        if tensor.buffer in inexact and tensor.dtype != "int32":
            share = CODE_SHARE if inexact[tensor.buffer] else FLOAT_SHARE
        finite = y[np.isfinite(y)] if tensor.dtype == "float32" else y
        whole = float(np.abs(finite).max(initial=0)) if tensor.dtype == "float32" else _SPAN
        found.append(Allowance(tensor.dtype, share * whole))
    return found


def helpers(allowed: Sequence[Allowance]) -> str:
    """Return the C functions that the conditions call."""
    floats = any(a.limit and a.dtype == "float32" for a in allowed)
    codes = any(a.limit and a.dtype != "float32" for a in allowed)
    return FLOATS_NEAR * floats + CODES_NEAR * codes
