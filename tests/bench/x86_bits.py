"""Files on every build for x86-64: `python tests/bench/x86_bits.py FILE... [--samples N]`.

For each file: portable C99 and the build for x86-64, each optimized for speed and for size, every
instruction set of this processor, one and two threads. Random inputs over the whole range of codes;
every output byte is held against the integer executor. Prints Markdown; exit status 1 when a byte
differs.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.cli.machine import describe, versions
from midge.convert.build import model_sources
from midge.convert.compile import random_inputs, read_plan
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.target import C99, OPTIMIZE, X86_64, Target
from midge.core.native import compile_program

Array = npt.NDArray[Any]
CHUNK = 50  # samples at a time
NO_LEVEL = 3  # exit status
THREADS = (1, 2)
MAIN = Template(
    """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
$threads_headers
static net_network net;
int main(int argc, char **argv) {
    if (argc != 2 || net_open(&net) != MIDGE_OK)
        return 1;
    if (midge_select(&net.session, (uint32_t)atoi(argv[1])) != MIDGE_OK)
        return 3;
    $start
    for (;;) {
        for (uint32_t i = 0; i < NET_INPUT_COUNT; ++i) {
            const size_t bytes = midge_info(&net_model, i)->bytes;
            if (fread(midge_input(&net.session, i), 1, bytes, stdin) != bytes)
                return 0;
        }
        if ($run != MIDGE_OK)
            return 2;
        for (uint32_t i = 0; i < NET_OUTPUT_COUNT; ++i)
            fwrite(midge_output(&net.session, i), 1,
                   midge_info(&net_model, NET_INPUT_COUNT + i)->bytes, stdout);
    }
}
"""
)
HEADERS = """#define THREADS {threads}u
#include "midge_parallel.h"
#include "host/midge_pthreads.h"
"""
POOL = """static midge_pthreads pool;
    static MIDGE_ALIGN(64) uint8_t scratch[(THREADS - 1) * NET_SCRATCH_BYTES + 64];
    if (midge_pthreads_start(&pool, THREADS) != 0)
        return 1;
    const midge_threads threads = {midge_pthreads_for, &pool, THREADS, scratch};"""


def build(folder: Path, threads: int, flags: Sequence[str] = ("-O2", "-pthread")) -> Path:
    """Compile the emitted folder with a program that runs raw samples on a level."""
    alone = threads == 1
    text = MAIN.substitute(
        threads_headers="" if alone else HEADERS.format(threads=threads),
        start="" if alone else POOL,
        run="midge_run(&net.session)" if alone else "midge_run_parallel(&net.session, &threads)",
    )
    main = folder / "host" / f"bits_{threads}.c"
    main.write_text(text, encoding="utf-8")
    extra = [] if alone else [folder / "host" / "midge_pthreads.c"]
    sources = [*model_sources(folder, "net"), *extra, main]
    return compile_program(sources, flags=flags, include=[folder])


def programs(file: Path, scratch: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield (what it is, program, level) of every build."""
    for target, optimize in itertools.product((C99, X86_64), OPTIMIZE):
        plan = read_plan(file, "net", None, target, optimize=optimize)
        folder = scratch / f"{target.name}-{optimize}"
        emit(plan, folder, "net", target=target)
        for threads, level in itertools.product(THREADS, range(len(target.levels))):
            if threads == 1 or (target.probe and optimize == "speed"):
                program = build(folder, threads)
                if run(program, level, b"").returncode != NO_LEVEL:
                    yield label(target, optimize, level, threads), program, level


def label(target: Target, optimize: str, level: int, threads: int) -> str:
    """Return the name of a build."""
    sets = f" {target.levels[level]}" if target.probe else ""
    return f"{target.name}{sets}, {optimize}" + (f", {threads} threads" if threads > 1 else "")


def run(program: Path, level: int, samples: bytes) -> "subprocess.CompletedProcess[bytes]":
    """Run raw samples."""
    command = [str(program), str(level)]
    return subprocess.run(command, input=samples, capture_output=True, check=False)


def compare(file: Path, samples: int) -> dict[str, int]:
    """Return the output bytes that differ, by build; "bytes" is how many were compared in each."""
    executor = Executor(read_plan(file, "net"))
    differ: dict[str, int] = {"bytes": 0}
    with tempfile.TemporaryDirectory(prefix="midge-bits-") as scratch:
        builds = list(programs(file, Path(scratch)))
        for seed, start in enumerate(range(0, samples, CHUNK)):
            x = random_inputs(executor.plan, min(CHUNK, samples - start), seed)
            want = rows(executor.run_batch(x))
            differ["bytes"] += want.size
            for name, program, level in builds:
                got = np.frombuffer(run(program, level, rows(x).tobytes()).stdout, np.uint8)
                same = got.size == want.size
                wrong = int((got != want.reshape(-1)).sum()) if same else want.size
                differ[name] = differ.get(name, 0) + wrong
    return differ


def rows(arrays: list[Array]) -> Array:
    """Return [samples, bytes]: the raw elements of every array, one sample after another."""
    flat = [np.ascontiguousarray(a).reshape(len(a), -1).view(np.uint8) for a in arrays]
    return np.concatenate(flat, axis=1)


def main() -> int:
    """Compare the files of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--samples", type=int, default=1000)
    options = parser.parse_args()
    known = ", ".join(f"{package} {version}" for package, version in versions().items())
    print(f"{describe()}; {known}; {options.samples} random inputs\n")
    print("| file | output bytes | builds | bytes that differ |")
    print("|---|--:|---|--:|")
    wrong = 0
    for file in options.files:
        differ = compare(file, options.samples)
        compared = differ.pop("bytes")
        names = "; ".join(name + (f": {n:,}" if n else "") for name, n in differ.items())
        print(f"| {file.name} | {compared:,} | {names} | {sum(differ.values()):,} |", flush=True)
        wrong += sum(differ.values())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
