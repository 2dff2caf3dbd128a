"""The elementwise float kernels for AVX2 give the bits of portable C."""

import platform

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="this machine is no x86-64"
)
SEED = 43
f32 = np.float32
SPECIAL = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0], f32)


@pytest.fixture(scope="module")
def calls(kernel_calls):
    """What calls the kernels."""
    if "midge_clip_f32_avx2" not in kernel_calls.levels("midge_clip_f32"):
        pytest.skip("this processor has no AVX2 and FMA")
    return kernel_calls


BINARY = {"ADD": 0, "SUB": 1, "MUL": 2, "DIV": 3, "MAX": 4, "MIN": 5, "PRELU": 6}


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("steps", [(1, 1), (1, 0), (0, 1), (2, 1)])
def test_pairs_give_the_bits_of_portable_c(calls, kind, steps):
    rng = np.random.default_rng(SEED)
    for count in (*range(1, 18), 49):
        operands = [rng.choice(np.append(SPECIAL, f32([0, 1, -2, 0.3])), 2 * count) for _ in "ab"]
        buffers = {"MIDGE_OP_X": operands[0], "MIDGE_BINARY_B": operands[1]}
        buffers["MIDGE_OP_Y"] = np.zeros(2 * count, f32)
        words = {"MIDGE_BINARY_KIND": BINARY[kind], "MIDGE_BINARY_STEP": steps}
        shape = (1, 1, 2 if max(steps) == 1 else 1, count)
        words |= {("MIDGE_BINARY_SHAPE", i): n for i, n in enumerate(shape)}
        words |= {("MIDGE_BINARY_A_PITCH", 2): count, ("MIDGE_BINARY_B_PITCH", 2): count}
        got, want = (
            np.frombuffer(calls(kernel, words, buffers)["MIDGE_OP_Y"], f32)
            for kernel in ("midge_binary_f32_avx2", "midge_binary_f32")
        )
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("base", ["midge_clip_f32", "midge_quantize_f32_s8"])
def test_maps_of_floats_give_the_bits_of_portable_c(calls, base, in_place):
    rng = np.random.default_rng(SEED)
    for count in (*range(1, 18), 31, 32, 33, 70):
        x = rng.normal(0, 30, count).astype(f32)
        x[: count // 2] = np.resize(np.append(SPECIAL, f32([0.5, 1.5, -2.5, 1e9])), count // 2)
        words = {"MIDGE_MAP_COUNT": count, "MIDGE_MAP_SCALE": f32(0.5)}
        words |= {"MIDGE_MAP_ZERO_POINT": -7}
        words |= {"MIDGE_LIMIT_LOW": f32(-3), "MIDGE_LIMIT_HIGH": f32(11)}
        size = 4 * count if base == "midge_clip_f32" else count
        buffers = {"MIDGE_OP_X": x} if in_place else {"MIDGE_OP_X": x, "MIDGE_OP_Y": bytes(size)}
        same = (("MIDGE_OP_Y", "MIDGE_OP_X"),) if in_place else ()
        y = "MIDGE_OP_X" if in_place else "MIDGE_OP_Y"
        got, want = (calls(k, words, buffers, same=same)[y] for k in (f"{base}_avx2", base))
        assert got[:size] == want[:size], count
        assert got[:size] != bytes(size) or count < 2


@pytest.mark.parametrize("zero_point", [-128, 5, 127])
def test_codes_become_the_floats_of_portable_c(calls, zero_point):
    for count in (*range(1, 18), 256):
        x = np.resize(np.arange(-128, 128, dtype=np.int8), count)
        words = {"MIDGE_MAP_COUNT": count, "MIDGE_MAP_SCALE": f32(0.037)}
        words |= {"MIDGE_MAP_ZERO_POINT": zero_point}
        buffers = {"MIDGE_OP_X": x, "MIDGE_OP_Y": bytes(4 * count)}
        base = "midge_dequantize_s8_f32"
        got, want = (calls(k, words, buffers)["MIDGE_OP_Y"] for k in (f"{base}_avx2", base))
        assert got == want, count
