"""Both requantization forms against the definition in quant.arithmetic."""

import subprocess

import numpy as np
import pytest

from midge.convert.target import runtime_folder
from midge.core.native import compile_program
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

PROGRAM = """
#include <stdio.h>
#include "midge_requantize.h"
int main(void) {
    struct { int32_t acc; uint32_t m, codes; } in;
    while (fread(&in, sizeof in, 1, stdin) == 1) {
        const midge_requant limits = midge_requant_limits(in.codes);
        const int8_t q = midge_requantize(in.acc, in.m, &limits);
        if (fwrite(&q, 1, 1, stdout) != 1)
            return 1;
    }
    return 0;
}
"""
FORMS = ("FLOAT", "INT")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    source = tmp_path_factory.mktemp("requantize") / "requantize.c"
    source.write_text(PROGRAM)
    include = [runtime_folder() / "include"]
    return {
        form: compile_program([source], flags=["-O2", f"-DMIDGE_REQUANT_{form}"], include=include)
        for form in FORMS
    }


def run(program, acc, m, zero_point=0, low=-128, high=127):
    codes = sum((v & 255) << 8 * i for i, v in enumerate((0, zero_point, low, high)))
    rows = np.empty((len(acc), 3), np.uint32)
    rows[:, 0], rows[:, 1], rows[:, 2] = acc.view(np.uint32), m.view(np.uint32), codes
    done = subprocess.run([program], input=rows.tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.int8)


def check(programs, acc, m, zero_point=0, low=-128, high=127):
    acc, m = np.broadcast_arrays(np.asarray(acc, np.int32), np.asarray(m, np.float32))
    acc, m = np.ascontiguousarray(acc.ravel()), np.ascontiguousarray(m.ravel())
    with np.errstate(over="ignore"):  # a huge product is infinite, and saturates
        params = QuantParams(np.float32(1), zero_point, "int8")
        want = np.minimum(arithmetic.requantize(acc, m, params, low), np.int8(high))
    for form in FORMS:
        got = run(programs[form], acc, m, zero_point, low, high)
        bad = np.flatnonzero(got != want)
        assert len(bad) == 0, (form, len(bad), acc[bad[0]], m[bad[0]], got[bad[0]], want[bad[0]])


def test_random_accumulators_and_multipliers_of_every_size(programs):
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 32, 400_000)
    acc = rng.integers(-(2**31), 2**31, bits.size) >> bits
    for zero_point in (-128, -3, 127):
        m = 2.0 ** rng.uniform(-9, 9, bits.size) / np.maximum(abs(acc), 1)
        check(programs, acc, m, zero_point)


def test_any_bits_of_a_finite_multiplier(programs):
    rng = np.random.default_rng(2)
    m = rng.integers(0, 0x7F800000, 300_000, dtype=np.uint32).view(np.float32)
    acc = rng.integers(-(2**31), 2**31, m.size) >> rng.integers(0, 32, m.size)
    check(programs, acc, m, 17)
    edges = [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x7F7FFFFF]
    accs = [0, 1, -1, 2**24, 2**24 + 1, 2**31 - 1, -(2**31)]
    check(programs, *np.meshgrid(accs, np.uint32(edges).view(np.float32)), -5)


def test_every_small_accumulator_with_powers_of_two_ties_to_even(programs):
    acc = np.arange(-70_000, 70_000)
    for exponent in range(-12, 2):
        check(programs, acc, np.float32(2.0**exponent), 1)
        check(programs, acc, np.float32(3 * 2.0**exponent), -128, -128)


def test_products_next_to_a_tie(programs):
    rng = np.random.default_rng(3)
    for size in (2**9, 2**16, 2**24, 2**27, 2**31 - 1):
        acc = rng.integers(size // 2, size, 100_000)
        k = rng.integers(0, 256, acc.size) + 0.5
        m = (k / acc).astype(np.float32)
        for ulps in (-1, 0, 1):
            nudged = (m.view(np.int32) + ulps).view(np.float32)
            check(programs, acc * rng.choice([-1, 1], acc.size), nudged, 0)


def test_accumulators_that_float32_rounds(programs):
    rng = np.random.default_rng(4)
    for bits in range(24, 31):
        step = 1 << (bits - 24)
        base = rng.integers(2**bits, 2 ** (bits + 1) - 2 * step, 20_000) & ~(step - 1)
        for offset in {0, step // 2, step // 2 + 1, step - 1}:  # ties of the conversion, and beside
            check(programs, base + offset, (200.5 / base).astype(np.float32), 3)


def test_limits_of_a_fused_relu_hold(programs):
    check(programs, np.arange(-1000, 1000), np.float32(0.25), -20, low=-20, high=40)
    check(programs, np.arange(-1000, 1000), np.float32(0.25), 127, low=127)
