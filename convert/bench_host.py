"""Times candidates beside one another on this machine, in interleaved chunks.

Chunks of every candidate alternate within one run and another one begins each round, so that a
change of clock frequency or a busy neighbour meets all of them alike. A chunk is divided in bursts
far shorter than a time slice of the scheduler: a burst that was not interrupted is a clean sample,
and the median over all bursts is what counts.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as rt

Array = npt.NDArray[Any]

CHUNK_S = 0.025  # short against a change of frequency
BURST_S = 0.0003  # long against a clock's resolution, short against a time slice
CHUNKS = 40
WARM_UP_CHUNKS = 1
INTERRUPTED = 1.05  # times the CPU time: what is slower by the wall clock was not alone
WALL, CPU = "wall", "CPU"


@dataclass(slots=True)
class Laps:
    """Microseconds of one inference in each burst, by the wall clock and of CPU time."""

    wall_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def extend(self, other: "Laps") -> None:
        """Append the bursts of another chunk."""
        self.wall_us += other.wall_us
        self.cpu_us += other.cpu_us


Timer = Callable[[int, int], Laps]  # number of bursts, inferences in each


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one inference, over the bursts of one candidate.

    Args:
        median_us: the middle burst.
        p10_us: the 10th percentile.
        p90_us: the 90th percentile.
        bursts: how many were timed.
        calls: inferences in each.
        clock: WALL, or CPU where some candidate of this run was interrupted all the time.
    """

    median_us: float
    p10_us: float
    p90_us: float
    bursts: int
    calls: int
    clock: str = WALL


def function_timer(function: Callable[[], object]) -> Timer:
    """Return a timer of a Python function."""

    def timer(bursts: int, calls: int) -> Laps:
        laps, clock, used = Laps(), time.perf_counter_ns, time.process_time_ns
        for _ in range(bursts):
            used_before, before = used(), clock()
            for _ in range(calls):
                function()
            laps.wall_us.append((clock() - before) / calls / 1e3)
            laps.cpu_us.append((used() - used_before) / calls / 1e3)
        return laps

    return timer


def ort_timer(session: rt.InferenceSession, feeds: Mapping[str, Array]) -> Timer:
    """Return a timer of a session whose inputs and outputs are bound once, outside the loop."""
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(value))
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return function_timer(lambda: session.run_with_iobinding(binding))


def interleave(
    timers: Mapping[str, Timer],
    *,
    chunks: int = CHUNKS,
    chunk_s: float = CHUNK_S,
    pause_s: float = 0.0,
    cpu_time: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Timing]:
    """Time every candidate in alternating chunks of equal length.

    Args:
        timers: candidates by name.
        chunks: timed for each, after a warm-up.
        chunk_s: seconds that a chunk should take.
        pause_s: seconds between two chunks.
        cpu_time: compare CPU time, for all candidates alike, where one of them was interrupted in
            most of its bursts. Only right where each computes in one thread.
        progress: called with the number of rounds done.
    """
    sizes = {name: _size(timer, chunk_s) for name, timer in timers.items()}
    spent = {name: Laps() for name in timers}
    order = list(timers)
    for index in range(WARM_UP_CHUNKS + chunks):
        first = index % len(order) if order else 0
        for name in order[first:] + order[:first]:
            time.sleep(pause_s)
            laps = timers[name](*sizes[name])
            if index >= WARM_UP_CHUNKS:
                spent[name].extend(laps)
        progress(index)
    clock = CPU if cpu_time and any(map(_interrupted, spent.values())) else WALL
    return {name: _timing(laps, sizes[name][1], clock) for name, laps in spent.items()}


def _size(timer: Timer, seconds: float) -> tuple[int, int]:
    """Return the bursts of a chunk of about `seconds`, and the calls of a burst."""
    calls = 1
    while (us := min(timer(3, calls).wall_us)) * calls < BURST_S * 1e6 / 8:
        calls *= 2
    calls = max(1, round(BURST_S * 1e6 / us))
    return max(1, round(seconds * 1e6 / (us * calls))), calls


def _interrupted(laps: Laps) -> bool:
    return float(np.median(laps.wall_us)) > INTERRUPTED * float(np.median(laps.cpu_us))


def _timing(laps: Laps, calls: int, clock: str) -> Timing:
    us = laps.cpu_us if clock == CPU else laps.wall_us
    p10, median, p90 = (float(v) for v in np.percentile(us, [10, 50, 90]))
    return Timing(median, p10, p90, len(us), calls, clock)
