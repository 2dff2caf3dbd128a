"""Judges float steps for `verify`: how far each may be from its reference, and what that leaves.

A float step of C is held to its error bound (float_bounds.py) on the very inputs that C gave it, so
that no rounding error adds up along the network; every integer, moving or once-rounded step must
give the bits that the executor gives on those inputs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor import compute
from midge.convert.executor_ops import Operands
from midge.convert.float_bounds import (
    float_buffers,
    inexact_buffers,
    is_exact,
    within_bound,
)
from midge.convert.golden import CODE_SHARE, FLOAT_SHARE
from midge.convert.plan import Plan, PlanOp, PlanTensor

Array = npt.NDArray[Any]
CHUNK = 4  # samples judged at a time, in float64


@dataclass(slots=True)
class Judge:
    """What may differ among the engines in one Plan.

    Args:
        plan: the program.

    Attributes:
        inexact: buffers that rounding errors reach -> whether codes were made of them.
    """

    plan: Plan
    inexact: dict[int, bool] = field(init=False)
    _floats: set[int] = field(init=False)

    def __post_init__(self) -> None:
        """Look for float steps."""
        self.inexact, self._floats = inexact_buffers(self.plan), float_buffers(self.plan)

    @property
    def compares_floats(self) -> bool:
        """Whether any bit may differ between executor and C."""
        return bool(self.inexact)

    @property
    def requantizes(self) -> bool:
        """Whether codes are made of inexact values."""
        return any(self.inexact.values())

    def notices(self) -> list[str]:
        """Return lines about what is compared, for a plan with float steps."""
        lines = []
        if self.compares_floats:
            lines.append(
                "float32 steps of the C are held to their error bounds (docs/numerics.md), each "
                "on the inputs that it got; all others to the executor's bits."
            )
        if self._floats:
            lines.append(
                f"float32 outputs are compared with ONNX Runtime within {FLOAT_SHARE:.2g} of the "
                "largest value."
            )
        if self.requantizes:
            lines.append(
                "what is quantized again behind a float32 step is compared with ONNX Runtime at "
                f"ORT_DISABLE_ALL, within {CODE_SHARE:.2g} of the range: it quantizes such steps "
                "by itself otherwise."
            )
        return lines

    def expected(
        self, inputs: Sequence[Array], steps: Sequence[Array]
    ) -> tuple[list[Array], list[Array]]:
        """Return what C should have written, given what it wrote before.

        Args:
            inputs: in graph order, each [samples, *shape of the file].
            steps: what every step of C wrote, [samples, bytes] uint8.

        Returns:
            The outputs as the file has them, and what every step should have written, [samples,
            bytes]; elements within their bound are those of C.
        """
        parts = list(self._chunks(inputs, steps))
        outputs = [np.concatenate(column) for column in zip(*(p[0] for p in parts), strict=True)]
        written = [np.concatenate(column) for column in zip(*(p[1] for p in parts), strict=True)]
        return outputs, written

    def _chunks(
        self, inputs: Sequence[Array], steps: Sequence[Array]
    ) -> Iterator[tuple[list[Array], list[Array]]]:
        for start in range(0, len(inputs[0]), CHUNK):
            rows = slice(start, start + CHUNK)
            yield self._judge([x[rows] for x in inputs], [y[rows] for y in steps])

    def _judge(
        self, inputs: Sequence[Array], steps: Sequence[Array]
    ) -> tuple[list[Array], list[Array]]:
        plan, samples = self.plan, len(inputs[0])
        actual: dict[int, Array] = {}
        for index, x in zip(plan.inputs, inputs, strict=True):
            actual[plan.tensors[index].buffer] = np.ascontiguousarray(x)
        wanted, written = dict(actual), []
        for op, raw in zip(plan.ops, steps, strict=True):
            y = plan.tensors[op.output]
            operands = [_view(actual[plan.tensors[t].buffer], plan.tensors[t]) for t in op.inputs]
            actual[y.buffer] = np.ascontiguousarray(raw).view(y.dtype).reshape(samples, *y.shape)
            best = _best(plan, op, operands, actual[y.buffer])
            wanted[y.buffer] = best
            written.append(np.ascontiguousarray(best).reshape(samples, -1).view(np.uint8))
        outputs = [plan.tensors[t] for t in plan.outputs]
        return [
            wanted[t.buffer].reshape(samples, *(t.file_shape or t.shape)) for t in outputs
        ], written

    def accepted(self, tensor: PlanTensor, y: Array, other: Array) -> Array:
        """Return ONNX Runtime's tensor with the executor's elements where it is near enough.

        Args:
            tensor: of the Plan.
            y: of the executor.
            other: of ONNX Runtime.
        """
        if tensor.buffer not in self._floats:
            return other
        share = CODE_SHARE if self.inexact.get(tensor.buffer) else FLOAT_SHARE
        if y.dtype == np.float32:
            finite = np.abs(y[np.isfinite(y)])
            limit = share * float(finite.max(initial=0))
        else:
            is_code = tensor.dtype != "int32" and tensor.buffer in self.inexact
            limit = share * 255 if is_code else 0.0
        with np.errstate(invalid="ignore"):
            gap = np.abs(y.astype(np.float64) - other.astype(np.float64))
        return np.where(gap <= limit, y, other)


def _view(stored: Array, tensor: PlanTensor) -> Array:
    return stored.reshape(len(stored), *tensor.shape)


def _best(plan: Plan, op: PlanOp, operands: Sequence[Array], actual: Array) -> Array:
    """Return the result of a step nearest to the one seen that its definition allows."""
    expected = np.broadcast_to(compute(plan, op, operands), actual.shape)
    if is_exact(op.params):
        return expected
    o = Operands(operands, [plan.tensors[t] for t in op.inputs], plan.tensors[op.output])
    return np.where(within_bound(op, o, actual), actual, expected)
