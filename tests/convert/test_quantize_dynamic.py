"""Quantization without data: what is written, and what it computes."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.quantize_dynamic import DYNAMIC, WEIGHT_ONLY, quantize_weights
from midge.convert.reference import needs_exact_kernels
from midge.core.errors import InputError

f32 = np.float32
MODES = (DYNAMIC, WEIGHT_ONLY)
ERROR = 0.05  # relative L2 error of random weights and inputs through two layers of 8 bits
TEXT = """(float[N,4,6,6] x) => (float[N,5] y, float[N,3] z)
    { a = Conv<pads=[1,1,1,1]>(x, w, b)
      r = Relu(a)
      c = Conv<group=2>(r, v)
      f = GlobalAveragePool(c)
      h = Flatten(f)
      y = Gemm<transB=1>(h, m, n)
      z = MatMul(h, k) }"""


def float_model(build):
    rng = np.random.default_rng(2)

    def values(*shape):
        return rng.normal(0, 0.5, shape).astype(f32)

    constants = {"w": values(6, 4, 3, 3), "b": values(6), "v": values(4, 3, 3, 3)}
    model = build(TEXT, **constants, m=values(5, 4), n=values(5), k=values(4, 3))
    canonicalize(model)
    return model


def feeds_of(model):
    return {"x": np.random.default_rng(7).normal(0, 1, (1, 4, 6, 6)).astype(f32)}


def quantizing(model, mode, **options):
    quantized = quantize_weights(model, mode, **options)
    onnx.checker.check_model(to_proto(quantized.model), full_check=True)
    return quantized


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_the_file_runs_and_stays_near_the_float_model(build, mode, per_channel):
    model = float_model(build)
    quantized = quantizing(model, mode, per_channel=per_channel)
    feeds = feeds_of(model)
    exact = make_session(to_proto(quantized.model), exact=needs_exact_kernels())
    mine = Executor(lower(quantized.model, name="net")).run([feeds["x"]])
    want = run(make_session(to_proto(model)), feeds)
    for a, b, c in zip(want, run(exact, feeds), mine, strict=True):
        assert np.linalg.norm(b - a) < ERROR * np.linalg.norm(a)
        np.testing.assert_allclose(c, b, rtol=0, atol=1e-2 * np.abs(a).max())


@pytest.mark.parametrize("mode", MODES)
def test_names_of_inputs_outputs_and_the_given_model_stay(build, mode):
    model = float_model(build)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    quantized = quantizing(model, mode)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    for old, new in zip(
        (*model.graph.inputs, *model.graph.outputs),
        (*quantized.model.graph.inputs, *quantized.model.graph.outputs),
        strict=True,
    ):
        assert (old.name, old.dtype, old.shape) == (new.name, new.dtype, new.shape)


def test_a_dynamic_graph_multiplies_integers_and_quantizes_each_tensor_once(build, ops):
    found = ops(quantizing(float_model(build), DYNAMIC).model)
    assert found.count("DynamicQuantizeLinear") == 3  # x, r and h, which two layers read
    assert (found.count("ConvInteger"), found.count("MatMulInteger")) == (2, 2)
    assert not {"Conv", "Gemm", "MatMul"} & set(found)


def test_a_weight_only_graph_keeps_its_operators(build, ops):
    model = float_model(build)
    quantized = quantizing(model, WEIGHT_ONLY)
    found = ops(quantized.model)
    assert [op for op in found if op != "DequantizeLinear"] == ops(model)
    axes = [g.attribute(n, "axis") for n in quantized.model.graph if "Dequantize" in n.op_type]
    assert axes == [0, 0, 0, 1]  # of Conv, Conv, Gemm with transB, and what was a MatMul


def test_every_node_is_accounted_for(build):
    model = float_model(build)
    refused = {g.label(model.graph[0]): "excluded by the user"}
    coverage = quantizing(model, DYNAMIC, refused=refused).coverage
    assert [c.node for c in coverage] == [g.label(n) for n in model.graph]
    assert coverage[0].state == "float"
    assert coverage[0].reason == "excluded by the user"
    assert [c.op_type for c in coverage if c.state == "quantized"] == ["Conv", "Gemm", "Gemm"]


def test_scales_are_those_of_the_weights(build):
    model = float_model(build)
    scales = quantizing(model, WEIGHT_ONLY).scales
    first = model.graph[0]
    W = g.constant(first.inputs[1])
    want = np.abs(W.reshape(len(W), -1)).max(axis=1) / 127
    np.testing.assert_allclose(scales[g.label(first)], want, rtol=1e-6)


@pytest.fixture
def path(build, tmp_path):
    file = tmp_path / "net.onnx"
    file.write_bytes(to_proto(float_model(build)).SerializeToString())
    return file


@pytest.mark.parametrize("mode", MODES)
def test_files_need_no_data_and_say_how_they_were_made(path, tmp_path, mode):
    out = tmp_path / "net.int8.onnx"
    report = quantize_file(path, out, None, QuantizeOptions(mode=mode))
    assert report.samples == 0
    assert report.counts["quantized"] == 4
    record = json.loads((tmp_path / "net.quant.json").read_text())
    assert record["mode"] == mode
    assert len(record["weights"]) == 4
    again = tmp_path / "again.onnx"
    quantize_file(path, again, None, QuantizeOptions(mode=mode))
    assert again.read_bytes() == out.read_bytes()
    report = quantize_file(out, again, None, QuantizeOptions(mode=mode))
    assert again.read_bytes() == out.read_bytes()
    assert any("is quantized already" in line for line in report.notices)


def test_nothing_is_written_where_data_is_missing_or_left_over(path, tmp_path):
    out = tmp_path / "out.onnx"
    with pytest.raises(InputError, match="needs calibration data"):
        quantize_file(path, out, None, QuantizeOptions())
    for mode in MODES:
        with pytest.raises(InputError, match="takes no calibration data"):
            quantize_file(path, out, "random", QuantizeOptions(mode=mode))
        with pytest.raises(InputError, match=f"--io-type int8 has no meaning in --mode {mode}"):
            quantize_file(path, out, None, QuantizeOptions(mode=mode, io_type="int8"))
        with pytest.raises(InputError, match="--samples 5 has no meaning"):
            quantize_file(path, out, None, QuantizeOptions(mode=mode, samples=5))
        with pytest.raises(InputError, match="--skip-bad-samples has no meaning"):
            quantize_file(path, out, None, QuantizeOptions(mode=mode, skip_bad_samples=True))
    with pytest.raises(InputError, match="--mode 'dynamc' must be one of static, dynamic"):
        quantize_file(path, out, None, QuantizeOptions(mode="dynamc"))
    assert not out.exists()


def test_a_layer_that_has_no_constant_weight_stays_in_float(build):
    model = build("(float[N,3] x, float[3,4] w) => (float[N,4] y) { a = Neg(x) y = MatMul(a, w) }")
    for mode in MODES:
        quantized = quantizing(model, mode)
        assert [c.state for c in quantized.coverage] == ["float", "float"]
        assert "no constant" in quantized.coverage[1].reason


def test_sums_that_could_leave_int32_are_refused(build):
    model = build(
        "(float[N,70000] x) => (float[N,1] y) { y = MatMul(x, w) }", w=np.ones((70000, 1), f32)
    )
    quantized = quantizing(model, DYNAMIC)
    with pytest.raises(InputError, match="could leave int32"):
        lower(quantized.model, name="net")


def test_options_reach_the_file(path, tmp_path):
    out, options = tmp_path / "out.onnx", {"mode": DYNAMIC, "per_channel": False}
    quantize_file(path, out, None, QuantizeOptions(**options, op_types_to_quantize=("Conv",)))
    model = read_model(out)
    kinds = [n.op_type for n in model.graph]
    assert "ConvInteger" in kinds
    assert "MatMulInteger" not in kinds
    assert "Gemm" in kinds
