"""The dynamic INT8 kernels for AVX2 make the bits of portable C and stay inside their buffers."""

import platform

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="this machine is no x86-64"
)
SEED = 47
f32 = np.float32
DEPTHS = [*range(1, 18), 31, 32, 33, 49, 160]
ENDS = {"MIDGE_LIMIT_LOW": f32(-np.inf), "MIDGE_LIMIT_HIGH": f32(np.inf)}


@pytest.fixture(scope="module")
def calls(kernel_calls):
    if "midge_dynamic_quantize_avx2" not in kernel_calls.levels("midge_dynamic_quantize"):
        pytest.skip("this processor has no AVX2 and FMA")
    return kernel_calls


def both(calls, base, words, buffers, data=b"", rows=(0, 1)):
    """Return what portable C makes, checked against the kernel for AVX2."""
    want, got = (
        calls(kernel, words, buffers, data, rows=rows)["MIDGE_OP_Y"]
        for kernel in (base, f"{base}_avx2")
    )
    assert got == want, (base, words, rows)
    return want


def coded(rng, count, zero_point):
    """A header and codes, both extremes among them."""
    codes = rng.integers(-128, 128, count).astype(np.int8)
    codes[: count // 4], codes[count // 4 : count // 2] = -128, 127
    return f32(0.37).tobytes() + np.int32(zero_point).tobytes() + bytes(8) + codes.tobytes()


def constants(rng, out, depth):
    """Bias, scales and weights, both extremes among them."""
    weight = rng.integers(-127, 128, (out, depth)).astype(np.int8)
    weight[0], weight[-1] = 127, -127
    bias, scale = rng.normal(0, 1, out).astype(f32), rng.uniform(0.01, 1, out).astype(f32)
    return bias.tobytes() + scale.tobytes() + weight.tobytes()


@pytest.mark.parametrize("zero_point", [-128, 3, 127])
@pytest.mark.parametrize("depth", DEPTHS)
def test_products(calls, depth, zero_point):
    rng = np.random.default_rng([SEED, depth])
    for out in (1, 3, 4, 9):
        words = {"MIDGE_FC_PIXELS": 2, "MIDGE_FC_DEPTH": depth, "MIDGE_FC_CHANNELS": out, **ENDS}
        y = np.full((3, 2, out), 77, f32)
        buffers = {"MIDGE_OP_X": coded(rng, 6 * depth, zero_point), "MIDGE_OP_Y": y}
        data = constants(rng, out, depth)
        whole = both(calls, "midge_fully_connected_dynamic", words, buffers, data, (0, 3))
        part = both(calls, "midge_fully_connected_dynamic", words, buffers, data, (1, 2))
        whole, part = (np.frombuffer(v, f32).reshape(3, 2, out) for v in (whole, part))
        np.testing.assert_array_equal(part[1], whole[1])
        assert (part[[0, 2]] == 77).all()
        assert (whole != 77).all()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("C", [1, 4, 6, 7, 16, 19])
def test_convolutions(calls, C, dilation, groups):
    rng = np.random.default_rng([SEED, C])
    out = 5 * groups
    words = {
        "MIDGE_CONV_X_SIZE": (5, 6),
        "MIDGE_CONV_Y_SIZE": (5, 6),
        "MIDGE_CONV_CHANNELS": (C * groups, out),
        "MIDGE_CONV_KERNEL": (3, 3),
        "MIDGE_CONV_STRIDE": (1, 1),
        "MIDGE_CONV_DILATION": (dilation, dilation),
        "MIDGE_CONV_PADS": (dilation, dilation),
        "MIDGE_CONV_GROUPS": (2, groups),
        "MIDGE_LIMIT_LOW": f32(-9),
        "MIDGE_LIMIT_HIGH": f32(1e4),
    }
    buffers = {"MIDGE_OP_X": coded(rng, 60 * C * groups, 11)}
    buffers["MIDGE_OP_Y"] = np.full((10, 6, out), 77, f32)
    data = constants(rng, out, 9 * C)
    whole = both(calls, "midge_conv2d_dynamic", words, buffers, data, (0, 10))
    part = both(calls, "midge_conv2d_dynamic", words, buffers, data, (3, 8))
    whole, part = (np.frombuffer(v, f32).reshape(10, 6, out) for v in (whole, part))
    np.testing.assert_array_equal(part[3:8], whole[3:8])
    assert (part[[*range(3), 8, 9]] == 77).all()
    assert len(np.unique(whole)) > 20


@pytest.mark.parametrize("special", [0, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45])
def test_ranges_and_codes(calls, special):
    rng = np.random.default_rng(SEED)
    for count in (*range(1, 18), 31, 32, 33, 100):
        for shift in (0, 5, -5):
            x = (rng.normal(0, 1, count) + shift).astype(f32)
            x[rng.integers(count)] = special
            buffers = {"MIDGE_OP_X": x, "MIDGE_OP_Y": bytes(16 + count)}
            y = both(calls, "midge_dynamic_quantize", {"MIDGE_MAP_COUNT": count}, buffers)
            assert np.frombuffer(y[:4], f32) != 0
