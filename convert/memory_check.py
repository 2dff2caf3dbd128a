"""Proves a placement: replays a Plan inside one byte arena and watches every byte.

Each byte knows which byte of which buffer it holds. What a step reads must be there, rows of a
stream one by one; what it wrote must still be there when it is read, and the outputs must be the
executor's. A stream follows midge_stream.c to the letter. Scratch is poisoned around every use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor import compute
from midge.convert.memory_rows import ELEMENTWISE, row_bytes
from midge.convert.plan import ALIGNMENT, Concat, Plan, PlanOp, PlanTensor, Stream
from midge.convert.strips import RowWindow, row_window
from midge.core.errors import CheckError

Array = npt.NDArray[Any]
POISON = 0xA5
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class _Part:
    """Some bytes of a tensor.

    Attributes:
        tensor: of the Plan.
        inside: [n] place of each byte in the tensor.
        at: [n] its place in the arena.
    """

    tensor: PlanTensor
    inside: Array
    at: Array


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
        # A byte's number: those of a buffer follow each other, and no two buffers share one.
        self._numbers = np.cumsum([0, *plan.buffer_bytes])

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
        for index, x in zip(plan.inputs, inputs, strict=True):
            tensor = plan.tensors[index]
            self._write(self._whole(tensor), np.ascontiguousarray(x).reshape(-1).view(np.uint8))
        streams = {stream.first: stream for stream in plan.streams}
        index = 0
        while index < len(plan.ops):
            stream = streams.get(index)
            if stream is None:
                self._step(index)
            else:
                self._stream(stream)
            index = stream.steps.stop if stream else index + 1
        outputs = [plan.tensors[t] for t in plan.outputs]
        return [
            self._read(self._whole(t), "the end").view(t.dtype).reshape(t.file_shape or t.shape)
            for t in outputs
        ]

    def _step(self, index: int) -> None:
        """Carry out a step that makes its whole output in an order of its own."""
        plan, op = self.plan, self.plan.ops[index]
        parts = [self._whole(plan.tensors[t]) for t in op.inputs]
        self._poison(index)
        operands = [
            self._read(p, op.name).view(p.tensor.dtype).reshape(1, *p.tensor.shape) for p in parts
        ]
        y = self._whole(plan.tensors[op.output])
        value = np.ascontiguousarray(compute(plan, op, operands)[0])
        self._replace(op, parts, y, value.reshape(-1).view(np.uint8), whole=True)
        self._poison(index)

    def _stream(self, stream: Stream) -> None:
        """Carry out a stream: rows move as they would, their values come from whole tensors."""
        plan, truth = self.plan, self._truth(stream)
        for index, first, last in strips(plan, stream):
            op, window = plan.ops[index], _window(plan, plan.ops[index])
            rows = slice(window.begin(first), window.end(last))
            parts = [self._rows(t, rows.start, rows.stop) for t in op.inputs]
            self._poison(index)
            for part in parts:
                found, right = self._read(part, op.name), truth[part.tensor.buffer][part.inside]
                if not np.array_equal(found, right):
                    raise CheckError(f"{op.name} reads wrong bytes of {part.tensor.name!r}.")
            y = self._rows(op.output, first, last)
            self._replace(op, parts, y, truth[y.tensor.buffer][y.inside], whole=False)
            self._poison(index)

    def _truth(self, stream: Stream) -> dict[int, Array]:
        """Return the bytes of every buffer of a stream as whole tensors would have them."""
        plan = self.plan
        known: dict[int, Array] = {}
        for index in stream.steps:
            op, operands = plan.ops[index], []
            for t in op.inputs:
                x = plan.tensors[t]
                if x.buffer not in known:
                    known[x.buffer] = self._read(self._whole(x), op.name)
                operands.append(known[x.buffer].view(x.dtype).reshape(1, *x.shape))
            y = np.ascontiguousarray(compute(plan, op, operands)[0])
            known[plan.tensors[op.output].buffer] = y.reshape(-1).view(np.uint8)
        return known

    def _whole(self, tensor: PlanTensor) -> _Part:
        inside = np.arange(tensor.bytes)
        return self._placed(tensor, inside, self.plan.offsets[tensor.buffer] + inside)

    def _rows(self, index: int, first: int, last: int) -> _Part:
        """Return rows first..last - 1 of a tensor, which may lie in a ring."""
        tensor = self.plan.tensors[index]
        pitch = row_bytes(tensor.bytes, tensor.shape)
        rows = np.arange(first, last)[:, None]
        ring = self.plan.rings.get(index, tensor.shape[1])
        across = np.arange(pitch)
        at = self.plan.offsets[tensor.buffer] + rows % ring * pitch + across
        return self._placed(tensor, (rows * pitch + across).reshape(-1), at.reshape(-1))

    def _placed(self, tensor: PlanTensor, inside: Array, at: Array) -> _Part:
        start = self.plan.offsets[tensor.buffer]
        if start % ALIGNMENT or at.max(initial=start) > self.plan.arena_bytes - min(len(at), 1):
            raise CheckError(
                f"tensor {tensor.name!r}: {tensor.bytes} bytes at offset {start} do not fit the "
                f"arena of {self.plan.arena_bytes}."
            )
        return _Part(tensor, inside, at)

    def _write(self, part: _Part, value: Array) -> None:
        self._bytes[part.at] = value
        self._owner[part.at] = self._numbers[part.tensor.buffer] + part.inside

    def _read(self, part: _Part, reader: str) -> Array:
        foreign = self._owner[part.at] != self._numbers[part.tensor.buffer] + part.inside
        if foreign.any():
            raise CheckError(
                f"{reader} reads tensor {part.tensor.name!r}, of which {int(foreign.sum())} bytes "
                "were overwritten or never written."
            )
        return self._bytes[part.at]

    def _replace(
        self, op: PlanOp, parts: Sequence[_Part], y: _Part, value: Array, *, whole: bool
    ) -> None:
        """Write an output; what it is made of must survive that, unless it was read before."""
        self._write(y, value)
        for index, part in enumerate(parts):
            if isinstance(op.params, Concat):
                start = sum(p.tensor.bytes for p in parts[:index])
                if np.array_equal(part.at, self._whole(y.tensor).at[start : start + len(part.at)]):
                    continue  # copied onto itself
            shared = bool(np.isin(part.at, y.at).any())
            if isinstance(op.params, ELEMENTWISE) and len(part.at) == len(y.at):
                # Element i is read before it is written; a whole step may go in any order.
                late = (y.at != part.at) if whole else (y.at > part.at)
                shared = shared and bool(late.any())
            if shared:
                raise CheckError(
                    f"{op.name} writes {y.tensor.name!r} over what it still reads of "
                    f"{part.tensor.name!r}: those bytes are overwritten too early."
                )

    def _poison(self, index: int) -> None:
        """Let a step leave rubbish in its scratch."""
        plan = self.plan
        size = plan.scratch_bytes[index] if plan.scratch_bytes else 0
        if size:
            start = plan.scratch[index]
            if start % ALIGNMENT or start + size > plan.arena_bytes:
                raise CheckError(
                    f"{plan.ops[index].name}: {size} bytes of scratch at offset {start} do not fit "
                    f"the arena of {plan.arena_bytes}."
                )
            self._bytes[start : start + size] = POISON
            self._owner[start : start + size] = _NOBODY


def strips(plan: Plan, stream: Stream) -> Iterator[tuple[int, int, int]]:
    """Yield (step, first row, one past the last row) as midge_stream.c carries them out."""
    steps = list(stream.steps)
    makers = {plan.ops[i].output: i for i in steps}
    done = dict.fromkeys(steps, 0)
    i = len(steps)
    while i > 0:
        i -= 1
        step = steps[i]
        window = _window(plan, plan.ops[step])
        end = min(done[step] + stream.strips[i], window.rows)
        sources = [makers[t] for t in plan.ops[step].inputs if t in makers]
        if done[step] == window.rows or any(done[s] < window.end(end) for s in sources):
            continue
        first, done[step] = done[step], end
        yield step, first, end
        i = len(steps)


def _window(plan: Plan, op: PlanOp) -> RowWindow:
    window = row_window(plan, op)
    if window is None:
        raise CheckError(f"{op.name} ({type(op.params).__name__}) cannot be made row by row.")
    return window
