"""quantize_graph where it is not plain: exclusions, float islands, odd ranges, names, masks."""

import numpy as np
import pytest

from midge.convert import graph as g
from midge.convert.activation_params import params_from_ranges
from midge.convert.calibrate import calibrate
from midge.convert.canonical import canonicalize
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.passes.clamp_masks import tighten_masks
from midge.convert.quantize import quantize_graph
from midge.convert.select import select

rng = np.random.default_rng(9)


def f32(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


TWO = """(float[N,3,8,8] x) => (float[N,5,4,4] y) {
    c = Conv(x, w) r = Relu(c) y = Conv(r, v) }"""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"nodes_to_exclude": ("conv0",)}, "excluded"),
        ({"op_types_to_quantize": ("Relu",)}, "op-types"),
    ],
)
def test_excluded_nodes_and_operators_stay_in_float(build, quantized, options, reason):
    result, _ = quantized(build(TWO, w=f32(4, 3, 3, 3), v=f32(5, 4, 3, 3)), **options)
    coverage = {c.node: c for c in result.coverage}
    assert coverage["conv0"].state == "float"
    assert reason in coverage["conv0"].reason
    assert coverage["conv2"].state == ("quantized" if "nodes_to_exclude" in options else "float")


def test_a_float_operator_between_integer_ones_is_reported(build, quantized):
    model = build(
        "(float[N,4] x) => (float[N,5] y) { e = Gemm(x, w) h = Exp(e) y = Gemm(h, v) }",
        w=f32(4, 4),
        v=f32(4, 5),
    )
    result, sqnr = quantized(model)
    assert [c.state for c in result.coverage] == ["quantized", "quantized", "float"]
    assert sqnr > 25


def test_elementwise_nodes_between_float_ones_stay_in_float(build, quantized):
    model = build("(float[N,4] x) => (float[N,4] y) { e = Exp(x) m = Mul(e, e) y = Log(m) }")
    result, _ = quantized(model)
    assert {c.state for c in result.coverage} == {"float"}


def test_a_wide_concat_at_the_end_stays_in_float(build, quantized):
    model = build(
        """(float[N,8,6,6] x) => (float[N,10,6,6] y) {
            c = Conv(x, w) box = Mul(c, hundred) l = Conv(x, v) s = Sigmoid(l)
            y = Concat<axis=1>(box, s) }""",
        w=f32(4, 8, 1, 1),
        v=f32(6, 8, 1, 1),
        hundred=np.float32(100),
    )
    result, _ = quantized(model)
    concat = next(c for c in result.coverage if c.op_type == "Concat")
    assert concat.state == "float"
    assert "25 dB" in concat.reason


def test_a_concat_of_like_ranges_has_one_scale(build, quantized):
    model = build(
        """(float[N,8,6,6] x) => (float[N,10,6,6] y) {
            c = Conv(x, w) l = Conv(x, v) y = Concat<axis=1>(c, l) }""",
        w=f32(4, 8, 1, 1),
        v=f32(6, 8, 1, 1, scale=0.5),
    )
    result, sqnr = quantized(model)
    scales = {
        float(g.constant(n.inputs[1]))
        for n in result.model.graph
        if n.op_type == "QuantizeLinear" and n.inputs[0].name != "x"
    }
    assert len(scales) == 1
    assert sqnr > 25


def test_a_huge_bias_raises_the_scale_of_its_channel_only(build, quantized):
    w, b = f32(4, 3, 3, 3), f32(4)
    w[1] *= 1e-9
    b[1] = 500
    model = build("(float[N,3,8,8] x) => (float[N,4,6,6] y) { y = Conv(x, w, b) }", w=w, b=b)
    result, sqnr = quantized(model)
    assert sqnr > 30
    assert result.notices == [
        "conv0: the weight scale of channel 1 was raised to keep the bias within int32."
    ]


def test_sums_that_could_leave_int32_keep_a_layer_in_float(build, quantized):
    model = build(
        "(float[N,150000] x) => (float[N,2] y) { y = Gemm(x, w) }",
        w=np.ones((150000, 2), np.float32),
    )
    result, _ = quantized(model)
    assert "int32" in result.coverage[0].reason


@pytest.mark.parametrize(
    "name",
    [
        "w_quantized",
        "x_quantized",
        "x_dequantized",
        "x_scale",
        "x_zero_point",
        "w_scale",
        "conv0_W_quantized",
        "y_float",
        "x_QuantizeLinear_Output",
    ],
)
def test_names_like_our_own_survive(build, quantized, name):
    model = build(
        f"(float[N,3,8,8] x) => (float[N,4,6,6] y) {{ {name} = Conv(x, w) y = Sigmoid({name}) }}",
        w=f32(4, 3, 3, 3),
    )
    _, sqnr = quantized(model)
    assert sqnr > 25


def test_inputs_and_outputs_named_like_our_own_survive(build, quantized):
    model = build(
        "(float[N,3,8,8] x_scale) => (float[N,4,6,6] w_quantized) "
        "{ w_quantized = Conv(x_scale, w) }",
        w=f32(4, 3, 3, 3),
    )
    _, sqnr = quantized(model)
    assert sqnr > 25


def test_a_tensor_that_is_output_and_read_again_is_both(build, quantized):
    model = build(
        "(float[N,4] x) => (float[N,5] h, float[N,3] y) { h = Gemm(x, w) y = Gemm(h, v) }",
        w=f32(4, 5),
        v=f32(5, 3),
    )
    _, sqnr = quantized(model)
    assert sqnr > 30
    quantized(model, io_type="int8")


@pytest.mark.parametrize("mask", [-1e9, -np.inf, np.finfo(np.float32).min])
def test_masked_probabilities_are_exactly_zero(build, random_feeds, tmp_path, mask):
    causal = np.where(np.tri(6) > 0, np.float32(0), np.float32(mask)).astype(np.float32)
    model = build(
        """(float[N,6,6] x, float[N,6,6] z) => (float[N,6,6] p) {
            q = MatMul(x, z) s = Add(q, mask) p = Softmax<axis=-1>(s) }""",
        mask=causal,
    )
    canonicalize(model)
    samples = [random_feeds(model, np.random.default_rng(s)) for s in range(8)]
    ranges = tighten_masks(model, calibrate(model, samples))
    result = quantize_graph(model, params_from_ranges(select(model), ranges))
    assert {c.state for c in result.coverage} == {"quantized"}
    session, reference = (
        make_session(to_proto(result.model), exact=True),
        make_session(to_proto(model)),
    )
    for feeds in samples:
        (got,), (want,) = run(session, feeds), run(reference, feeds)
        assert not got[:, np.tri(6) == 0].any()
        assert np.abs(got - want).max() < 0.1
