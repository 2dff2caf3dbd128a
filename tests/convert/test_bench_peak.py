"""The peak of a core: more with wider instructions, and never below what any loop reaches."""

import platform

import pytest

from midge.convert.bench_peak import FLOAT32, INT8, LOOPS, peak_program, peaks
from midge.core.native import cpu_features

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="the loops are for x86-64"
)


def test_every_instruction_set_of_this_processor_has_a_peak() -> None:
    found = peaks()
    assert found
    assert set(found) == {(x.level, x.kind) for x in LOOPS if x.feature in cpu_features()}
    assert all(rate > 1 for rate in found.values())


@pytest.mark.skipif("avx2" not in cpu_features(), reason="this processor has no AVX2")
def test_wider_vectors_multiply_more() -> None:
    found = peaks()
    assert found["avx2", INT8] > 1.3 * found["portable", INT8]
    assert found["avx2", INT8] > 1.3 * found["avx2", FLOAT32]


def test_every_loop_multiplies_in_every_accumulator() -> None:
    text = peak_program(list(LOOPS))
    for loop in LOOPS:
        last = loop.body[-1].format(a=11).split(" ")[0]
        assert text.count(last) >= 12
