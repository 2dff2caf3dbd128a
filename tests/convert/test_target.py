"""Targets: which kernel serves a record on which instruction set, and what a layer needs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midge.convert import pack, target
from midge.convert.plan import FullyConnected, Requantization
from midge.convert.target import C99, X86_64, block_pixels, is_packed


def layer(weight, bias=0, x_zero_point=0, weight_zero_point=0):
    weight = np.asarray(weight, np.int8)
    bias = np.full(len(weight), bias, np.int32)
    r = Requantization(np.ones(len(weight), np.float32), 0)
    return FullyConnected(weight, bias, x_zero_point, r, weight_zero_point)


def test_a_level_uses_the_best_kernel_that_its_processors_have(monkeypatch):
    known = frozenset({"k_avx2", "k_avxvnni", "j_avx2"})
    monkeypatch.setattr(target, "_vector_kernels", lambda: known)
    chosen = {level: X86_64.kernel("k", level) for level in X86_64.levels}
    # A processor with AVX512-VNNI may lack AVX-VNNI.
    assert chosen == {
        "portable": "k",
        "avx2": "k_avx2",
        "avxvnni": "k_avxvnni",
        "avx512f": "k_avx2",
        "avx512vnni": "k_avx2",
    }
    assert [X86_64.kernel("j", level) for level in X86_64.levels] == ["j"] + ["j_avx2"] * 4
    assert {X86_64.kernel("i", level) for level in X86_64.levels} == {"i"}


def test_floats_are_computed_in_512_bits_with_and_without_vnni():
    chosen = [X86_64.kernel("midge_conv2d_f32", level) for level in X86_64.levels]
    ends = [name.removeprefix("midge_conv2d_f32") for name in chosen]
    assert ends == ["", "_avx2", "_avx2", "_avx512f", "_avx512f"]


def test_panels_hold_neighbours_in_depth_side_by_side_and_nothing_for_missing_channels():
    weight = np.arange(18 * 5).reshape(18, 5).astype(np.int8)
    flat = pack.panels(weight)
    assert flat.size == 18 * 8  # the depth is rounded up to 8
    first = flat[: 16 * 8].reshape(2, 16, 4)
    last = flat[16 * 8 :].reshape(2, 2, 4)
    assert first[0, 3].tolist() == weight[3, :4].tolist()
    assert first[1, 3].tolist() == [weight[3, 4], 0, 0, 0]
    assert last[1, 1].tolist() == [weight[17, 4], 0, 0, 0]


@given(
    st.integers(-128, 127),
    st.integers(-128, 127),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**32 - 1),
)
def test_folded_biases_give_the_sums_of_the_definition(zero_point, w_zero_point, bias, seed):
    rng = np.random.default_rng(seed)
    weight, x = rng.integers(-128, 128, (3, 7)), rng.integers(-128, 128, 7)
    params = layer(weight, bias, zero_point, w_zero_point)
    centred = weight - w_zero_point
    want = (centred @ (x - zero_point) + bias).astype(np.int32)  # in C the sum wraps as well
    folded, _, _ = pack.fully_connected_panels(params)
    assert np.array_equal((centred @ x + folded).astype(np.int32), want)
    folded = pack._folded(params.bias, params, zero_point + 128)
    assert np.array_equal((centred @ (x + 128) + folded).astype(np.int32), want)


@pytest.mark.parametrize(
    ("params", "packed"),
    [
        (layer(np.ones((4, 9))), True),
        (layer(np.full((4, 9), -128)), True),
        (layer(np.ones((4, 9)), weight_zero_point=3), True),
        (layer(np.ones((1, 2**16))), False),  # the sum may leave 32 bits
    ],
)
def test_panels_serve_the_layers_whose_sums_fit(params, packed):
    assert is_packed(X86_64, params) is packed
    assert not is_packed(C99, params)


def test_more_pixels_are_multiplied_at_once_where_they_fit_a_cache():
    assert block_pixels(64, 1000, None) == 24
    assert block_pixels(4608, 1000, None) == 6
    assert block_pixels(64, 1000, 6) == 6
    assert block_pixels(64, 4, None) == 4
