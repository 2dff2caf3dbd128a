"""Sums of two uint8 x int8 products beyond int16: the proof, and ONNX Runtime where they happen."""

import json
from itertools import combinations

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midge.convert import ort
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.onnx_in import read_model
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.reference import needs_exact_kernels
from midge.convert.saturation import INT16_MAX, Saturation, largest_pair, saturation_of
from midge.convert.verify import verify
from midge.core.errors import InputError
from midge.quant.scheme import REDUCED_WEIGHT_MAX, quantize_weights

saturates_here = pytest.mark.skipif(
    not needs_exact_kernels(), reason="ONNX Runtime's kernels for this processor do not saturate"
)
# Weights and inputs of one sign: nearly every sum of two products is beyond int16.
TEXT = """<ir_version: 9, opset_import: ["" : 17]>
net (float[1,8,6,6] x) => (float[1,5] y, float[1,3] z)
{
    a = Conv<pads=[1,1,1,1]>(x, w, b)
    r = Relu(a)
    c = Conv<group=2>(r, v)
    f = GlobalAveragePool(c)
    h = Flatten(f)
    y = Gemm<transB=1>(h, m, n)
    z = MatMul(h, k)
}
"""
LAYERS = ("Conv_0", "Conv_2", "Gemm_5", "MatMul_6")
SHAPES = {"w": (6, 8, 3, 3), "b": (6,), "v": (4, 3, 3, 3), "m": (5, 4), "n": (5,), "k": (4, 3)}
FLOAT_ERROR = 1e-5  # relative: sums of floats behind exact integers


@pytest.fixture
def net(tmp_path):
    """The path of a float model, and its data."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(TEXT)
    for name, shape in SHAPES.items():
        array = rng.uniform(0.5, 1, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "net.onnx")
    np.save(tmp_path / "data.npy", rng.uniform(0, 1, (12, 8, 6, 6)).astype(np.float32))
    return tmp_path / "net.onnx", tmp_path / "data.npy"


def quantized(net, **options):
    """Quantize the model and return the path and the report."""
    path, data = net
    out = path.with_name("net.int8.onnx")
    static = options.get("mode", "static") == "static"
    report = quantize_file(path, out, str(data) if static else None, QuantizeOptions(**options))
    return out, report


def differing(path, data, **session):
    """Return the share of outputs in which a plain session leaves the executor, and by how much."""
    samples = np.load(data)[:, None]
    expected = Executor(lower(read_model(path), name="net")).run_batch([samples])
    opened = ort.make_session(path, threads=1, **session)
    runs = [ort.run(opened, {"x": x}) for x in samples]
    pairs = [(np.stack(y), want) for y, want in zip(zip(*runs, strict=True), expected, strict=True)]
    share = max(float((got != want).mean()) for got, want in pairs)
    return share, max(float(np.abs(got - want).max() / np.abs(want).max()) for got, want in pairs)


@saturates_here
@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
def test_onnx_runtime_differs_without_and_agrees_with_a_reduced_range(net, activation_type):
    path, report = quantized(net, activation_type=activation_type)
    assert report.saturation.layers == LAYERS
    assert differing(path, net[1])[0] > 0.5
    assert differing(path, net[1], exact=True)[0] == 0  # the other remedy of the notice
    path, report = quantized(net, activation_type=activation_type, reduce_range=True)
    assert report.saturation.layers == ()
    assert differing(path, net[1])[0] == 0


@saturates_here
def test_dynamic_layers_saturate_alike(net):
    path, report = quantized(net, mode="dynamic")
    assert report.saturation.layers == LAYERS
    assert differing(path, net[1])[1] > 0.1
    assert differing(path, net[1], exact=True)[1] < FLOAT_ERROR
    path, report = quantized(net, mode="dynamic", reduce_range=True)
    assert report.saturation.layers == ()
    assert differing(path, net[1])[1] < FLOAT_ERROR


@saturates_here
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_verify_needs_no_exact_kernels_where_the_weights_prove_it(net, mode):
    samples = [{"x": x[None]} for x in np.load(net[1])]
    for reduce_range in (False, True):
        path, _ = quantized(net, mode=mode, reduce_range=reduce_range)
        report = verify(path, samples, with_c=False)
        assert report.holds, report.level
        assert ("no VNNI" in report.level) == (not reduce_range)


def test_a_reduced_range_still_fits_the_float_model(net):
    path, _ = quantized(net, reduce_range=True)
    samples = np.load(net[1])[:, None]
    floats = ort.make_session(net[0], threads=1)
    want = np.stack([ort.run(floats, {"x": x})[0] for x in samples])
    got = Executor(lower(read_model(path), name="net")).run_batch([samples])[0]
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_the_notice_counts_the_layers_and_names_both_remedies(net):
    _, report = quantized(net)
    (line,) = [line for line in report.notices if "saturate" in line]
    assert "may saturate in ONNX Runtime on x86 without VNNI: 4 of 4 layers" in line
    for word in ("the C is exact anyway", "--reduce-range", "session.x64quantprecision=1"):
        assert word in line
    marked = [c.node for c in report.coverage if "may saturate" in c.reason]
    assert tuple(marked) == LAYERS
    assert report.to_json()["saturation"]["may_saturate"] == list(LAYERS)


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_a_reduced_range_is_recorded_and_needs_no_notice(net, mode):
    _, report = quantized(net, mode=mode, reduce_range=True)
    assert not [line for line in report.notices if "saturate" in line]
    assert not [c for c in report.coverage if "saturate" in c.reason]
    record = json.loads(report.parameters.read_text())
    assert record["reduce_range"] is True
    assert record["saturation"]["layers"] == 4
    assert record["saturation"]["may_saturate"] == []
    assert set(record["saturation"]["pairs"]) == set(LAYERS)


def test_layers_in_float_arithmetic_do_not_count(net):
    _, report = quantized(net, nodes_to_exclude=("Conv_0",))
    assert set(report.saturation.pairs) == set(LAYERS[1:])
    _, report = quantized(net, mode="weight-only")
    assert report.saturation == Saturation()
    with pytest.raises(InputError, match="--reduce-range has no meaning in --mode weight-only"):
        quantized(net, mode="weight-only", reduce_range=True)


def test_a_raised_scale_keeps_the_reduced_range():
    W, B = np.full((2, 3), 0.5, np.float32), np.array([1e6, 0.5])
    codes = quantize_weights(W, B, np.float32(1e-4), 0, limit=REDUCED_WEIGHT_MAX)
    assert codes.raised == (0,)
    assert np.abs(codes.weight).max() == REDUCED_WEIGHT_MAX


@pytest.mark.parametrize(
    ("rows", "pair"),
    [
        ([[64, 64, 64]], 32_640),  # fits int16
        ([[65, 64, 0]], 32_895),  # does not
        ([[-65, 3, -64]], 32_895),
        ([[127, -127]], 32_385),  # one input is 0 where the sum is largest
        ([[127], [127]], 32_385),  # two channels, one weight each
        ([[0, 0, 0]], 0),
    ],
)
def test_the_largest_sum_of_two_products(rows, pair):
    W = np.array(rows, np.int8)
    assert largest_pair(W, 0) == pair
    assert largest_pair(W.T, 1) == pair


@given(st.lists(st.integers(-128, 127), min_size=2, max_size=6))
def test_the_proof_is_what_trying_every_pair_gives(row):
    sums = [a * x + b * y for a, b in combinations(row, 2) for x in (0, 255) for y in (0, 255)]
    fits = all(-INT16_MAX - 1 <= s <= INT16_MAX for s in sums)
    assert (largest_pair(np.array([row], np.int8), 0) <= INT16_MAX) == fits


def test_a_layer_behind_moved_codes_counts_and_uint8_weights_do_not(qdq):
    graph = qdq(3)
    x = graph.input([1, 3, 4, 4])
    flat = graph.node("Flatten", [x])  # ONNX Runtime moves the DequantizeLinear behind it
    graph.params[flat] = graph.params[x]
    proto = graph.output(graph.layer("Gemm", flat, (48, 5), 48, axis=1)).proto()
    (gemm,) = (n for n in proto.graph.node if n.op_type == "Gemm")
    assert list(saturation_of(onnx_ir.from_proto(proto)).pairs) == [gemm.name]
    known = {tensor.name: tensor for tensor in proto.graph.initializer}
    (dequantize,) = (n for n in proto.graph.node if n.output[0] == gemm.input[1])
    for name in (dequantize.input[0], dequantize.input[2]):
        codes = onnx.numpy_helper.to_array(known[name])
        known[name].CopyFrom(onnx.numpy_helper.from_array(codes.astype(np.uint8), name))
    assert saturation_of(onnx_ir.from_proto(proto)) == Saturation()


def test_codes_that_only_moved_before_a_layer_are_codes(qdq):
    graph = qdq(0)
    cut = graph.constant(np.array([1, 12]))
    moved = graph.node("Reshape", [graph.node("Relu", [graph.input([1, 2, 2, 3])]), cut])
    weight = graph.dequantized(np.full((12, 4), 127, np.int8), np.float32(0.01))
    y = graph.quantized(graph.node("MatMul", [moved, weight]), (np.float32(1), 3))
    assert len(saturation_of(graph.output(y).model()).layers) == 1
