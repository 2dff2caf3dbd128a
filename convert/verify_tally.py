"""Counts, for `verify`, the elements in which the engines differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.plan import Dequantize, Plan

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Check:
    """One tensor through all engines.

    Args:
        name: of the tensor.
        kind: "output" (as the user sees it), "tensor" (codes inside) or "step" (bytes that only
            the Plan has, such as a reordered copy).
        elements: compared.
        c_mismatches: elements that differ between executor and C, over all builds of the C;
            None where not compared.
        ort_mismatches: elements that differ between executor and ONNX Runtime, None where not.
        largest_difference: in codes, over both comparisons.
    """

    name: str
    kind: str
    elements: int = 0
    c_mismatches: int | None = None
    ort_mismatches: int | None = None
    largest_difference: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing differs."""
        return not self.c_mismatches and not self.ort_mismatches


class Tally:
    """The checks of one Plan, growing chunk by chunk.

    Attributes:
        checks: by tensor name, outputs first.
    """

    def __init__(self, plan: Plan) -> None:
        """Prepare a check for every output, quantized tensor and further step."""
        self._plan = plan
        self.checks: dict[str, Check] = {}
        self._scale: dict[str, float] = {}
        for index in plan.outputs:
            self.checks[plan.tensors[index].name] = Check(plan.tensors[index].name, "output")
        self._written = [self._names(op.output) for op in plan.ops]
        for op in plan.ops:
            if isinstance(op.params, Dequantize):
                self._scale[plan.tensors[op.output].name] = float(op.params.x.scale)

    def _names(self, output: int) -> list[str]:
        """Return the tensors of the file, or the step, whose bytes a step writes."""
        plan, written = self._plan, self._plan.tensors[output]
        outputs = {plan.tensors[t].name for t in plan.outputs}
        names = [
            t.name for t in plan.tensors if t.buffer == written.buffer and t.file_params is not None
        ]
        for name in names or [written.name]:
            if name not in outputs:
                self.checks.setdefault(name, Check(name, "tensor" if names else "step"))
        return names or [written.name]

    def begin(self, outputs: Sequence[Array], codes: dict[str, Array]) -> None:
        """Count the elements of one chunk.

        Args:
            outputs: of the executor, in graph order.
            codes: of the executor, by tensor name.
        """
        for index, y in zip(self._plan.outputs, outputs, strict=True):
            self.checks[self._plan.tensors[index].name].elements += y.size
        for name, check in self.checks.items():
            if check.kind == "tensor":
                check.elements += codes[name].size

    def c_outputs(self, outputs: Sequence[Array], seen: Sequence[Array]) -> None:
        """Compare the outputs of the executor with those of C, each [samples, ...]."""
        for index, y, other in zip(self._plan.outputs, outputs, seen, strict=True):
            check = self.checks[self._plan.tensors[index].name]
            check.c_mismatches = (check.c_mismatches or 0) + self._count(check, y, other)

    def c_steps(
        self, steps: Sequence[Array], seen: Sequence[Array], *, again: bool = False
    ) -> None:
        """Compare what every step wrote, executor and C, each [samples, bytes] uint8.

        Args:
            steps: of the executor.
            seen: of C.
            again: another build of the C computed the same chunk before.
        """
        for op, names, y, other in zip(self._plan.ops, self._written, steps, seen, strict=True):
            dtype = self._plan.tensors[op.output].dtype
            for name in names:
                check = self.checks[name]
                if check.kind == "output":
                    continue
                differ = self._count(check, y.view(dtype), other.view(dtype))
                check.c_mismatches = (check.c_mismatches or 0) + differ
                if check.kind == "step" and not again:
                    check.elements += y.view(dtype).size

    def ort(self, name: str, y: Array, seen: Array) -> None:
        """Compare one tensor of the executor with ONNX Runtime's."""
        check = self.checks[name]
        check.ort_mismatches = (check.ort_mismatches or 0) + self._count(check, y, seen)

    def _count(self, check: Check, y: Array, seen: Array) -> int:
        """Return the number of elements whose bits differ, and remember the largest difference."""
        if y.shape != seen.shape or y.dtype != seen.dtype:
            raise AssertionError(
                f"{check.name}: {y.dtype}{y.shape} against {seen.dtype}{seen.shape}"
            )
        bits = f"u{y.dtype.itemsize}"
        differ = np.ascontiguousarray(y).view(bits) != np.ascontiguousarray(seen).view(bits)
        count = int(differ.sum())
        if count:
            gap = np.abs(y[differ].astype(np.float64) - seen[differ].astype(np.float64))
            codes = round(float(gap.max()) / self._scale.get(check.name, 1.0))
            check.largest_difference = max(check.largest_difference, codes)
        return count
