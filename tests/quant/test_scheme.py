"""Ranges become scales that every operator can use."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midge.core.errors import InputError
from midge.quant.arithmetic import dequantize, quantize
from midge.quant.scheme import (
    BIAS_LIMIT,
    QuantParams,
    activation_params,
    bias_scale,
    quantize_weights,
    weight_codes,
    weight_scales,
)

bounds = st.floats(-1e6, 1e6, width=32)


@given(bounds, bounds, st.sampled_from(["uint8", "int8"]))
def test_every_range_holds_zero_exactly(low: float, high: float, dtype: str) -> None:
    low, high = min(low, high), max(low, high)
    p = activation_params(low, high, dtype)
    zero = quantize(np.zeros(1), p)
    assert zero[0] == p.zero_point
    assert dequantize(zero, p)[0] == 0


@given(bounds, bounds)
def test_the_bounds_survive_within_half_a_step(low: float, high: float) -> None:
    low, high = min(low, high, 0.0), max(low, high, 0.0)
    p = activation_params(low, high)
    back = dequantize(quantize(np.array([low, high]), p), p)
    assert np.abs(back - [low, high]).max() <= p.scale * 0.5001 + 1e-12


def test_a_collapsed_range_still_has_a_finite_positive_scale() -> None:
    p = activation_params(0, 0)
    assert np.isfinite(p.scale)
    assert p.scale > 0


@pytest.mark.parametrize("bad", [(np.nan, 1), (0, np.inf), (2, 1)])
def test_an_impossible_range_is_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="is no range"):
        activation_params(*bad)


@pytest.mark.parametrize("scale", [0, -1, np.nan, np.inf])
def test_an_impossible_scale_is_refused(scale: float) -> None:
    with pytest.raises(InputError, match="positive finite"):
        QuantParams(np.float32(scale), 0)


def test_the_other_type_is_the_same_mapping() -> None:
    p = activation_params(-3, 9)
    q = p.as_dtype("int8")
    assert q.zero_point == p.zero_point - 128
    assert q.as_dtype("uint8") == p


def test_weights_are_symmetric_and_never_minus_128() -> None:
    W = np.array([[-1.0, 0.5], [2.0, -4.0]])
    codes = weight_codes(W, weight_scales(W, 0, True), 0)
    assert codes.tolist() == [[-127, 64], [64, -127]]


def test_channels_follow_the_axis() -> None:
    rng = np.random.default_rng(1)
    W = rng.normal(size=(5, 3))
    down, across = quantize_weights(W, None, 0.1, 0), quantize_weights(W.T, None, 0.1, 1)
    assert np.array_equal(down.weight, across.weight.T)
    assert np.array_equal(down.scale, across.scale)


def test_a_dead_channel_keeps_its_bias() -> None:
    W = np.zeros((2, 4))
    W[0] = 1
    codes = quantize_weights(W, np.array([0.0, 7.0]), np.float32(0.1), 0)
    real = codes.bias[1] * float(bias_scale(np.float32(0.1), codes.scale)[1])
    assert codes.raised == (1,)
    assert np.isclose(real, 7.0, rtol=1e-6)


@given(
    st.floats(2**-30, 1, width=32), st.floats(-8192, 8192, width=32), st.floats(2**-20, 8, width=32)
)
def test_a_bias_never_reaches_the_limit(weight: float, bias: float, x_scale: float) -> None:
    W, B = np.array([[weight], [1.0]]), np.array([bias, 0.5])
    codes = quantize_weights(W, B, np.float32(x_scale), 0)
    assert np.abs(codes.bias.astype(np.int64)).max() < BIAS_LIMIT
