"""The parts of a program that are carried out one after the other: plain steps and streams."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from midge.convert.memory_rows import ELEMENTWISE, Overlap, Streamer, row_bytes
from midge.convert.plan import ALIGNMENT, Concat, Plan
from midge.convert.strips import STREAM_MAX


@dataclass(frozen=True, slots=True)
class Segment:
    """A plain step or a stream.

    Attributes:
        steps: indices of the steps.
        strips: rows that each step makes at once, empty for a plain step.
        rings: rows by tensor, of those that need not lie whole.
        overlaps: buffers that may share bytes.
        scratch: bytes.
        bytes: with less no placement can carry it out.
        apart: bytes that it needs where nothing overlaps.
        held: bytes of rings and of what else lives in the stream only.
        creep: bytes by which the output must lie below the input where they overlap.
        rough: not carried out yet; bytes, apart, held and creep are at least so many.
    """

    steps: range
    strips: tuple[int, ...]
    rings: dict[int, int]
    overlaps: tuple[Overlap, ...]
    scratch: int
    bytes: int
    apart: int
    held: int = 0
    creep: int = 0
    rough: bool = False


class Segments:
    """Makes the segments of a Plan.

    Args:
        plan: its order of steps is final.
    """

    def __init__(self, plan: Plan) -> None:
        """Look up who lives when."""
        self.plan = plan
        self.lives = lifetimes(plan)
        self._first, self._last = (np.array(x) for x in zip(*self.lives, strict=True))
        self._sizes = np.array(plan.buffer_bytes)
        self._streamer = Streamer(plan)
        self._windows = [self._window_bytes(i) for i in range(len(plan.ops))]
        self.plain = cache(self._plain)
        self.stream = cache(self._stream)

    def longest(self, stop: int) -> int:
        """Return the first step of the longest stream that ends before step `stop`."""
        first = stop
        while (
            first > max(0, stop - STREAM_MAX)
            and self._streamer.streamable(first - 1)
            and self._streamer.linked(range(first - 1, stop))
        ):
            first -= 1
        return first

    def least(self) -> int:
        """Return the bytes of all inputs or all outputs, whichever are more."""
        before = int(self._sizes[self._first < 0].sum())
        return max(before, int(self._sizes[self._last >= len(self.plan.ops)].sum()))

    def _plain(self, index: int) -> Segment:
        """Return one step by itself: whole tensors, the order of rows is the kernel's own."""
        steps = range(index, index + 1)
        overlaps = tuple(exact_overlaps(self.plan, index, self.lives))
        apart, least = self._bytes(steps, {}, overlaps)
        scratch = self.scratch(steps)
        return Segment(steps, (), {}, overlaps, scratch, least + scratch, apart + scratch)

    def _stream(self, steps: range, strips: tuple[int, ...]) -> Segment:
        """Return a stream of these steps, which `longest` allows."""
        plan, lives = self.plan, self.lives
        made = [plan.tensors[plan.ops[i].output].buffer for i in steps]
        read = {plan.tensors[t].buffer for i in steps for t in plan.ops[i].inputs} - set(made)
        dying = [b for b in sorted(read) if lives[b][1] < steps.stop]
        kept = [lives[b][1] >= steps.stop for b in made]
        found = self._streamer.keep(steps, strips, kept, dying)
        rings = {
            plan.tensors[t].buffer: rows * row_bytes(plan.tensors[t].bytes, plan.tensors[t].shape)
            for t, rows in found.rings.items()
        }
        apart, least = self._bytes(steps, rings, found.overlaps)
        scratch = self.scratch(steps)
        held = sum(rings.values()) + sum(plan.buffer_bytes[b] for b in found.whole)
        creep = sum(max(0, -(o.most or 0)) for o in found.overlaps)
        return Segment(
            steps,
            strips,
            found.rings,
            found.overlaps,
            scratch,
            least + scratch,
            apart + scratch,
            held,
            creep,
        )

    def outline(self, steps: range) -> Segment:
        """Return a stream with strips of one row, of which only bounds are known.

        What it reads may lie under what it writes, the smaller under the larger.
        """
        inside = [
            n
            for i, (last, n) in zip(steps, (self._windows[i] for i in steps), strict=True)
            if last < steps.stop
        ]
        first, last = self._first, self._last
        before, after = first < steps.start, last >= steps.stop
        through = int(self._sizes[before & after].sum())
        read = int(self._sizes[before & ~after & (last >= steps.start)].sum())
        written = int(self._sizes[~before & after & (first < steps.stop)].sum())
        held, scratch = sum(inside), self.scratch(steps)
        least = through + max(read, written) + held + scratch
        ones = (1,) * len(steps)
        return Segment(steps, ones, {}, (), scratch, least, least, held, rough=True)

    def _window_bytes(self, index: int) -> tuple[int, int]:
        """Return (last step that reads the output, bytes of it that a ring has at least).

        A ring before one reader that waits for nothing else holds its largest window; where that
        is all rows, the tensor lies whole and may overlap others.
        """
        plan, tensor = self.plan, self.plan.tensors[self.plan.ops[index].output]
        last = self.lives[tensor.buffer][1]
        readers = [
            i
            for i, op in enumerate(plan.ops)
            if any(plan.tensors[t].buffer == tensor.buffer for t in op.inputs)
        ]
        if len(readers) != 1 or len(plan.ops[readers[0]].inputs) != 1:
            return last, 0
        if not self._streamer.streamable(readers[0]):
            return last, 0
        window = self._streamer.step(readers[0]).window
        rows = max(window.end(r + 1) - window.begin(r) for r in range(window.rows))
        held = rows * row_bytes(tensor.bytes, tensor.shape) if rows < window.x_rows else 0
        return last, held

    def scratch(self, steps: range) -> int:
        """Return the bytes of scratch: one step at a time needs it."""
        return (
            max((self.plan.scratch_bytes[i] for i in steps), default=0)
            if (self.plan.scratch_bytes)
            else 0
        )

    def _bytes(
        self, steps: range, rings: dict[int, int], overlaps: Sequence[Overlap]
    ) -> tuple[int, int]:
        """Return the bytes alive in a segment without and with every overlap."""
        alive = (self._first < steps.stop) & (self._last >= steps.start)
        sizes = self._sizes
        total = int(sizes[alive].sum()) + sum(n - int(sizes[b]) for b, n in rings.items())
        by_x: dict[int, int] = {}
        by_y: dict[int, int] = {}
        for o in overlaps:
            saved = o.saved(int(sizes[o.x]), int(sizes[o.y]))
            by_x[o.x] = by_x.get(o.x, 0) + saved
            by_y[o.y] = by_y.get(o.y, 0) + saved
        # A byte is shared by two buffers at most, and the inputs do not share any.
        saved = min(sum(min(int(sizes[b]), n) for b, n in by.items()) for by in (by_x, by_y))
        return total, total - saved


def lifetimes(plan: Plan) -> list[tuple[int, int]]:
    """Return (first, last) step of each buffer; -1 is before the first step."""
    steps: list[list[int]] = [[] for _ in plan.buffer_bytes]
    for tensor in plan.inputs:
        steps[plan.tensors[tensor].buffer].append(-1)
    for index, op in enumerate(plan.ops):
        for tensor in (*op.inputs, op.output):
            steps[plan.tensors[tensor].buffer].append(index)
    for tensor in plan.outputs:
        steps[plan.tensors[tensor].buffer].append(len(plan.ops))
    return [(min(s, default=0), max(s, default=0)) for s in steps]


def exact_overlaps(plan: Plan, index: int, lives: Sequence[tuple[int, int]]) -> list[Overlap]:
    """Return where the output of a plain step may lie on its inputs.

    An elementwise step may write over an input of the same size that it reads last. A part of a
    concatenation may lie where it is copied to.
    """
    op = plan.ops[index]
    y = plan.tensors[op.output]
    found = []
    start = 0
    joined = isinstance(op.params, Concat) and np.prod(y.shape[: op.params.axis]) == 1
    for tensor in op.inputs:
        x = plan.tensors[tensor]
        size = plan.buffer_bytes[x.buffer]
        once = sum(plan.tensors[t].buffer == x.buffer for t in op.inputs) == 1
        dying = lives[x.buffer][1] == index and lives[y.buffer][0] == index
        if isinstance(op.params, ELEMENTWISE):
            if dying and size == plan.buffer_bytes[y.buffer]:
                found.append(Overlap(x.buffer, y.buffer, exact=0))
        elif joined:
            if dying and once and start % ALIGNMENT == 0 and size == x.bytes:
                found.append(Overlap(x.buffer, y.buffer, exact=-start))
            start += x.bytes
    return found
