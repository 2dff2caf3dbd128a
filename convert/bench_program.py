"""The compiled C of a model as a program that waits for work: runs, single steps, outputs."""

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.bench_host import Laps
from midge.convert.build import NO_LEVEL, link_flags, model_sources
from midge.core.errors import InputError, ToolError
from midge.core.native import Compiler, compile_program

Array = npt.NDArray[Any]
FLAGS = ("-O3",)
POOL = "midge_pthreads"

_PROGRAM = Template(
    """/* ${name}_bench.c - times "${name}": ${name}_bench SAMPLE [LEVEL [THREADS]]
 *
 * LEVEL is an argument of midge_select, or - for the best. Commands on stdin:
 *     t BURSTS CALLS   runs; answers wall and CPU nanoseconds of each burst
 *     s RUNS           runs step by step; answers the nanoseconds of each step, run after run
 *     o FILE           runs once and writes the outputs to FILE; answers an empty line
 * The input is copied in before every run, which may lay its results over it.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "${name}.h"
#include "midge_model.h"
${headers}
static ${name}_network net;
static unsigned char sample[${upper}_ARENA_BYTES];
${state}
static unsigned long long now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

static void load(void) {
    const unsigned char *from = sample;
    for (uint32_t i = 0; i < ${upper}_INPUT_COUNT; ++i) {
        const size_t bytes = midge_info(&${name}_model, i)->bytes;
        memcpy(midge_input(&net.session, i), from, bytes);
        from += bytes;
    }
}

static void time_runs(unsigned long bursts, unsigned long calls) {
    for (unsigned long b = 0; b < bursts; ++b) {
        const unsigned long long used = now(CLOCK_PROCESS_CPUTIME_ID), begin = now(CLOCK_MONOTONIC);
        for (unsigned long i = 0; i < calls; ++i) {
            load();
            ${run};
        }
        const unsigned long long end = now(CLOCK_MONOTONIC);
        printf("%llu %llu ", end - begin, now(CLOCK_PROCESS_CPUTIME_ID) - used);
    }
}

static void time_steps(unsigned long runs) {
    for (unsigned long r = 0; r < runs; ++r) {
        load();
        for (uint32_t i = 0; i < ${name}_model.op_count; ++i) {
            const unsigned long long begin = now(CLOCK_MONOTONIC);
            midge_step(&net.session);
            printf("%llu ", now(CLOCK_MONOTONIC) - begin);
        }
    }
}

static int write_outputs(const char *path) {
    FILE *file = fopen(path, "wb");
    load();
    int good = file != NULL && ${run} == MIDGE_OK;
    for (uint32_t i = 0; good && i < ${upper}_OUTPUT_COUNT; ++i) {
        const size_t bytes = midge_info(&${name}_model, ${upper}_INPUT_COUNT + i)->bytes;
        good = fwrite(midge_output(&net.session, i), 1, bytes, file) == bytes;
    }
    return file != NULL && fclose(file) == 0 && good;
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || ${name}_open(&net) != MIDGE_OK)
        return 1;
    if (fread(sample, 1, sizeof sample, file) == 0)
        return 1;
    fclose(file);
    const char *level = argc > 2 ? argv[2] : "-";
    if (*level != '-' && midge_select(&net.session, (uint32_t)strtoul(level, NULL, 10)) != MIDGE_OK)
        return ${no_level};
    ${start}
    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *end;
        line[strcspn(line, "\\n")] = 0;
        const unsigned long first = strtoul(line + 1, &end, 10);
        if (line[0] == 't')
            time_runs(first, strtoul(end, NULL, 10));
        else if (line[0] == 's')
            time_steps(first);
        else if (!write_outputs(line + 2))
            return 1;
        puts("");
        fflush(stdout);
    }
    return 0;
}
"""
)
_HEADERS = """#include "midge_parallel.h"
#include "midge_pthreads.h"
"""
_STATE = """static midge_pthreads pool;
static midge_threads threads = {midge_pthreads_for, &pool, 1, NULL};

/* One run; on several threads where the caller asked for them. */
static midge_status run(void) {
    return threads.threads > 1 ? midge_run_parallel(&net.session, &threads)
                               : midge_run(&net.session);
}
"""
_START = """if (argc > 3)
        threads.threads = (uint32_t)strtoul(argv[3], NULL, 10);
    if (threads.threads > 1) {
        const size_t bytes = (threads.threads - 1) * (size_t)${upper}_SCRATCH_BYTES;
        threads.scratch = aligned_alloc(64, bytes + 64 - bytes % 64);
        if (threads.scratch == NULL || midge_pthreads_start(&pool, threads.threads) != 0)
            return 1;
    }"""


def bench_program(name: str, *, pool: bool) -> str:
    """Return the text of NAME_bench.c; `pool`: with threads, where the folder brings them."""
    parts = {
        "headers": _HEADERS if pool else "",
        "state": _STATE if pool else "",
        "start": Template(_START).substitute(upper=name.upper()) if pool else "",
        "run": "run()" if pool else "midge_run(&net.session)",
    }
    return _PROGRAM.substitute(name=name, upper=name.upper(), no_level=NO_LEVEL, **parts)


def build_program(
    directory: Path, name: str, *, compiler: Compiler | None = None, flags: Sequence[str] = FLAGS
) -> Path:
    """Compile an emitted folder with the program above; the result is cached.

    Args:
        directory: written by emit.emit.
        name: of the model.
        compiler: default: the first one found.
        flags: of the compiler.

    Raises:
        InputError: a file or a compiler is missing.
        ToolError: the compiler failed.
    """
    directory = Path(directory)
    pool = directory / "host" / f"{POOL}.c"
    with tempfile.TemporaryDirectory(prefix="midge-bench-") as folder:
        main = Path(folder) / f"{name}_bench.c"
        main.write_text(bench_program(name, pool=pool.exists()), encoding="utf-8")
        sources = [*model_sources(directory, name), main]
        more = [pool] if pool.exists() else []
        return compile_program(
            [*sources, *more],
            flags=[*flags, *link_flags(sources), *["-lpthread" for _ in more]],
            include=[directory, directory / "host"],
            compiler=compiler,
        )


def levels(program: Path, count: int) -> list[int]:
    """Return those of the first `count` levels that this processor and the model have."""
    with tempfile.TemporaryDirectory(prefix="midge-bench-") as folder:
        data = Path(folder) / "sample"
        data.write_bytes(b"0")
        return [i for i in range(count) if _opens(program, data, i)]


def _opens(program: Path, data: Path, level: int) -> bool:
    command = [str(program), str(data), str(level)]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode != NO_LEVEL


@dataclass(frozen=True, slots=True)
class Program:
    """A waiting program.

    Args:
        process: whose stdin and stdout are pipes.
    """

    process: "subprocess.Popen[str]"

    def time(self, bursts: int, calls: int) -> Laps:
        """Run `bursts` times `calls` times: a bench_host.Timer."""
        wall, cpu = self.ask(f"t {bursts} {calls}").reshape(bursts, 2).T / (1e3 * calls)
        return Laps(wall.tolist(), cpu.tolist())

    def step_us(self, runs: int) -> Array:
        """Return [runs, steps] microseconds of every step."""
        return self.ask(f"s {runs}").reshape(runs, -1) / 1e3

    def outputs(self) -> bytes:
        """Return the raw outputs of the sample, in graph order."""
        with tempfile.TemporaryDirectory(prefix="midge-bench-") as folder:
            path = Path(folder) / "outputs"
            self.ask(f"o {path}")
            return path.read_bytes()

    def ask(self, command: str) -> Array:
        """Send a command and return the numbers of the answer, float64.

        Raises:
            ToolError: the program has ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return np.array(answer.split(), np.float64)
        status = self.process.wait()
        if status == NO_LEVEL:
            raise InputError("this processor or this model does not have the instruction set.")
        raise ToolError(f"the timing program ended with status {status}.")


@contextmanager
def running(
    program: Path, sample: bytes, *, level: int | None = None, threads: int = 1
) -> Iterator[Program]:
    """Start a program of build_program and keep it waiting for work.

    Args:
        program: its path.
        sample: raw elements of every input in graph order.
        level: instruction set, as for midge_select; None leaves the best.
        threads: of midge_run_parallel; ignored by a model without threads.
    """
    with tempfile.TemporaryDirectory(prefix="midge-bench-") as folder:
        data = Path(folder) / "sample"
        data.write_bytes(sample)
        command = [str(program), str(data)]
        command += ["-" if level is None else str(level), str(threads)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield Program(process)
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # what a dead program has not read is lost on purpose
                    stream.close()  # type: ignore[union-attr]  # both are pipes
