"""Times the emitted C on this machine and ONNX Runtime beside it, in interleaved chunks.

Chunks of every candidate alternate within one run, so that a change of clock frequency or a busy
neighbour meets all of them alike; the median over chunks is what counts.
"""

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as rt

from midge.convert.build import link_flags, model_sources
from midge.core.errors import ToolError
from midge.core.native import Compiler, compile_program

Array = npt.NDArray[Any]
Timer = Callable[[int], float]  # number of runs -> seconds they took

CHUNK_S = 0.02  # long against a clock's resolution, short against a change of frequency
CHUNKS = 31
WARM_UP_CHUNKS = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of one inference, over the chunks of one candidate.

    Args:
        median_us: the middle chunk.
        p10_us: the 10th percentile.
        p90_us: the 90th percentile.
        chunks: how many were timed.
        runs: inferences in each.
    """

    median_us: float
    p10_us: float
    p90_us: float
    chunks: int
    runs: int


def bench_program(name: str) -> str:
    """Return the text of NAME_bench.c: reads numbers of runs, answers with nanoseconds."""
    upper = name.upper()
    return f"""/* {name}_bench.c - times "{name}": {name}_bench SAMPLE < counts > nanoseconds */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "{name}.h"

static {name}_network net;
static unsigned char sample[{upper}_ARENA_BYTES];

static int run_once(void) {{
    const unsigned char *from = sample;
    for (uint32_t i = 0; i < {upper}_INPUT_COUNT; ++i) {{
        const size_t bytes = midge_info(&{name}_model, i)->bytes;
        memcpy(midge_input(&net.session, i), from, bytes);
        from += bytes;
    }}
    return midge_run(&net.session) == MIDGE_OK;
}}

int main(int argc, char **argv) {{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || {name}_open(&net) != MIDGE_OK)
        return 1;
    if (fread(sample, 1, sizeof sample, file) == 0)
        return 1;
    unsigned long runs;
    while (scanf("%lu", &runs) == 1) {{
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (unsigned long i = 0; i < runs; ++i)
            if (!run_once())
                return 1;
        clock_gettime(CLOCK_MONOTONIC, &end);
        const double s = (double)(end.tv_sec - begin.tv_sec);
        printf("%.0f\\n", s * 1e9 + (double)(end.tv_nsec - begin.tv_nsec));
        fflush(stdout);
    }}
    return 0;
}}
"""


@contextmanager
def c_timer(
    directory: Path,
    name: str,
    sample: bytes,
    *,
    compiler: Compiler | None = None,
    flags: Sequence[str] = ("-O2",),
) -> Iterator[Timer]:
    """Compile the emitted folder with a timing loop and keep the program waiting for work.

    Args:
        directory: written by emit.emit.
        name: of the model.
        sample: raw elements of every input in graph order, copied in before each run.
        compiler: default: the first one found.
        flags: of the compiler.

    Raises:
        InputError: a file or a compiler is missing.
        ToolError: the compiler or the program failed.
    """
    with tempfile.TemporaryDirectory(prefix="midge-bench-") as folder:
        main, data = Path(folder) / f"{name}_bench.c", Path(folder) / "sample"
        main.write_text(bench_program(name), encoding="utf-8")
        data.write_bytes(sample)
        sources = [*model_sources(directory, name), main]
        program = compile_program(
            sources,
            flags=[*flags, *link_flags(sources)],
            include=[Path(directory)],
            compiler=compiler,
        )
        process = subprocess.Popen(
            [str(program), str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield lambda runs: _ask(process, runs)
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # what a dead program has not read is lost on purpose
                    stream.close()  # type: ignore[union-attr]  # both are pipes


def _ask(process: "subprocess.Popen[str]", runs: int) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{runs}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        raise ToolError(f"the timing program ended with status {process.wait()}.")
    return float(answer) * 1e-9


def ort_timer(session: rt.InferenceSession, feeds: Mapping[str, Array]) -> Timer:
    """Return a timer of a session whose inputs and outputs are bound once, outside the loop."""
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(value))
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def timer(runs: int) -> float:
        begin = time.perf_counter()
        for _ in range(runs):
            session.run_with_iobinding(binding)
        return time.perf_counter() - begin

    return timer


def interleave(
    timers: Mapping[str, Timer], *, chunks: int = CHUNKS, chunk_s: float = CHUNK_S
) -> dict[str, Timing]:
    """Time every candidate in alternating chunks of equal length.

    Args:
        timers: candidates by name.
        chunks: timed for each, after a warm-up.
        chunk_s: seconds that a chunk should take.
    """
    runs = {name: _runs_for(timer, chunk_s) for name, timer in timers.items()}
    spent: dict[str, list[float]] = {name: [] for name in timers}
    for index in range(WARM_UP_CHUNKS + chunks):
        for name, timer in timers.items():
            seconds = timer(runs[name])
            if index >= WARM_UP_CHUNKS:
                spent[name].append(seconds / runs[name] * 1e6)
    return {name: _timing(us, runs[name]) for name, us in spent.items()}


def _runs_for(timer: Timer, seconds: float) -> int:
    """Return how many runs take about `seconds`."""
    runs = 1
    while (spent := timer(runs)) < seconds / 4:
        runs *= 2
    return max(1, round(runs * seconds / spent))


def _timing(us: list[float], runs: int) -> Timing:
    p10, median, p90 = (float(v) for v in np.percentile(us, [10, 50, 90]))
    return Timing(median, p10, p90, len(us), runs)
