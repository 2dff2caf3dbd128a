"""What a stream keeps of each tensor: found by carrying out its schedule row by row.

The schedule is that of midge_stream.c: again and again the last step whose inputs are there makes
its next strip. While a strip is written, every row that this or a later strip still reads must be
intact; an elementwise step reads an element before it writes the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from midge.convert.plan import ALIGNMENT, Add, FlipSign, Mul, Plan, Table
from midge.convert.plan_float import BinaryF32, UnaryF32
from midge.convert.strips import RowWindow, row_window

# Element i of the output depends on element i of the inputs only.
ELEMENTWISE = (Add, BinaryF32, FlipSign, Mul, Table, UnaryF32)
Rows = npt.NDArray[np.int64]
_NEVER = 1 << 40  # more rows than any tensor has


@dataclass(frozen=True, slots=True)
class Overlap:
    """The output Y of a step or stream may share bytes with X, which nobody reads after it.

    Attributes:
        x: buffer.
        y: buffer.
        most: offset(Y) - offset(X) is at most this, a multiple of ALIGNMENT; or
        exact: it is this; the other one is None.
    """

    x: int
    y: int
    most: int | None = None
    exact: int | None = None

    def saved(self, x_bytes: int, y_bytes: int) -> int:
        """Return the most bytes that both can share."""
        low = min(self.most if self.most is not None else self.exact or 0, 0)
        return max(0, min(x_bytes, y_bytes + low))


@dataclass(frozen=True, slots=True)
class Kept:
    """What a stream needs.

    Attributes:
        rings: rows by tensor, of those that need not lie whole.
        whole: buffers that live inside of the stream only and lie whole.
        overlaps: between buffers that lie whole.
    """

    rings: dict[int, int]
    whole: tuple[int, ...]
    overlaps: tuple[Overlap, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that can be streamed.

    Attributes:
        window: which rows it reads.
        begins: [rows + 1] first input row that is read from output row i on; at the end all.
        x: (buffer, bytes of a row) of each input.
        y: tensor written.
        elementwise: reads what it overwrites first.
    """

    window: RowWindow
    begins: Rows
    x: tuple[tuple[int, int], ...]
    y: int
    elementwise: bool


class Streamer:
    """Simulates streams of one Plan.

    Args:
        plan: its order of steps is final.
    """

    def __init__(self, plan: Plan) -> None:
        """Look up the windows of every step."""
        self.plan = plan
        self._steps = [_step(plan, index) for index in range(len(plan.ops))]
        self._needs = cache(self._needs_of)

    def streamable(self, index: int) -> bool:
        """Tell whether a step can be part of a stream."""
        return self._steps[index] is not None

    def linked(self, steps: range) -> bool:
        """Tell whether each step reads the steps before it by the rows that they wrote."""
        plan = self.plan
        made = {plan.tensors[plan.ops[i].output].buffer: plan.ops[i].output for i in steps}
        return all(
            made.get(plan.tensors[t].buffer, t) == t for i in steps for t in plan.ops[i].inputs
        )

    def schedule(self, steps: range, strips: Sequence[int]) -> list[int]:
        """Return which step, counted from the first, makes each strip."""
        plan, maker = self.plan, {self.plan.ops[i].output: i - steps.start for i in steps}
        inputs = [plan.ops[i].inputs for i in steps]
        sources = [(maker.get(x[0], -1), maker.get(x[-1], -1)) for x in inputs]
        needs = [self._needs(i, n) for i, n in zip(steps, strips, strict=True)]
        wakes = [
            max((j for j, s in enumerate(sources) if i in s), default=i) for i in range(len(steps))
        ]
        made = [0] * len(steps)  # strips
        done = [0] * len(steps) + [
            _NEVER - 1
        ]  # rows; the last entry stands for inputs from outside
        order: list[int] = []
        i = len(steps) - 1
        while i >= 0:
            need, rows = needs[i][made[i]]
            a, b = sources[i]
            if done[a] >= need and done[b] >= need:
                made[i] += 1
                done[i] = rows
                order.append(i)
                i = wakes[i]  # of those behind, only they may have become ready
            else:
                i -= 1
        return order

    def _needs_of(self, index: int, strip: int) -> list[tuple[int, int]]:
        """Return (input rows needed, output rows there after it) of each strip, and an end."""
        window = self.step(index).window
        ends = [min(r + strip, window.rows) for r in range(0, window.rows, strip)]
        return [*((window.end(end), end) for end in ends), (_NEVER, _NEVER)]

    def step(self, index: int) -> _Step:
        """Return what is known of a streamable step."""
        step = self._steps[index]
        assert step is not None
        return step

    def keep(
        self, steps: range, strips: Sequence[int], kept: Sequence[bool], dying: Sequence[int]
    ) -> Kept:
        """Carry out a stream and return what it must keep.

        Args:
            steps: all streamable and linked.
            strips: rows that each makes at once.
            kept: whether somebody reads the step's output after the stream.
            dying: buffers from outside that nobody reads after the stream.
        """
        return _Run(self, steps, strips).keep(kept, dying)


class _Run:
    """One stream, carried out.

    Attributes:
        at: [steps] sorted places in the schedule of each step's strips.
    """

    def __init__(self, streamer: Streamer, steps: range, strips: Sequence[int]) -> None:
        self._plan = streamer.plan
        self._steps = [streamer.step(i) for i in steps]
        self._strips = strips
        order = np.array(streamer.schedule(steps, strips))
        self._at = [np.flatnonzero(order == i) for i in range(len(steps))]
        self._readers: dict[int, list[tuple[int, int]]] = {}
        for i, step in enumerate(self._steps):
            for buffer, pitch in dict(step.x).items():
                self._readers.setdefault(buffer, []).append((i, pitch))

    def _rows(self, i: int) -> tuple[Rows, Rows]:
        """Return the first row of each strip of step i, and one past its last."""
        first = np.arange(len(self._at[i])) * self._strips[i]
        return first, np.minimum(first + self._strips[i], self._steps[i].window.rows)

    def _done(self, i: int, when: Rows) -> Rows:
        """Return the rows that step i has made before these places in the schedule."""
        return np.minimum(
            np.searchsorted(self._at[i], when) * self._strips[i], self._steps[i].window.rows
        )

    def _intact(self, buffer: int, when: Rows, writer: int = -1) -> Rows:
        """Return from which byte on a buffer must be intact while these strips are written.

        Args:
            buffer: read in the stream.
            when: places in the schedule.
            writer: step that makes these strips; where it is elementwise, its own reads do not
                count: they come first.
        """
        least = np.full(len(when), _NEVER)
        for i, pitch in self._readers.get(buffer, []):
            step, done = self._steps[i], self._done(i, when)
            if i == writer and step.elementwise:
                done = self._rows(i)[1]
            least = np.minimum(least, step.begins[done] * pitch)
        return least

    def keep(self, kept: Sequence[bool], dying: Sequence[int]) -> Kept:
        """See Streamer.keep."""
        rings: dict[int, int] = {}
        inside: dict[int, int] = {}  # buffer to step that makes it
        outside: dict[int, int] = {}
        for i, step in enumerate(self._steps):
            tensor = self._plan.tensors[step.y]
            rows = step.window.rows
            needed = rows if kept[i] else min(self._ring(i), rows)
            if needed < rows:
                rings[step.y] = needed
            else:
                (outside if kept[i] else inside)[tensor.buffer] = i
        return Kept(rings, tuple(inside), tuple(self._overlaps(inside, outside, dying)))

    def _ring(self, i: int) -> int:
        """Return the rows of step i's output that must be held at once."""
        tensor = self._plan.tensors[self._steps[i].y]
        pitch = row_bytes(tensor.bytes, tensor.shape)
        first, last = self._rows(i)
        low = np.minimum(self._intact(tensor.buffer, self._at[i]) // max(pitch, 1), first)
        return int((last - low).max())

    def _overlaps(
        self, inside: dict[int, int], outside: dict[int, int], dying: Sequence[int]
    ) -> list[Overlap]:
        """Return the pairs of a buffer that dies in the stream and one that is written in it.

        One that is made inside and lies whole does so because its first row is still needed when
        its last one is written: no row of it can come to lie over an output.
        """
        found = []
        for y, writer in {**inside, **outside}.items():
            tensor = self._plan.tensors[self._steps[writer].y]
            y_pitch = row_bytes(tensor.bytes, tensor.shape)
            _, last = self._rows(writer)
            for x in [*dying, *(b for b in inside if b != y and inside[b] < writer)]:
                if x not in self._readers:
                    continue
                most = int((self._intact(x, self._at[writer], writer) - last * y_pitch).min())
                if self._steps[writer].elementwise and x in dict(self._steps[writer].x):
                    most = min(most, 0)
                most = most // ALIGNMENT * ALIGNMENT
                if most > -tensor.bytes:
                    found.append(Overlap(x, y, most=most))
        return found


def row_bytes(size: int, shape: Sequence[int]) -> int:
    """Return the bytes of a row of a tensor [1, H, W, C] of `size` bytes."""
    return size // max(shape[1], 1)


def _step(plan: Plan, index: int) -> _Step | None:
    op = plan.ops[index]
    window = row_window(plan, op) if op.inputs else None
    if window is None or window.rows < 1:
        return None
    tensors = [plan.tensors[t] for t in op.inputs]
    begins = np.array([*(window.begin(r) for r in range(window.rows)), _NEVER])
    x = tuple((t.buffer, row_bytes(t.bytes, t.shape)) for t in tensors)
    return _Step(window, begins, x, op.output, isinstance(op.params, ELEMENTWISE))
