"""The pool of threads for hosts: every part is made once, and nobody waits for a late thread."""

import subprocess
from pathlib import Path

import pytest

from midge.convert.target import runtime_folder
from midge.core.native import compile_program

MAIN = r"""
#include "midge_pthreads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 70000u

static unsigned char made[MOST];

/* Long enough that other threads come while parts are left. */
static void part(void *argument, uint32_t index) {
    for (volatile int i = 0; i < 20; ++i)
        continue;
    made[index] = (unsigned char)(made[index] + *(int *)argument);
}

static int round_holds(midge_pthreads *pool, uint32_t parts, uint32_t checked) {
    int one = 1;
    memset(made, 0, checked);
    midge_pthreads_for(pool, parts, part, &one);
    for (uint32_t i = 0; i < checked; ++i)
        if (made[i] != (i < parts))
            return 0;
    return 1;
}

int main(int argc, char **argv) {
    midge_pthreads pool;
    if (argc != 2 || midge_pthreads_start(&pool, (uint32_t)atoi(argv[1])) != 0)
        return 2;
    for (uint32_t r = 0; r < 3000; ++r)
        if (!round_holds(&pool, r % 9, 16))
            return 3;
    for (uint32_t r = 0; r < 20; ++r)
        if (!round_holds(&pool, MOST, MOST))
            return 4;
    midge_pthreads_stop(&pool);
    return 0;
}
"""


def program(folder: Path, *flags: str) -> Path:
    """Compile the test with the pool."""
    main, host = folder / "main.c", runtime_folder() / "host"
    main.write_text(MAIN)
    sources = [main, host / "midge_pthreads.c"]
    return compile_program(sources, flags=["-O1", *flags, "-lpthread"], include=[host])


def status(path: Path, threads: int) -> int:
    """Run the test."""
    return subprocess.run([str(path), str(threads)], timeout=120).returncode


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_part_is_made_once(tmp_path: Path, threads: int) -> None:
    assert status(program(tmp_path), threads) == 0


def test_no_threads_and_too_many_are_refused(tmp_path: Path) -> None:
    path = program(tmp_path)
    assert status(path, 0) == 2
    assert status(path, 65) == 2


def test_threads_do_not_race(tmp_path: Path) -> None:
    assert status(program(tmp_path, "-g", "-fsanitize=thread"), 3) == 0
