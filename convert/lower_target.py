"""What a step writes: the tensor's name, and for codes their parameters and saturation limits."""

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.canonical_activations import limits
from midge.convert.plan import Requantization
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams


@dataclass(frozen=True, slots=True)
class Destination:
    """A tensor to be computed.

    Args:
        name: of the tensor.
        params: of its codes in the file's dtype, None for float32.
    """

    name: str
    params: QuantParams | None


@dataclass(frozen=True, slots=True)
class Target(Destination):
    """Codes to be computed.

    Args:
        name: of the tensor.
        params: in the file's dtype.
        low: lower limit, a code of that dtype.
        high: upper limit, a code of that dtype.
        bare: the constants of a move are codes, not real values.
    """

    params: QuantParams
    low: int
    high: int
    bare: bool = False

    @classmethod
    def of(cls, name: str, params: QuantParams) -> "Target":
        """Return a target with the whole range of codes."""
        return cls(name, params, params.qmin, params.qmax)

    def clipped(self, bounds: tuple[float, float]) -> "Target":
        """Return the target of what a Clip to these real bounds reads.

        Quantization is monotone, so clipping a value and then quantizing it gives the code clipped
        to the bounds' codes.
        """
        codes = arithmetic.quantize(np.array(bounds, np.float32), self.params)
        low, high = np.clip([self.low, self.high], int(codes[0]), int(codes[1]))
        return replace(self, low=int(low), high=int(high))

    def requantization(self, m: g.Array) -> Requantization:
        """Return R1 into this target, on int8 codes.

        Args:
            m: float32 multipliers.
        """
        shift = self.params.as_dtype("int8").zero_point - self.params.zero_point
        return Requantization(
            m=np.asarray(m, np.float32).reshape(-1),
            zero_point=self.params.zero_point + shift,
            low=self.low + shift,
            high=self.high + shift,
        )

    def real_code(self, value: float) -> int:
        """Return the int8 code of a constant that takes its place among this target's codes."""
        if self.bare:
            code = round(value)
        else:
            quantized = arithmetic.quantize(np.array(value, np.float32), self.params)
            code = int(np.clip(int(quantized), self.low, self.high))
        return code + self.params.as_dtype("int8").zero_point - self.params.zero_point


def limits_of(node: ir.Node) -> tuple[float, float] | None:
    """Return the constant bounds of a Relu or Clip, None for any other node."""
    return limits(node) if g.is_op(node, "Relu", "Clip") else None
