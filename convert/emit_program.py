"""Puts the records of a Plan in order: those of its steps, then those inside of streams."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from midge.convert.emit_records import records
from midge.convert.emit_step import Record
from midge.convert.pack import ConstData
from midge.convert.plan import Plan, PlanOp, Stream
from midge.convert.strips import STREAM_MAX, row_window
from midge.convert.target import Target
from midge.core.errors import UnsupportedError

SPLIT_MACS = 2**17  # of a step that several threads share: some microseconds for one
_FIRST = "MIDGE_STREAM_FIRST"


@dataclass(frozen=True, slots=True)
class Program:
    """The records of a model.

    Attributes:
        records: (title, record): those of the steps, then those inside of streams.
        steps: number of the former.
        done: for each PlanOp, after how many steps its output is complete.
    """

    records: tuple[tuple[str, Record], ...]
    steps: int
    done: tuple[int, ...]

    @property
    def kernels(self) -> list[str]:
        """Names of the portable kernels, sorted."""
        return sorted({record.kernel for _, record in self.records})


def program(plan: Plan, data: ConstData, target: Target) -> Program:
    """Return the records of a placed Plan.

    Args:
        plan: with offsets.
        data: receives the constants.
        target: selects the kernels.

    Raises:
        UnsupportedError: a step does not fit the record format, named.
    """
    made = [
        [_splittable(op, r, target) for r in step]
        for op, step in zip(plan.ops, records(plan, data, target), strict=True)
    ]
    streams = {stream.first: stream for stream in plan.streams}
    outer: list[tuple[str, Record]] = []
    inner: list[tuple[str, Record]] = []
    waiting: list[tuple[int, int]] = []  # place of a stream's record, and of its first inside
    done: list[int] = []
    index = 0
    while index < len(plan.ops):
        stream = streams.get(index)
        if stream is None:
            outer += [(plan.ops[index].name, record) for record in made[index]]
            done.append(len(outer))
            index += 1
            continue
        waiting.append((len(outer), len(inner)))
        outer.append((_title(plan, stream), _stream(plan, stream, data)))
        inner += [(plan.ops[i].name, replace(_only(made[i]), split=False)) for i in stream.steps]
        done += [len(outer)] * len(stream.steps)
        index = stream.steps.stop
    for at, first in waiting:
        outer[at][1].words[_FIRST] = str(len(outer) - at + first)
    return Program((*outer, *inner), len(outer), tuple(done))


def _splittable(op: PlanOp, made: Record, target: Target) -> Record:
    """Mark a record whose rows may be made at the same time, where that is worth it."""
    shared = bool(target.probe) and made.rows > 1 and op.macs >= SPLIT_MACS
    return replace(made, split=shared)


def _title(plan: Plan, stream: Stream) -> str:
    first, last = plan.ops[stream.first].name, plan.ops[stream.steps.stop - 1].name
    return f"{first} .. {last}, strip by strip" if first != last else f"{first}, strip by strip"


def _only(step: Sequence[Record]) -> Record:
    (record,) = step
    return record


def _stream(plan: Plan, stream: Stream, data: ConstData) -> Record:
    """Return the record of a stream; where its records lie is filled in later."""
    if len(stream.strips) > STREAM_MAX:
        raise UnsupportedError(
            f"{plan.name}: a stream of {len(stream.strips)} steps; the C runtime has {STREAM_MAX}."
        )
    makers = {plan.tensors[plan.ops[i].output].buffer: i - stream.first + 1 for i in stream.steps}
    links: list[int] = []
    for index, strip in zip(stream.steps, stream.strips, strict=True):
        op = plan.ops[index]
        window = row_window(plan, op)
        assert window is not None  # the planner streams no other
        before = [makers.get(plan.tensors[t].buffer, 0) for t in op.inputs]
        inside = [i for i in before if i <= index - stream.first]  # an output may lie over an input
        first, second = (*inside, 0, 0)[:2]
        links += [strip | window.stride << 16, first | second << 16, window.reach]
    return Record(
        "midge_stream",
        {
            "MIDGE_OP_DATA": str(
                data.append(f"{_title(plan, stream)}: links", np.array(links, np.uint32))
            ),
            "MIDGE_STREAM_COUNT": str(len(stream.strips)),
        },
    )
