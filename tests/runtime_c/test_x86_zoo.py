"""Every operator on every instruction set of this processor, on one thread and on several."""

import platform
import subprocess

import pytest

from midge.convert import emit_program
from midge.convert.build import host_program, model_sources
from midge.convert.emit import emit
from midge.convert.plan import ALIGNMENT
from midge.convert.target import X86_64, fit_scratch
from midge.core.native import compile_program

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="this machine is no x86-64"
)
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "host/midge_pthreads.h"
#include "midge_parallel.h"
#include "zoo.h"
#define SESSIONS 2
static zoo_network net[SESSIONS];
static MIDGE_ALIGN(64) uint8_t scratch[SESSIONS][2 * ZOO_SCRATCH_BYTES + 64];
static uint8_t *samples;
static size_t bytes;
static void *run(void *argument) {
    const size_t s = *(const size_t *)argument;
    midge_pthreads pool;
    if (midge_pthreads_start(&pool, 3) != 0 || zoo_open(&net[s]) != MIDGE_OK)
        return "cannot start";
    const midge_threads threads = {midge_pthreads_for, &pool, 3, scratch[s]};
    const uint8_t *from = samples;
    for (uint32_t i = 0; i < ZOO_INPUT_COUNT; ++i) {
        const size_t size = midge_info(&zoo_model, i)->bytes;
        memcpy(midge_input(&net[s].session, i), from, size);
        from += size;
    }
    const midge_status status = midge_run_parallel(&net[s].session, &threads);
    midge_pthreads_stop(&pool);
    return status == MIDGE_OK ? NULL : "cannot run";
}
int main(void) {
    for (uint32_t i = 0; i < ZOO_INPUT_COUNT; ++i)
        bytes += midge_info(&zoo_model, i)->bytes;
    samples = malloc(bytes);
    pthread_t thread[SESSIONS];
    const size_t number[SESSIONS] = {0, 1};
    for (int more = fread(samples, 1, bytes, stdin) == bytes; more;
         more = fread(samples, 1, bytes, stdin) == bytes) {
        for (size_t s = 0; s < SESSIONS; ++s)
            pthread_create(&thread[s], NULL, run, (void *)&number[s]);
        for (size_t s = 0; s < SESSIONS; ++s) {
            void *why;
            pthread_join(thread[s], &why);
            if (why != NULL)
                return fputs(why, stderr), 1;
        }
        for (uint32_t i = 0; i < ZOO_OUTPUT_COUNT; ++i) {
            const size_t size = midge_info(&zoo_model, ZOO_INPUT_COUNT + i)->bytes;
            const void *y = midge_output(&net[0].session, i);
            if (memcmp(y, midge_output(&net[1].session, i), size) != 0)
                return fputs("the sessions differ", stderr), 1;
            fwrite(y, 1, size, stdout);
        }
    }
    free(samples);
    return 0;
}
"""


@pytest.fixture(scope="module")
def folder(zoo, tmp_path_factory):
    """The zoo with panels of weights; every step that can be split is."""
    plan = zoo.plan()
    fit_scratch(plan, X86_64)
    start = -(-plan.arena_bytes // ALIGNMENT) * ALIGNMENT
    plan.scratch = [start] * len(plan.ops)
    plan.arena_bytes = start + max(plan.scratch_bytes)
    directory = tmp_path_factory.mktemp("zoo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emit_program, "SPLIT_MACS", 0)
        emit(plan, directory, "zoo", target=X86_64)
    return directory


@pytest.mark.parametrize("level", range(len(X86_64.levels)))
@pytest.mark.parametrize("flags", [("-O2",), SANITIZERS])
def test_every_instruction_set_gives_the_reference_codes(zoo, folder, level, flags):
    program = host_program(folder, "zoo", flags=flags)
    if level not in program.levels(len(X86_64.levels)):
        pytest.skip(f"this processor has no {X86_64.levels[level]}")
    assert program.run(zoo.samples, level) == zoo.results


@pytest.mark.parametrize("flags", [("-O2",), ("-O1", "-g", "-fsanitize=thread")])
def test_threads_give_the_same_codes_and_do_not_race(zoo, folder, tmp_path, flags):
    main = tmp_path / "threads.c"
    main.write_text(THREADS)
    sources = [*model_sources(folder, "zoo"), folder / "host" / "midge_pthreads.c", main]
    program = compile_program(sources, flags=[*flags, "-pthread"], include=[folder])
    done = subprocess.run([program], input=zoo.samples, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == zoo.results
