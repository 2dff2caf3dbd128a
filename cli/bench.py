"""The C of a model against other engines: one race, interleaved, with the answers compared."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.bench_host import CHUNKS, Timer, Timing, interleave
from midge.convert.bench_peers import peer
from midge.convert.bench_program import Program, build_program, levels, running
from midge.convert.emit import EmitReport, emit
from midge.convert.emit_c import io_params
from midge.convert.executor import Executor
from midge.convert.plan import Plan, PlanTensor
from midge.convert.target import Target
from midge.core.errors import CheckError, ToolError

Array = npt.NDArray[Any]
NAME = "network"
PAUSE_S = 0.01  # threads of an engine may look for work for a while after its chunk


@dataclass(frozen=True, slots=True)
class CEntry:
    """One instruction set of a compiled model.

    Args:
        label: of the row.
        program: of bench_program.build_program.
        level: as for midge_select.
        threads: of midge_run_parallel.
    """

    label: str
    program: Path
    level: int | None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """A model in another engine.

    Args:
        label: of the row.
        engine: a key of bench_peers.ENGINES.
        path: of the file.
        rival: whether its time is one that the ratios are taken of.
        judged: whether its answers are compared: it computes the same function.
        threads: of the engine.
        inputs: for every input of its file, where that has more than the timed model.
    """

    label: str
    engine: str
    path: Path
    rival: bool = True
    judged: bool = True
    threads: int = 1
    inputs: Sequence[Array] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """How one contender did.

    Args:
        timing: of one inference.
        ratio: time in terms of the fastest rival, None where there is none.
        difference: largest difference of an output from the integer executor's, in terms of the
            range of that output; None where another model runs.
        version: of a peer.
    """

    timing: Timing
    ratio: float | None
    difference: float | None
    version: str = ""


@dataclass(frozen=True, slots=True)
class Race:
    """One interleaved run.

    Args:
        rows: by label.
        load: of the machine during the minute before, at the beginning and at the end.
        notices: peers that did not take part, and why.
    """

    rows: dict[str, Row]
    load: tuple[float, float]
    notices: tuple[str, ...]

    @property
    def clock(self) -> str:
        """WALL or CPU, the same for all."""
        return next(iter(self.rows.values())).timing.clock

    def to_json(self) -> dict[str, Any]:
        """Return the race as plain data."""
        timings = {
            label: {
                "median_us": row.timing.median_us,
                "p10_us": row.timing.p10_us,
                "p90_us": row.timing.p90_us,
                "bursts": row.timing.bursts,
                "ratio": row.ratio,
                "difference": row.difference,
                "version": row.version,
            }
            for label, row in self.rows.items()
        }
        return {
            "clock": self.clock,
            "load": list(self.load),
            "notices": list(self.notices),
            "timings": timings,
        }


def c_entries(
    plan: Plan,
    folder: Path,
    target: Target,
    kind: str,
    *,
    every: bool = True,
    note: str = "",
    threads: int = 1,
) -> tuple[list[CEntry], EmitReport]:
    """Write and compile a placed Plan.

    Args:
        plan: placed for `target`.
        folder: of the C.
        target: of the C; it must run here.
        kind: "int8" or "float32", for the labels.
        every: take every instruction set that this processor has, not only the best.
        note: what is special, for the labels.
        threads: of midge_run_parallel.

    Returns:
        The contenders, the best instruction set first, and what was written.
    """
    written = emit(plan, folder, NAME, target=target)
    program = build_program(folder, NAME)
    found = levels(program, len(target.levels))[::-1]
    entries = []
    for level in found if every else found[:1]:
        name = f"C {target.levels[level]}" if target.probe else "C"
        label = ", ".join(part for part in (name, kind, note) if part)
        entries.append(CEntry(label, program, level, threads))
    return entries, written


def race(
    plan: Plan,
    sample: Sequence[Array],
    programs: Sequence[CEntry],
    peers: Sequence[PeerEntry],
    *,
    python: str,
    chunks: int = CHUNKS,
    progress: Callable[[int], None] = lambda done: None,
) -> Race:
    """Time every contender in one interleaved run and compare the answers.

    Args:
        plan: what the integer executor runs.
        sample: one sample of every input as the file has it, in graph order.
        programs: contenders in C.
        peers: other engines; one that refuses its model is left out with a notice.
        python: interpreter of the peers.
        chunks: for each contender.
        progress: called with the number of rounds done.

    Raises:
        CheckError: codes that the C computed differ from the integer executor's.
    """
    expected = Executor(plan).run(list(sample))
    with ExitStack() as stack:
        ready = _Field(plan, sample, expected, stack, python)
        for program in programs:
            ready.add_program(program)
        for entry in peers:
            ready.add_peer(entry)
        before = os.getloadavg()[0]
        alone = {e.threads for e in programs} | {p.threads for p in peers} == {1}
        timings = interleave(
            ready.timers,
            chunks=chunks,
            pause_s=0 if alone else PAUSE_S,
            cpu_time=alone,
            progress=progress,
        )
        load = before, os.getloadavg()[0]
    rivals = [timings[p.label].median_us for p in peers if p.rival and p.label in timings]
    rows = {
        label: Row(
            timing,
            timing.median_us / min(rivals) if rivals else None,
            ready.differences[label],
            ready.versions.get(label, ""),
        )
        for label, timing in timings.items()
    }
    return Race(rows, load, tuple(ready.notices))


@dataclass
class _Field:
    """The contenders that are ready to run, and what they answered."""

    plan: Plan
    sample: Sequence[Array]
    expected: Sequence[Array]
    stack: ExitStack
    python: str
    timers: dict[str, Timer] = field(default_factory=dict)
    differences: dict[str, float | None] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    def add_program(self, entry: CEntry) -> None:
        """Start a program and hold its answer against the executor's."""
        raw = b"".join(np.ascontiguousarray(x).tobytes() for x in self.sample)
        run = self.stack.enter_context(
            running(entry.program, raw, level=entry.level, threads=entry.threads)
        )
        self.timers[entry.label] = run.time
        self.differences[entry.label] = _check(self.plan, run, self.expected, entry.label)

    def add_peer(self, entry: PeerEntry) -> None:
        """Start an engine; one that refuses its model is left out with a notice."""
        params = [io_params(self.plan.tensors[i]) for i in self.plan.inputs]
        how: dict[str, Any] = {"python": self.python, "threads": entry.threads}
        try:
            opened = self.stack.enter_context(
                peer(entry.engine, entry.path, entry.inputs or self.sample, params, **how)
            )
            outputs = opened.outputs()
        except ToolError as error:
            self.notices.append(f"{entry.label} is left out: {error}")
            return
        self.timers[entry.label], self.versions[entry.label] = opened.time, opened.version
        self.differences[entry.label] = (
            difference(self.plan, outputs, self.expected) if entry.judged else None
        )


def _check(plan: Plan, run: Program, expected: Sequence[Array], label: str) -> float:
    """Return the difference of a C program's outputs; codes must be equal.

    Raises:
        CheckError: they are not.
    """
    raw, start, outputs = run.outputs(), 0, []
    for index, want in zip(plan.outputs, expected, strict=True):
        end = start + plan.tensors[index].bytes
        outputs.append(np.frombuffer(raw[start:end], want.dtype).reshape(want.shape))
        start = end
        differ = int((outputs[-1] != want).sum())
        if want.dtype.kind in "iu" and differ:
            raise CheckError(
                f"{label}: {differ} of {want.size} elements of output "
                f"{plan.tensors[index].name!r} differ from the integer executor."
            )
    return difference(plan, outputs, expected)


def difference(plan: Plan, outputs: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference of real values, in terms of the range of the output.

    Args:
        plan: whose outputs they are.
        outputs: codes as the file has them, or real values (float32); images NCHW or NHWC.
        expected: as the file has them.
    """
    worst = 0.0
    for index, got, want in zip(plan.outputs, outputs, expected, strict=True):
        tensor = plan.tensors[index]
        real, reference = _real(tensor, got), _real(tensor, want)
        if real.shape != reference.shape and real.ndim == 4:
            real = real.transpose(0, 3, 1, 2)
        span = float(reference.max() - reference.min()) or float(np.abs(reference).max()) or 1.0
        gap = float(np.abs(real.reshape(reference.shape) - reference).max())
        worst = max(worst, gap / span)
    return worst


def _real(tensor: PlanTensor, values: Array) -> Array:
    """Return the real values of codes, and of real values themselves."""
    params = io_params(tensor)
    if params is None or values.dtype.kind == "f":
        return values.astype(np.float64)
    return (values.astype(np.float64) - params.zero_point) * float(params.scale)
