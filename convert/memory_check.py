"""Proves a placement: replays a Plan inside one byte arena and watches every byte.

Each byte knows which buffer wrote it last. A step that reads a byte of another buffer, or one that
was never written, is an error; so is a result that differs from the executor's.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor import compute
from midge.convert.plan import ALIGNMENT, Plan, PlanTensor
from midge.core.errors import CheckError

Array = npt.NDArray[Any]
POISON = 0xA5
_NOBODY = -1


class Arena:
    """The bytes of one session.

    Args:
        plan: placed.
    """

    def __init__(self, plan: Plan) -> None:
        """Fill the arena with poison."""
        self.plan = plan
        self._bytes = np.full(plan.arena_bytes, POISON, np.uint8)
        self._owner = np.full(plan.arena_bytes, _NOBODY, np.int64)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run one sample step by step.

        Args:
            inputs: in graph order, as in the file.

        Returns:
            The outputs in graph order, as in the file.

        Raises:
            CheckError: the placement is wrong, the step and the tensor named.
        """
        plan = self.plan
        for tensor, x in zip(plan.inputs, inputs, strict=True):
            self._write(plan.tensors[tensor], np.asarray(x))
        for op in plan.ops:
            operands = [self._read(plan.tensors[t], op.name)[None] for t in op.inputs]
            self._write(plan.tensors[op.output], compute(plan, op, operands)[0])
        outputs = [plan.tensors[t] for t in plan.outputs]
        return [self._read(t, "the end").reshape(t.file_shape or t.shape) for t in outputs]

    def _place(self, tensor: PlanTensor) -> slice:
        start = self.plan.offsets[tensor.buffer]
        if start % ALIGNMENT or start + tensor.bytes > self.plan.arena_bytes:
            raise CheckError(
                f"tensor {tensor.name!r}: {tensor.bytes} bytes at offset {start} do not fit the "
                f"arena of {self.plan.arena_bytes}."
            )
        return slice(start, start + tensor.bytes)

    def _write(self, tensor: PlanTensor, value: Array) -> None:
        place = self._place(tensor)
        self._bytes[place] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self._owner[place] = tensor.buffer

    def _read(self, tensor: PlanTensor, reader: str) -> Array:
        place = self._place(tensor)
        foreign = self._owner[place] != tensor.buffer
        if foreign.any():
            raise CheckError(
                f"{reader} reads tensor {tensor.name!r}, of which {int(foreign.sum())} bytes were "
                "overwritten or never written."
            )
        return self._bytes[place].view(tensor.dtype).reshape(tensor.shape).copy()
