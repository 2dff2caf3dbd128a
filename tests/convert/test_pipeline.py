"""quantize_file and convert_file: the whole road, its files, and what goes wrong on it."""

import json
import os
from dataclasses import replace

import numpy as np
import onnx
import pytest

from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.pipeline import QuantizeOptions, convert_file, quantize_file
from midge.core.errors import CheckError, InputError

rng = np.random.default_rng(4)
NET = """(float[N,3,8,8] x) => (float[N,4,6,6] y) {
    c = Conv(x, w, b) n = BatchNormalization(c, gamma, beta, mean, var) r = Relu(n)
    y = Conv(r, v) }"""
WEIGHTS = {
    "w": rng.standard_normal((4, 3, 3, 3)),
    "b": rng.standard_normal(4),
    "v": rng.standard_normal((4, 4, 1, 1)),
    "gamma": np.ones(4),
    "beta": rng.standard_normal(4),
    "mean": rng.standard_normal(4),
    "var": np.ones(4),
}
WEIGHTS = {k: v.astype(np.float32) for k, v in WEIGHTS.items()}
DATA = rng.standard_normal((20, 3, 8, 8)).astype(np.float32)


@pytest.fixture
def files(build, tmp_path):
    """A float model, its calibration data, and where the quantized one goes."""
    onnx.save(to_proto(build(NET, **WEIGHTS)), tmp_path / "net.onnx")
    np.save(tmp_path / "calib.npy", DATA)
    return tmp_path / "net.onnx", str(tmp_path / "calib.npy"), tmp_path / "net.int8.onnx"


def refusal(*arguments):
    with pytest.raises(InputError) as caught:
        quantize_file(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_becomes_a_quantized_file_and_its_parameters(files):
    path, calib, out = files
    steps = []
    report = quantize_file(path, out, calib, progress=steps.append)
    assert steps == list(range(1, 21))
    assert report.counts == {"quantized": 3, "float": 0, "folded": 1, "refused": 0}
    assert [c.op_type for c in report.coverage] == ["Conv", "Conv", "Relu", "BatchNormalization"]
    assert report.parameters.name == "net.quant.json"
    record = json.loads(report.parameters.read_text())
    assert record["calibration"]["samples"] == report.samples == 20
    assert set(record["activations"]) == {"x", "r", "y"}
    assert len(record["weights"]["y"]["scale"]) == 4
    (want,) = run(make_session(path), {"x": DATA})
    (got,) = run(make_session(out, exact=True), {"x": DATA})
    assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) > 30
    assert json.loads(json.dumps(report.to_json()))["counts"]["folded"] == 1


def test_order_and_batching_of_samples_change_no_byte(files, tmp_path):
    path, calib, out = files
    first = tmp_path / "first.onnx"
    quantize_file(path, first, calib)
    np.save(tmp_path / "again.npy", DATA[::-1].reshape(10, 2, 3, 8, 8))
    for method in ("minmax", "percentile", "mse", "entropy"):
        options = QuantizeOptions(calibration_method=method)
        quantize_file(path, first, calib, options)
        quantize_file(path, out, str(tmp_path / "again.npy"), options)
        assert first.read_bytes() == out.read_bytes(), method


def test_a_quantized_file_is_written_as_it_is_and_the_report_says_so(files):
    path, calib, out = files
    quantize_file(path, out, calib)
    again = path.with_name("again.onnx")
    report = quantize_file(out, again, calib, QuantizeOptions(strict=True))
    assert again.read_bytes() == out.read_bytes()
    assert any("quantized already: again.onnx has its bytes" in line for line in report.notices)
    assert {(c.state, c.reason) for c in report.coverage} == {("quantized", "as the file has it")}
    assert json.loads(report.parameters.read_text())["mode"] == "quantized already"


@pytest.mark.parametrize(
    ("option", "value"), [("io_type", "int8"), ("reduce_range", True), ("per_channel", False)]
)
def test_an_option_that_a_quantized_file_cannot_follow_is_refused(files, option, value):
    path, calib, out = files
    quantize_file(path, out, calib)
    again = path.with_name("again.onnx")
    text = refusal(out, again, calib, QuantizeOptions(**{option: value}))
    assert f"--{option.replace('_', '-')} cannot be applied" in text


def test_what_was_excluded_once_is_quantized_when_it_no_longer_is(files):
    path, calib, out = files
    without = QuantizeOptions(nodes_to_exclude=("conv0",))
    quantize_file(path, out, calib, without)
    again = path.with_name("again.onnx")
    report = quantize_file(out, again, calib, without)
    assert again.read_bytes() == out.read_bytes()
    assert report.counts["float"] >= 1
    with pytest.raises(CheckError):
        quantize_file(out, again, calib, replace(without, strict=True))
    assert quantize_file(out, again, calib, QuantizeOptions(strict=True)).counts["float"] == 0


def test_misspelt_names_are_refused_with_the_nearest(files):
    path, calib, out = files
    text = refusal(path, out, calib, QuantizeOptions(nodes_to_exclude=("cnv0",)))
    assert "'cnv0'" in text
    assert "'conv0'" in text
    text = refusal(path, out, calib, QuantizeOptions(op_types_to_quantize=("Covn",)))
    assert "'Covn'" in text
    assert "'Conv'" in text
    assert not out.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [("calibration_method", "minmx"), ("activation_type", "int4"), ("io_type", "int16")],
)
def test_an_impossible_option_is_refused_before_anything_is_read(files, option, value):
    _, calib, out = files
    text = refusal("no such file", out, calib, QuantizeOptions(**{option: value}))
    assert value in text


def test_the_model_itself_is_never_overwritten(files):
    path, calib, _ = files
    before = path.read_bytes()
    assert "is the model that is read" in refusal(path, path, calib)
    assert path.read_bytes() == before


def test_an_output_that_cannot_be_written_is_told_before_calibration(files, tmp_path):
    path, _, _ = files
    assert "is a directory" in refusal(path, tmp_path, "no such data")
    assert "is no directory" in refusal(path, path / "below" / "a.onnx", "no such data")


def test_excluding_a_node_that_folds_says_that_it_has_no_effect(files):
    path, calib, out = files
    report = quantize_file(
        path, out, calib, QuantizeOptions(nodes_to_exclude=("batchnormalization1", "conv3"))
    )
    assert [c.state for c in report.coverage if c.node == "conv3"] == ["float"]
    assert any("batchnormalization1 has no effect" in line for line in report.notices)


def test_operators_to_quantize_are_those_of_the_file(build, tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "q.onnx"
    text = "(float[N,4] x) => (float[N,2] y) { h = MatMul(x, w) r = Relu(h) y = Gemm(r, v) }"
    model = build(text, w=np.ones((4, 3), np.float32), v=np.ones((3, 2), np.float32))
    onnx.save(to_proto(model), path)
    options = QuantizeOptions(op_types_to_quantize=("MatMul",))
    report = quantize_file(path, out, "random", options)
    assert {c.op_type: c.state for c in report.coverage} == {
        "MatMul": "quantized",
        "Relu": "float",
        "Gemm": "float",
    }


def test_a_collapsed_range_is_told(files, tmp_path):
    path, _, out = files
    np.save(tmp_path / "zero.npy", np.zeros_like(DATA))
    report = quantize_file(path, out, str(tmp_path / "zero.npy"))
    assert report.collapsed == ("x",)
    assert any("collapsed" in line and "'x'" in line for line in report.notices)
    (got,) = run(make_session(out), {"x": DATA})
    assert np.isfinite(got).all()


def test_a_bad_sample_stops_or_is_skipped(files, tmp_path):
    path, _, out = files
    bad = DATA.copy()
    bad[13, 0, 0, 0] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    assert "sample 13" in refusal(path, out, str(tmp_path / "bad.npy"))
    assert sorted(os.listdir(tmp_path)) == ["bad.npy", "calib.npy", "net.onnx"]
    options = QuantizeOptions(skip_bad_samples=True)
    report = quantize_file(path, out, str(tmp_path / "bad.npy"), options)
    assert report.samples == 19
    assert any("13" in line for line in report.notices)


def test_a_model_that_overflows_is_told_by_tensor(build, files, tmp_path):
    _, _, out = files
    model = build(
        "(float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Gemm(e, w) }",
        w=np.eye(4, dtype=np.float32),
    )
    onnx.save(to_proto(model), tmp_path / "net.onnx")
    np.save(tmp_path / "big.npy", np.full((2, 4), 1e3, np.float32))
    text = refusal(tmp_path / "net.onnx", out, str(tmp_path / "big.npy"))
    assert "sample 0" in text
    assert "'e'" in text


def test_random_calibration_says_that_it_means_nothing(files):
    path, _, out = files
    report = quantize_file(path, out, "random")
    assert any("random" in line for line in report.notices)


DYNAMIC = """(float[N,3,H,W] x) => (float[N,4,A,B] y) { c = Conv(x, w) y = Conv(c, v) }"""


def test_unknown_sizes_need_input_shape_unless_the_samples_vary(build, tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "q.onnx"
    onnx.save(to_proto(build(DYNAMIC, w=WEIGHTS["w"], v=WEIGHTS["v"])), path)
    np.save(tmp_path / "calib.npy", DATA)
    text = refusal(path, out, str(tmp_path / "calib.npy"))
    assert "--input-shape x=1,3,8,8" in text
    assert "--input-shape" in refusal(path, out, "random")
    options = QuantizeOptions(input_shapes={"x": (1, 3, 8, 8)})
    quantize_file(path, out, str(tmp_path / "calib.npy"), options)
    (tmp_path / "varying").mkdir()
    for index, size in enumerate((6, 8, 7)):
        np.savez(tmp_path / "varying" / f"{index}.npz", x=DATA[:2, :, :size, :size])
    quantize_file(path, out, str(tmp_path / "varying"))
    run(make_session(out), {"x": DATA[:, :, :5, :7]})


def test_a_model_without_anything_to_quantize_says_so(build, tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "q.onnx"
    onnx.save(to_proto(build("(float[N,3] x) => (float[N,3] y) { y = LpNormalization(x) }")), path)
    np.save(tmp_path / "calib.npy", np.ones((2, 3), np.float32))
    report = quantize_file(path, out, str(tmp_path / "calib.npy"))
    assert any("lpnormalization0 (LpNormalization)" in line for line in report.notices)


def test_convert_writes_the_canonical_float_model(files):
    path, _, _ = files
    out = path.with_name("canonical.onnx")
    report = convert_file(path, out)
    assert [c.state for c in report.coverage] == ["float"] * 3 + ["folded"]
    (want,), (got,) = run(make_session(path), {"x": DATA}), run(make_session(out), {"x": DATA})
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_an_interrupted_write_leaves_the_previous_good_file(files, monkeypatch):
    path, calib, out = files
    quantize_file(path, out, calib)
    before = out.read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize_file(path, out, calib, QuantizeOptions(samples=3), progress=interrupt)
    assert out.read_bytes() == before


MODELS = os.environ.get("MIDGE_MODELS")


@pytest.mark.skipif(not MODELS, reason="MIDGE_MODELS is not set")
@pytest.mark.parametrize(
    "name", ["ic01_resnet8", "kws01_dscnn", "vww_mnv1_025_96", "ad01_autoencoder"]
)
def test_real_networks_run_in_integers_from_end_to_end(name, tmp_path):
    path = f"{MODELS}/mlperf_tiny/{name}_fp32.onnx"
    out = tmp_path / "q.onnx"
    report = quantize_file(path, out, "random")
    assert report.counts["float"] == 0
    dump = tmp_path / "optimized.onnx"
    make_session(out, exact=True, dump=dump)
    ops = [n.op_type for n in onnx.load(dump).graph.node]
    assert not {"Conv", "FusedConv", "Gemm", "MatMul", "Add", "Relu", "Softmax"} & set(ops)
    assert ops.count("QuantizeLinear") == ops.count("DequantizeLinear") == 1
