"""--input-value on the command line."""

import json

import numpy as np
import onnx
import pytest

from midge.cli.cmd_bench import values_of_each

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
net (float[2,3] x, bool on) => (float[2,3] y) { zero = Neg(x) y = Where(on, x, zero) }"""
# Only where `on` is known does one branch remain, which is all that C can be written for.
BRANCHES = """<ir_version: 9, opset_import: ["" : 17]>
net (float[2,3] x, bool on) => (float[2,3] y)
<float[3,3] W = {1, 2, -3, 4, 5, 6, -7, 8, 9}>
{
    m = MatMul(x, W)
    y = If (on) <
        then_branch = yes () => (float[2,3] a) { a = Tanh(m) },
        else_branch = no () => (float[2,3] b) { b = Neg(m) }
    >
}"""
COMMANDS = ("verify", "bench")


@pytest.fixture
def branches(tmp_path):
    onnx.save(onnx.parser.parse_model(BRANCHES), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.mark.parametrize("text", ["on=true", "on=0"])
def test_convert_makes_the_input_a_constant(midge, tmp_path, text):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "net.onnx")
    out = tmp_path / "out.onnx"
    status, _, error = midge("convert", tmp_path / "net.onnx", "-o", out, "--input-value", text)
    assert status == 0, error
    assert [i.name for i in onnx.load(out).graph.input] == ["x"]


@pytest.mark.parametrize("text", ["on", "=1", "on=yes", "on=nan"])
@pytest.mark.parametrize("name", ["convert", *COMMANDS])
def test_what_is_no_number_is_a_usage_error(midge, tmp_path, branches, name, text):
    output = ("-o", tmp_path / "o.onnx") if name == "convert" else ()
    status, _, error = midge(name, branches, *output, "--input-value", text)
    assert status == 2
    assert "NAME=16000" in error


@pytest.mark.parametrize("name", COMMANDS)
def test_a_value_for_no_input_is_refused_with_the_nearest(midge, branches, name):
    status, _, error = midge(name, branches, "--input-value", "onn=1")
    assert status == 2
    assert "no input 'onn'" in error
    assert "Did you mean 'on'" in error


def test_verify_compares_the_network_with_its_constant(midge_json, midge, branches):
    status, _, error = midge("verify", branches, "--samples", 3)
    assert status == 2, error
    report = midge_json("verify", branches, "--samples", 3, "--input-value", "on=1")
    assert report["holds"]
    assert report["checks"][0]["name"] == "y"
    assert report["level"]


def test_verify_takes_a_folder_that_was_compiled_for_the_value(midge, midge_json, branches):
    folder = branches.with_name("c")
    midge_json("compile", branches, "-o", folder, "--input-value", "on=0")
    check = ("verify", branches, "--samples", 3, "--c", folder, "--input-value")
    assert midge_json(*check, "on=0")["holds"]
    status, _, error = midge(*check, "on=1")
    assert status in (1, 2), error


def test_verify_shows_the_tensors_of_a_quantized_file_that_has_the_input(midge_json, tmp_path):
    chosen = BRANCHES.split("y = If")[0] + "n = Neg(m) y = Where(on, m, n) }"
    onnx.save(onnx.parser.parse_model(chosen), tmp_path / "net.onnx")
    data, out = tmp_path / "d.npz", tmp_path / "net.int8.onnx"
    x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    np.savez(data, x=x.reshape(4, 2, 3), on=np.array([True, False] * 2))
    midge_json("quantize", tmp_path / "net.onnx", "-o", out, "--calib-data", data)
    assert [i.name for i in onnx.load(out).graph.input] == ["x", "on"]
    report = midge_json("verify", out, "--samples", 4, "--input-value", "on=0")
    assert report["holds"]
    compared = [c["name"] for c in report["checks"] if c["ort_mismatches"] == 0]
    assert {"y", "x_quantized", "m_quantized"} <= set(compared)


def test_verify_reads_data_without_the_input_that_is_constant(midge_json, branches):
    data = branches.with_name("x.npy")
    np.save(data, np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32))
    report = midge_json("verify", branches, "--data", data, "--input-value", "on=1")
    assert report["holds"]
    assert report["samples"] == 1


def test_bench_lets_other_engines_run_the_same_network(midge, midge_json, branches):
    status, _, error = midge("bench", branches, "--chunks", 3)
    assert status == 2, error
    report = midge_json("bench", branches, "--chunks", 3, "--input-value", "on=1")
    assert report["notices"] == []
    assert report["timings"]["ONNX Runtime, float32"]["difference"] < 1e-5


def test_bench_gives_the_value_to_the_float_model_that_still_has_the_input(
    midge_json, tmp_path, branches
):
    data, out = tmp_path / "x.npy", tmp_path / "net.int8.onnx"
    np.save(data, np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32))
    value = ("--input-value", "on=1")
    midge_json("quantize", branches, "-o", out, "--calib-data", data, *value)
    beside = ("--float-model", branches, "--chunks", 3, *value)
    report = midge_json("bench", out, *beside)
    assert report["notices"] == []
    assert set(report["timings"]) >= {"ONNX Runtime, int8", "ONNX Runtime, float32"}


def test_bench_gives_each_model_the_values_of_its_own_inputs(midge_json, branches):
    bound = branches.with_name("bound.onnx")
    midge_json("convert", branches, "-o", bound, "--input-value", "on=1")
    values = {"on": 1.0, "x": 0.5, "other": 2.0}
    assert values_of_each(bound, branches, values) == (
        {"x": 0.5, "other": 2.0},
        {"on": 1.0, "x": 0.5},
    )
    assert values_of_each(branches, bound, values) == (values, {"x": 0.5})
    assert values_of_each(branches, None, values) == (values, {})


@pytest.mark.parametrize("lines", ["{on: true}", "[on=1]"])
def test_a_config_file_may_hold_the_value(midge, tmp_path, branches, lines):
    config = tmp_path / "c.yaml"
    config.write_text(f"input-value: {lines}\nsamples: 2\n")
    status, out, error = midge("verify", branches, "--config", config, "--json")
    assert status == 0, error
    assert json.loads(out)["samples"] == 2
