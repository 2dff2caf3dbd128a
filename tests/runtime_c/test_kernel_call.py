"""The harness itself: what it must catch."""

import numpy as np
import pytest

BAD = """#include "midge_kernel.h"
void midge_bad(const midge_strip *strip, const midge_op *op) {
    int8_t *x = midge_codes_at(strip, op, MIDGE_OP_X), *y = midge_codes_at(strip, op, MIDGE_OP_Y);
    volatile int8_t *at = op->word[4] ? y : x;
    y[0] = 1;
    if (op->word[5] == 0)
        y[1] = at[(int32_t)op->word[6]];
    else
        at[(int32_t)op->word[6]] = 77;
}
"""


@pytest.fixture
def call_bad(kernel_calls, tmp_path):
    (tmp_path / "include").mkdir()
    for header in (kernel_calls.runtime / "include").glob("*.h"):
        (tmp_path / "include" / header.name).write_bytes(header.read_bytes())
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "midge_bad.c").write_text(BAD)
    caller = type(kernel_calls)(tmp_path)
    kernel = "midge_bad"

    def call(in_y, write, at):
        words = {("MIDGE_OP_KERNEL", 4): in_y, ("MIDGE_OP_KERNEL", 5): write}
        words["MIDGE_OP_KERNEL", 6] = at
        x, y = np.arange(5, dtype=np.int8), np.zeros(5, np.int8)
        return caller(kernel, words, {"MIDGE_OP_X": x, "MIDGE_OP_Y": y})

    yield call
    caller.close()


@pytest.mark.parametrize(("in_y", "write"), [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("at", [-1, 5])
def test_an_access_one_byte_outside_a_buffer_fails(call_bad, in_y, write, at):
    with pytest.raises(AssertionError, match=r"midge_bad (touched|wrote|depends)"):
        call_bad(in_y, write, at)


def test_a_crash_leaves_the_next_call_alone(call_bad):
    with pytest.raises(AssertionError, match="SIGSEGV"):
        call_bad(1, 1, 5)
    assert call_bad(0, 0, 4)["MIDGE_OP_Y"] == bytes([1, 4, 0, 0, 0])


def test_a_portable_kernel_runs_in_place_and_on_rows_of_a_ring(kernel_calls):
    table = np.roll(np.arange(-128, 128), 1).astype(np.int8)
    x = np.arange(6, dtype=np.int8).reshape(3, 2)
    words = {"MIDGE_MAP_COUNT": 2, "MIDGE_OP_RINGS": (3, 3)}
    got = kernel_calls(
        "midge_table_s8",
        words,
        {"MIDGE_OP_X": x},
        table,
        rows=(4, 6),
        same=[("MIDGE_OP_Y", "MIDGE_OP_X")],
    )
    assert got["MIDGE_OP_X"] == bytes([0, 1, 1, 2, 3, 4])
