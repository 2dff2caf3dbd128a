"""Writes what runs a compiled model on a host: the filter, the golden test and the build files."""

from collections.abc import Sequence
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.emit_c import comment_text, hex_words, io_tensors
from midge.convert.emit_program import Program
from midge.convert.golden import allowances, helpers
from midge.convert.plan import Plan
from midge.core.errors import InputError

Array = npt.NDArray[Any]


_MAIN = Template(
    """/* ${name}_main.c - runs "${name}" on raw samples.
 *
 * usage: ${name}_main [--tensors] [--level N] < samples > results
 *
 * Standard input holds samples one after another, each the raw elements of every input in graph
 * order; standard output receives the raw elements of every output. --tensors writes the output of
 * every operator, as it lies in memory, instead. --level chooses an instruction set as
 * midge_select does. Exit status 1: the input ends inside a sample, or
 * something cannot be written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "${name}.h"

static ${name}_network net;

/* What each operator writes: number of steps after which it is complete, arena offset, bytes. */
static const struct {
    uint32_t steps, offset, bytes;
} tensors[] = {
${table}
};

/* Reads one sample. Returns 1 for a sample, 0 at the end of the input, -1 inside a sample. */
static int read_sample(void) {
    size_t total = 0;
    for (uint32_t i = 0; i < ${upper}_INPUT_COUNT; ++i) {
        const size_t bytes = midge_info(&${name}_model, i)->bytes;
        const size_t got = fread(midge_input(&net.session, i), 1, bytes, stdin);
        total += got;
        if (got != bytes)
            return total == 0 ? 0 : -1;
    }
    return total != 0;
}

static int write_outputs(void) {
    if (midge_run(&net.session) != MIDGE_OK)
        return -1;
    for (uint32_t i = 0; i < ${upper}_OUTPUT_COUNT; ++i) {
        const size_t bytes = midge_info(&${name}_model, ${upper}_INPUT_COUNT + i)->bytes;
        if (fwrite(midge_output(&net.session, i), 1, bytes, stdout) != bytes)
            return -1;
    }
    return 0;
}

static int write_tensors(void) {
    const size_t count = ${count};
    uint32_t steps = 0;
    midge_status status = MIDGE_MORE;
    for (size_t i = 0; i < count; ++i) {
        for (; steps < tensors[i].steps && status == MIDGE_MORE; ++steps)
            status = midge_step(&net.session);
        if (fwrite(net.arena + tensors[i].offset, 1, tensors[i].bytes, stdout) != tensors[i].bytes)
            return -1;
    }
    return steps == tensors[count == 0 ? 0 : count - 1].steps ? 0 : -1;
}

int main(int argc, char **argv) {
    const int trace = argc > 1 && strcmp(argv[1], "--tensors") == 0;
    const int rest = argc - 1 - trace, chosen = rest == 2 && strcmp(argv[argc - 2], "--level") == 0;
    if (rest != 0 && !chosen) {
        fputs("usage: ${name}_main [--tensors] [--level N] < samples > results\\n", stderr);
        return 2;
    }
    if (${name}_open(&net) != MIDGE_OK) {
        fputs("${name}: midge_open failed\\n", stderr);
        return 1;
    }
    const unsigned long level = chosen ? strtoul(argv[argc - 1], NULL, 10) : 0;
    if (chosen && midge_select(&net.session, (uint32_t)level) != MIDGE_OK) {
        fputs("${name}: no such level here\\n", stderr);
        return 3;
    }
    int more;
    while ((more = read_sample()) == 1)
        if ((trace ? write_tensors() : write_outputs()) != 0) {
            fputs("${name}: cannot run or write\\n", stderr);
            return 1;
        }
    if (more < 0) {
        fputs("${name}: the input ends inside a sample\\n", stderr);
        return 1;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
"""
)

_TEST = Template(
    """/* ${name}_test.c - golden test of "${name}": ${what} on every target.
 *
 * Prints one line with puts() and exits with status 0 where every sample holds. Needs nothing else
 * of the C library, so that it runs on bare metal.
 */
#include <stdio.h>
#include <string.h>

#include "${name}.h"

#define SAMPLES ${samples}

${arrays}
static ${name}_network net;

/* Runs sample s. Returns whether every output is the expected one. */
static int sample_holds(size_t s) {
${load}
    if (midge_run(&net.session) != MIDGE_OK)
        return 0;
${check}
    return 1;
}

/* Writes a number of at most 7 digits. */
static void put_number(size_t n) {
    char digits[] = "0000000";
    size_t i = sizeof digits - 1;
    for (; n != 0 && i != 0; n /= 10)
        digits[--i] = (char)('0' + n % 10);
    puts(digits);
}

int main(void) {
    if (${name}_open(&net) != MIDGE_OK) {
        puts("${name}: FAIL, midge_open refused the model");
        return 1;
    }
    for (uint32_t level = 0; level < 32; ++level) {
        if (midge_select(&net.session, level) != MIDGE_OK)
            continue; /* an instruction set that this processor or model lacks */
        for (size_t s = 0; s < SAMPLES; ++s)
            if (!sample_holds(s)) {
                puts("${name}: FAIL, an output differs in the sample, on the level, numbered");
                put_number(s);
                put_number(level);
                return 1;
            }
    }
    puts("${name}: pass, ${samples} samples");
    return 0;
}
"""
)


def main_program(plan: Plan, name: str, program: Program) -> str:
    """Return the text of NAME_main.c."""
    rows = []
    for index in traced(plan):
        tensor = plan.tensors[plan.ops[index].output]
        at, done = plan.offsets[tensor.buffer], program.done[index]
        rows.append(f"    {{{done}, {at}, {tensor.bytes}}}, /* {comment_text(tensor.name)} */")
    table = "\n".join(rows) or "    {0, 0, 0},"
    return _MAIN.substitute(name=name, upper=name.upper(), table=table, count=len(rows))


def traced(plan: Plan) -> list[int]:
    """Return the steps whose output lies whole in the arena when it is complete."""
    inside = {index for stream in plan.streams for index in stream.steps[:-1]}
    return [index for index in range(len(plan.ops)) if index not in inside]


def check_golden(plan: Plan, golden: tuple[list[Array], list[Array]]) -> int:
    """Return the number of samples; refuse vectors that do not fit the plan's inputs and outputs.

    Args:
        plan: the program.
        golden: inputs and outputs, each [samples, *shape] in graph order.

    Raises:
        InputError: a shape or dtype does not fit, named.
    """
    arrays = [*golden[0], *golden[1]]
    entries = io_tensors(plan)
    if len(arrays) != len(entries):
        raise InputError(f"golden vectors: got {len(arrays)} arrays for {len(entries)} tensors.")
    samples = len(arrays[0])
    for (kind, _, tensor), array in zip(entries, arrays, strict=True):
        if array.dtype != tensor.dtype or len(array) != samples or not samples:
            raise InputError(
                f"golden vectors: {kind.lower()} {tensor.name!r} is {array.dtype} with "
                f"{len(array)} samples; needed {tensor.dtype} with {samples or 1}."
            )
        if array.nbytes != samples * tensor.bytes:
            raise InputError(
                f"golden vectors: {kind.lower()} {tensor.name!r} has shape {array.shape[1:]}; "
                f"needed {tensor.file_shape or tensor.shape}."
            )
    return samples


def test_program(plan: Plan, name: str, golden: tuple[list[Array], list[Array]]) -> str:
    """Return the text of NAME_test.c."""
    samples = check_golden(plan, golden)
    allowed = allowances(plan, golden[1])
    arrays, load, check = [], [], []
    for (kind, index, _), array in zip(io_tensors(plan), [*golden[0], *golden[1]], strict=True):
        words = _sample_words(array)
        arrays.append(
            f"static const uint32_t {kind.lower()}_{index}[SAMPLES][{words.shape[1]}] = {{\n"
            + "\n".join(f"    {{\n{hex_words(row)}\n    }}," for row in words)
            + "\n};\n"
        )
        size = f"{name.upper()}_{kind}_{index}_BYTES"
        if kind == "INPUT":
            load.append(
                f"    memcpy(midge_input(&net.session, {index}), input_{index}[s], {size});"
            )
        else:
            got = f"midge_output(&net.session, {index})"
            refused = allowed[index].condition(got, f"output_{index}[s]", size)
            check.append(f"    if ({refused})\n        return 0;")
    return _TEST.substitute(
        name=name,
        samples=samples,
        what="the same output bits" if not any(a.limit for a in allowed) else "its outputs",
        arrays="\n".join(arrays) + helpers(allowed),
        load="\n".join(load),
        check="\n".join(check),
    )


def _sample_words(array: Array) -> Array:
    """Return [samples, words] uint32 with the raw bytes of each sample, padded with zeros."""
    flat = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    raw = flat.reshape(len(array), -1).view(np.uint8)
    padded = np.pad(raw, ((0, 0), (0, -raw.shape[1] % 4)))
    return np.ascontiguousarray(padded).view("<u4")


def makefile(name: str, sources: Sequence[str], with_test: bool, with_math: bool = False) -> str:
    """Return the text of DIR/Makefile; `with_math` links the mathematical library."""
    library = " -lm" if with_math else ""
    flags = "link it with -lm" if with_math else "they need no flags"
    listed = " \\\n    ".join(s for s in sources)
    programs = f"host/{name}_main" + (f" host/{name}_test" if with_test else "")
    test = f"test: host/{name}_test\n\t./host/{name}_test\n\n" if with_test else ""
    return f"""# Builds the network "{name}" for this machine: `make`, then `make test`.
# On a microcontroller add the .c files of this folder to your project; {flags}.
CFLAGS ?= -O3
OBJECTS = $(SOURCES:.c=.o)
SOURCES = \\
    {listed}

all: {programs}

{test}host/{name}_%: host/{name}_%.c $(OBJECTS)
\t$(CC) $(CFLAGS) -I. -o $@ $< $(OBJECTS){library}

$(OBJECTS): $(wildcard *.h)

clean:
\trm -f $(OBJECTS) {programs}

.PHONY: all clean{" test" if with_test else ""}
"""


def cmake_lists(name: str, sources: Sequence[str], with_test: bool, with_math: bool = False) -> str:
    """Return the text of DIR/CMakeLists.txt; `with_math` links the mathematical library."""
    library = (
        f"\nif(NOT MSVC)\n    target_link_libraries({name} PUBLIC m)\nendif()" if with_math else ""
    )
    listed = "\n    ".join(sources)
    test = (
        f"""
    add_executable({name}_test host/{name}_test.c)
    target_link_libraries({name}_test PRIVATE {name})
    enable_testing()
    add_test(NAME {name} COMMAND {name}_test)"""
        if with_test
        else ""
    )
    return f"""# The network "{name}" as a library; link it with target_link_libraries(app {name}).
cmake_minimum_required(VERSION 3.10)
project({name} C)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
endif()

add_library({name} STATIC
    {listed})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}}){library}

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR AND NOT CMAKE_CROSSCOMPILING)
    add_executable({name}_main host/{name}_main.c)
    target_link_libraries({name}_main PRIVATE {name}){test}
endif()
"""
