"""Compiles many small models into one program and runs each on one sample."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from string import Template

import numpy as np
from node_cases import Array

from midge.convert.build import link_flags
from midge.convert.emit import emit
from midge.convert.plan import Plan
from midge.core.native import compile_program

FLAGS = ("-O1", "-g0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TIMEOUT_S = 300

_MAIN = Template(
    """/* Runs each model on the sample in standard input, on an arena of exactly its size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

${includes}

static const struct {
    const midge_model *model;
    size_t arena, inputs, outputs;
} runs[] = {
${rows}
};

int main(void) {
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; ++i) {
        midge_session session;
        void *arena = NULL;
        if (posix_memalign(&arena, MIDGE_ARENA_ALIGNMENT, runs[i].arena) != 0)
            return 1;
        memset(arena, 0xA5, runs[i].arena);
        if (midge_open(&session, runs[i].model, arena, runs[i].arena) != MIDGE_OK)
            return 2;
        for (size_t j = 0; j < runs[i].inputs; ++j) {
            const size_t bytes = midge_info(runs[i].model, (uint32_t)j)->bytes;
            if (fread(midge_input(&session, (uint32_t)j), 1, bytes, stdin) != bytes)
                return 3; /* an input of another size */
        }
        if (midge_run(&session) != MIDGE_OK)
            return 4;
        for (size_t j = 0; j < runs[i].outputs; ++j) {
            const size_t at = runs[i].inputs + j;
            const size_t bytes = midge_info(runs[i].model, (uint32_t)at)->bytes;
            if (fwrite(midge_output(&session, (uint32_t)j), 1, bytes, stdout) != bytes)
                return 5;
        }
        free(arena);
    }
    return fflush(stdout) == 0 ? 0 : 6;
}
"""
)


def run_all(
    plans: Sequence[Plan], inputs: Sequence[Sequence[Array]], folder: Path
) -> list[list[Array]]:
    """Return the outputs of every model in compiled C.

    Args:
        plans: placed.
        inputs: one sample for each, in graph order, of the plan's dtypes.
        folder: for the sources; created.

    Raises:
        RuntimeError: the program failed, in the words of the sanitizers.
    """
    names = [f"c{i}" for i in range(len(plans))]
    for name, plan in zip(names, plans, strict=True):
        emit(plan, folder, name)
    rows = (
        f"    {{&{n}_model, {n.upper()}_ARENA_BYTES, {len(p.inputs)}, {len(p.outputs)}}},"
        for n, p in zip(names, plans, strict=True)
    )
    main = folder / "main.c"
    includes = "\n".join(f'#include "{n}.c"' for n in names)
    main.write_text(
        "#define _POSIX_C_SOURCE 200112L\n"
        + _MAIN.substitute(includes=includes, rows="\n".join(rows))
    )
    sources = [main, *sorted(folder.glob("midge_*.c"))]
    program = compile_program(
        sources, folder / "all", flags=(*FLAGS, *link_flags(sources)), include=[folder]
    )
    raw = b"".join(np.ascontiguousarray(x).tobytes() for xs in inputs for x in xs)
    done = subprocess.run(
        [str(program)], input=raw, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {done.stderr.decode(errors='replace')}")
    return _split(plans, done.stdout)


def _split(plans: Sequence[Plan], raw: bytes) -> list[list[Array]]:
    """Cut the program's output into arrays."""
    at, found = 0, []
    for plan in plans:
        arrays = []
        for index in plan.outputs:
            tensor = plan.tensors[index]
            part = np.frombuffer(raw[at : at + tensor.bytes], tensor.dtype)
            arrays.append(part.reshape(tensor.file_shape or tensor.shape))
            at += tensor.bytes
        found.append(arrays)
    return found
