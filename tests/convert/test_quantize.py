"""quantize_graph: where Q and DQ go, which parameters they have, and what stays in float."""

import numpy as np
import onnx
import pytest

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.pipeline import quantize_file
from midge.convert.quantize import quantize_graph
from midge.core.errors import InputError
from midge.quant.scheme import QuantParams, WeightCodes

rng = np.random.default_rng(3)
FUSED = {"QLinearConv", "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearSoftmax"}
MOVES = {"Transpose", "Reshape", "Flatten", "MaxPool", "NhwcMaxPool"}


def f32(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


@pytest.fixture
def optimized(tmp_path):
    """A function that lists the operators that ONNX Runtime runs."""

    def ops(model):
        path = tmp_path / "optimized.onnx"
        make_session(to_proto(model), exact=True, dump=path)
        return [n.op_type for n in onnx.load(path).graph.node]

    return ops


NET = """(float[N,8,8,3] x) => (float[N,5] y) {
    t = Transpose<perm=[0,3,1,2]>(x) c = Conv<pads=[1,1,1,1]>(t, w, b) r = Relu(c)
    d = Conv<group=4, pads=[1,1,1,1]>(r, v) s = Add(d, r) q = Relu(s)
    m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(q) a = AveragePool<kernel_shape=[4,4]>(m)
    f = Flatten(a) h = MatMul(f, u) k = Add(h, e) y = Softmax<axis=1>(k) }"""


WEIGHTS = {"w": f32(4, 3, 3, 3), "b": f32(4), "v": f32(4, 1, 3, 3), "u": f32(4, 5), "e": f32(5)}


def net(build):
    return build(NET, **WEIGHTS)


def test_a_whole_network_runs_in_integers(build, quantized, optimized):
    result, sqnr = quantized(net(build))
    assert sqnr > 25
    assert {c.state for c in result.coverage} == {"quantized"}
    edges = {"QuantizeLinear", "DequantizeLinear"}
    ops = optimized(result.model)
    assert set(ops) <= FUSED | MOVES | edges
    assert [ops.count(e) for e in sorted(edges)] == [1, 1]


def test_names_types_and_shapes_of_inputs_and_outputs_stay(build, quantized):
    model = net(build)
    result, _ = quantized(model)
    for old, new in zip(
        (*model.graph.inputs, *model.graph.outputs),
        (*result.model.graph.inputs, *result.model.graph.outputs),
        strict=True,
    ):
        assert (old.name, old.dtype, g.dims(old)) == (new.name, new.dtype, g.dims(new))


def test_the_model_that_is_given_stays_as_it_is(build, quantized, ops):
    model = net(build)
    canonicalize(model)
    before = to_proto(model).SerializeToString(deterministic=True)
    quantized(model)
    assert to_proto(model).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
def test_both_activation_types_compute_the_same_codes(build, quantized, activation_type):
    _, sqnr = quantized(net(build), activation_type=activation_type)
    assert sqnr > 25


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
@pytest.mark.parametrize("io_type", ["uint8", "int8"])
def test_io_types_strip_the_outer_conversions(
    build, quantized, random_feeds, activation_type, io_type
):
    outer, _ = quantized(net(build), io_type=io_type, activation_type=activation_type)
    whole, _ = quantized(net(build), activation_type=activation_type)
    x, y = outer.model.graph.inputs[0], outer.model.graph.outputs[0]
    assert (x.name, y.name) == ("x", "y")
    assert str(x.dtype) == str(y.dtype) == io_type.upper()
    session = make_session(to_proto(whole.model), level="none")
    feeds = random_feeds(whole.model, np.random.default_rng(0))
    q = next(n for n in whole.model.graph if n.op_type == "QuantizeLinear")
    scale, zero = (g.constant(v) for v in q.inputs[1:])
    shift = {"uint8": 128, "int8": 0}[io_type] - {"uint8": 128, "int8": 0}[activation_type]
    code_type = np.dtype(io_type)
    codes = np.rint(feeds["x"] / scale) + float(zero) + shift
    info = np.iinfo(code_type)
    codes = np.clip(codes, info.min, info.max).astype(code_type)
    (got,) = run(make_session(to_proto(outer.model), level="none"), {"x": codes})
    (want,) = run(session, feeds)
    low = 0 if io_type == "uint8" else -128
    np.testing.assert_array_equal((got.astype(np.float32) - low) / 256, want)


def test_a_type_for_an_output_in_float_is_refused(build, quantized):
    model = build("(float[N,4] x) => (float[N,5] y) { h = Gemm(x, w) y = Exp(h) }", w=f32(4, 5))
    with pytest.raises(InputError, match=r"output 'y' is not quantized"):
        quantized(model, io_type="int8")
    model = build("(float[N,4] x) => (float[N,5] y) { h = Exp(x) y = Gemm(h, w) }", w=f32(4, 5))
    with pytest.raises(InputError, match=r"input 'x' is not quantized"):
        quantized(model, io_type="int8")


def scales_of(model, node):
    return g.constant(node.inputs[1].producer().inputs[1])


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_scales_run_along_its_outputs(build, quantized, transposed):
    w = f32(16, 8) * np.logspace(-2, 1, 8, dtype=np.float32)
    model = build(
        f"(float[N,16] x) => (float[N,8] y) {{ y = Gemm<transB={transposed}>(x, w) }}",
        w=w.T.copy() if transposed else w,
    )
    result, sqnr = quantized(model)
    gemm = next(n for n in result.model.graph if n.op_type == "Gemm")
    np.testing.assert_allclose(scales_of(result.model, gemm), np.abs(w).max(0) / 127, rtol=1e-6)
    assert sqnr > 30


def test_per_tensor_weights_have_one_scale(build, quantized):
    result, _ = quantized(net(build), per_channel=False)
    layers = [n for n in result.model.graph if n.op_type in ("Conv", "Gemm")]
    assert [scales_of(result.model, n).shape for n in layers] == [()] * 3


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose_scales_run_along_axis_1(build, quantized, groups):
    model = build(
        f"(float[N,4,H,W] x) => (float[N,6,A,B] y) {{ y = ConvTranspose<group={groups}, "
        "strides=[2,2]>(x, w, b) }",
        w=f32(4, 6 // groups, 3, 3),
        b=f32(6),
    )
    result, sqnr = quantized(model)
    node = next(n for n in result.model.graph if n.op_type == "ConvTranspose")
    assert scales_of(result.model, node).shape == (6 // groups,)
    assert sqnr > 30


def test_a_stack_of_matrices_is_quantized_as_one(build, quantized):
    model = build("(float[17,5,16] x) => (float[17,5,8] y) { y = MatMul(x, w) }", w=f32(17, 16, 8))
    result, sqnr = quantized(model)
    assert result.coverage[0].reason == "accumulate, per tensor"
    assert sqnr > 30


def test_a_shared_weight_gets_bias_codes_for_each_consumer(build, quantized):
    model = build(
        """(float[N,3,8,8] x) => (float[N,4,6,6] y, float[N,4,6,6] z) {
            y = Conv(x, w, b) big = Mul(x, fifty) s = Sigmoid(big) z = Conv(s, w, b) }""",
        w=f32(4, 3, 3, 3),
        b=f32(4),
        fifty=np.float32(50),
    )
    _, sqnr = quantized(model)
    assert sqnr > 30


def test_moves_share_the_parameters_of_their_input(build, quantized):
    result, _ = quantized(net(build))
    scales = {}
    for node in result.model.graph:
        if node.op_type == "QuantizeLinear":
            scales[node.inputs[0].name] = float(g.constant(node.inputs[1]))
    assert scales["x"] == scales["t"]
    assert scales["q"] == scales["m"]
    assert scales["a"] == scales["f"]


def test_a_clip_that_saturation_cannot_do_stays_on_codes(build, quantized, ops):
    model = build(
        "(float[N,4] x) => (float[N,5] y) { h = Gemm(x, w) y = Clip(h, lo, hi) }",
        w=f32(4, 5),
        lo=np.float32(-1),
        hi=np.float32(1),
    )
    canonicalize(model)
    wide = {"x": QuantParams(np.float32(0.02), 128), "y": QuantParams(np.float32(0.03), 128)}
    tight = {"x": wide["x"], "y": QuantParams(np.float32(2 / 255), 127)}
    assert "Clip" in ops(quantize_graph(model, wide).model)
    assert "Clip" not in ops(quantize_graph(model, tight).model)
    x = f32(50, 4)
    for params in (wide, tight):
        proto = to_proto(quantize_graph(model, params).model)
        (got,) = run(make_session(proto, exact=True), {"x": x})
        assert np.abs(got).max() <= 1 + params["y"].scale / 2


def test_softmax_has_its_fixed_scale(build, quantized):
    result, _ = quantized(net(build))
    q = [n for n in result.model.graph if n.op_type == "QuantizeLinear"][-1]
    assert (float(g.constant(q.inputs[1])), int(g.constant(q.inputs[2]))) == (1 / 256, 0)


def test_a_softmax_over_many_classes_stays_in_float(build, tmp_path):
    model = build(
        "(float[N,600] x) => (float[N,600] y) { h = Gemm(x, w) y = Softmax<axis=1>(h) }",
        w=f32(600, 600, scale=0.02),
    )
    onnx.save(to_proto(model), tmp_path / "net.onnx")
    np.save(tmp_path / "calib.npy", f32(8, 600))
    report = quantize_file(tmp_path / "net.onnx", tmp_path / "q.onnx", str(tmp_path / "calib.npy"))
    softmax = next(c for c in report.coverage if c.op_type == "Softmax")
    assert softmax.state == "float"
    assert "largest probability" in softmax.reason


def test_given_codes_are_written_as_they_are(build):
    model = build("(float[N,4] x) => (float[N,5] y) { h = Gemm(x, w) y = Relu(h) }", w=f32(4, 5))
    canonicalize(model)
    p = QuantParams(np.float32(0.02), 0)
    codes = WeightCodes(
        rng.integers(-127, 128, (4, 5)).astype(np.int8),
        np.full(5, 0.01, np.float32),
        np.arange(5, dtype=np.int32),
    )
    result = quantize_graph(model, {"x": p, "y": p}, {"y": codes})
    gemm = next(n for n in result.model.graph if n.op_type == "Gemm")
    np.testing.assert_array_equal(g.constant(gemm.inputs[1].producer().inputs[0]), codes.weight)
    np.testing.assert_array_equal(g.constant(gemm.inputs[2].producer().inputs[0]), codes.bias)
    assert result.codes["y"] is codes


def test_missing_parameters_are_named(build):
    model = build("(float[N,4] x) => (float[N,5] y) { y = Gemm(x, w) }", w=f32(4, 5))
    with pytest.raises(InputError, match="'y'"):
        quantize_graph(model, {"x": QuantParams(np.float32(0.02), 0)})
