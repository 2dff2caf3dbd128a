"""Quantization at run time follows DynamicQuantizeLinear, bit for bit."""

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from midge.convert.ort import make_session, run
from midge.quant.dynamic import dynamic_codes, dynamic_params, dynamic_rescale

f32 = np.float32


@pytest.fixture(scope="module")
def reference():
    """ONNX Runtime's DynamicQuantizeLinear."""
    text = "g (float[n] x) => (uint8[n] q, float s, uint8 z) { q, s, z = DynamicQuantizeLinear(x) }"
    graph = onnx.parser.parse_graph(text)
    opset = [onnx.helper.make_opsetid("", 17)]
    session = make_session(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8))
    return lambda x: run(session, {"x": x})


def ours(x):
    scale, zero_point = dynamic_params(x[None])
    codes = dynamic_codes(x[None], scale, zero_point)[0]
    return codes.astype(np.int32) + 128, scale[0], zero_point[0] + 128


values = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


@settings(max_examples=200, deadline=None)
@given(x=arrays(f32, st.integers(1, 40), elements=values))
def test_codes_scale_and_zero_point_are_those_of_onnx_runtime(reference, x):
    if 0 < np.abs(x).max() < 1e-30:
        return  # the scale underflows: ONNX Runtime divides by 0, midge takes 1
    for got, want in zip(ours(x), reference(x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_zeros_have_scale_1():
    codes, scale, zero_point = ours(np.zeros(5, f32))
    assert (scale, zero_point) == (1, 0)
    assert not codes.any()


def test_the_range_includes_0():
    codes, scale, zero_point = ours(f32([10, 20]))
    assert zero_point == 0
    assert scale == f32(20) / f32(255)
    assert list(codes) == [127, 255]  # 10 over a scale just above 20 / 255


def test_what_is_no_number_takes_no_part_and_gets_the_lowest_code():
    codes, scale, zero_point = ours(f32([np.nan, 1, -1]))
    assert scale == f32(2) / f32(255)
    assert codes[0] == 0
    assert zero_point == 127  # 1 over a scale just above 2 / 255


def test_a_range_too_small_for_a_scale_gives_zeros():
    codes, scale, zero_point = ours(f32([1e-45, 0]))
    assert (scale, zero_point) == (1, 0)
    assert not codes.any()


def test_rescaling_rounds_three_times():
    rng = np.random.default_rng(1)
    acc = rng.integers(-(2**31), 2**31, (50, 3)).astype(np.int32)
    s_x, s_w, bias = f32(0.013), rng.uniform(0, 1, 3).astype(f32), rng.normal(0, 1e6, 3).astype(f32)
    got = dynamic_rescale(acc, np.asarray(s_x), s_w, bias)
    for (i, c), value in np.ndenumerate(got):
        m = f32(s_x * s_w[c])
        assert value == f32(f32(f32(acc[i, c]) * m) + bias[c])
