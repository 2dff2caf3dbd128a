"""Every command on a small model: what it writes, what --json says, how it fails."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as rt
import pytest
from onnx import TensorProto, helper

from midge.cli.cmd_compile import name_from
from midge.convert.target import host_target
from midge.core.native import find_compiler

Files = dict[str, Path]
Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., dict[str, Any]]
SQUARE = {"x": (2, 3, 3), "y": (2,)}  # input and output of a determinant


def test_convert_folds_and_keeps_the_interface(
    files: Files, midge_json: RunJson, tmp_path: Path
) -> None:
    out = tmp_path / "out.onnx"
    value = midge_json("convert", files["model"], "-o", out)
    assert value["output"] == str(out)
    model = onnx.load(out)
    assert [v.name for v in model.graph.input] == ["x"]
    assert [v.name for v in model.graph.output] == ["y"]


def test_quantize_writes_a_file_that_onnx_runtime_runs_and_its_parameters(files: Files) -> None:
    session = rt.InferenceSession(files["quantized"], providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.load(files["calibration"])})
    assert y.shape == (16, 3)
    parameters = json.loads((files["quantized"].parent / "small.quant.json").read_text())
    assert parameters["calibration"]["samples"] == 16
    assert set(parameters["weights"]) >= {"r"}


def test_quantize_says_what_became_of_every_node(files: Files, midge_json: RunJson) -> None:
    value = midge_json(
        "quantize",
        files["model"],
        "-o",
        files["quantized"],
        "--calib-data",
        files["calibration"],
        "--nodes-to-exclude",
        "fc,softmax",
    )
    states = {c["node"]: c["state"] for c in value["coverage"]}
    assert states["conv"] == "quantized"
    assert states["fc"] == states["softmax"] == "float"
    assert set(states) == {"conv", "relu", "pool", "flatten", "fc", "softmax"}


def test_integer_inputs_and_outputs_on_request(files: Files, midge: Run) -> None:
    arguments = ("--calib-data", files["calibration"], "--io-type", "int8")
    status, _, err = midge("quantize", files["model"], "-o", files["quantized"], *arguments)
    assert status == 0, err
    graph = onnx.load(files["quantized"]).graph
    types = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    assert types == {onnx.TensorProto.INT8}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "No calibration data"),
        (("--calib-data", "CALIBRATION", "--random-calib"), "exclude each other"),
        (("--calib-data", "nowhere.npy"), "nowhere.npy"),
        (("--calib-data", "CALIBRATION", "--nodes-to-exclude", "con"), "Did you mean 'conv'?"),
        (("--calib-data", "CALIBRATION", "--op-types-to-quantize", "Convv"), "'Conv'"),
        (("--calib-data", "CALIBRATION", "--calibration-method", "minmx"), "minmax"),
        (("--calib-data", "CALIBRATION", "--io-type", "int4"), "int8"),
    ],
)
def test_quantize_refuses_wrong_input_and_writes_nothing(
    arguments: tuple[str, ...], says: str, files: Files, midge: Run, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out.onnx"
    given = [str(files["calibration"]) if a == "CALIBRATION" else a for a in arguments]
    status, stdout, err = midge("quantize", files["model"], "-o", out, *given)
    assert status == 2
    assert says in err
    assert "Traceback" not in err
    assert stdout == ""
    assert not out.exists()


def test_random_calibration_is_asked_for_and_told(files: Files, midge: Run) -> None:
    status, _, err = midge("quantize", files["model"], "-o", files["quantized"], "--random-calib")
    assert status == 0
    assert "random numbers" in err


def test_compile_writes_a_folder_that_builds_without_flags(
    files: Files, midge_json: RunJson, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    value = midge_json("compile", files["quantized"], "-o", folder, "--name", "tiny")
    assert value["macs"] == 4 * 36 * 18 + 12
    assert value["arena_bytes"] >= value["arena_bound"] > 0
    assert value["size"]["flash"] > value["size"]["weights"] > 0
    sources = sorted(str(f) for f in folder.glob("*.c"))
    command = [*find_compiler().argv, "-O2", "-c", *sources]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_the_same_command_writes_the_same_bytes_again(
    files: Files, midge_json: RunJson, tmp_path: Path
) -> None:
    again = tmp_path / "again" / files["quantized"].name
    midge_json("quantize", files["model"], "-o", again, "--calib-data", files["calibration"])
    assert again.read_bytes() == files["quantized"].read_bytes()
    for folder in ("one", "two"):
        midge_json("compile", again, "-o", tmp_path / folder, "--name", "net")
    written = sorted(f for f in (tmp_path / "one").rglob("*") if f.is_file())
    assert len(written) > 5
    for file in written:
        twin = tmp_path / "two" / file.relative_to(tmp_path / "one")
        assert file.read_bytes() == twin.read_bytes()


@pytest.mark.parametrize("name", ["1net", "my-net", "while", "midge"])
def test_compile_refuses_a_name_that_is_no_identifier(
    name: str, files: Files, midge: Run, tmp_path: Path
) -> None:
    status, _, err = midge("compile", files["quantized"], "-o", tmp_path / "c", "--name", name)
    assert status == 2
    assert "--name" in err
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("file", "name"),
    [("kws-v2.int8.onnx", "kws_v2"), ("net.onnx", "net"), ("..onnx", "model"), ("ü.onnx", "model")],
)
def test_a_name_is_made_from_the_file(file: str, name: str) -> None:
    assert name_from(Path(file)) == name


def test_compile_names_the_node_that_has_no_c_form(midge: Run, tmp_path: Path) -> None:
    square = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in SQUARE.items()]
    node = helper.make_node("Det", ["x"], ["y"], "volume")
    graph = helper.make_graph([node], "g", square[:1], square[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "d.onnx")
    status, _, err = midge("compile", tmp_path / "d.onnx", "-o", tmp_path / "c")
    assert status == 2
    assert "volume" in err
    assert "Det" in err
    assert not (tmp_path / "c").exists()


def test_verify_finds_no_difference(files: Files, midge_json: RunJson) -> None:
    value = midge_json("verify", files["quantized"], "--samples", 20)
    assert value["holds"] is True
    assert value["samples"] == 20
    assert value["mismatches"] == 0
    kinds = {check["kind"] for check in value["checks"]}
    assert {"output", "tensor"} <= kinds


def flip_one_weight_code(source: Path) -> None:
    """Change the last weight code of the first layer in NAME.c by one."""
    text = source.read_text(encoding="utf-8")
    start = text.index("_data[]")
    end = text.index("/*", text.index("/*", start) + 2)
    word = re.findall(r"0x[0-9a-f]{8}", text[start:end])[-1]
    at = text.rindex(word, start, end)
    flipped = f"0x{int(word, 16) ^ 1:08x}"
    source.write_text(text[:at] + flipped + text[at + len(word) :], encoding="utf-8")


def test_verify_holds_a_compiled_folder_against_its_model(
    files: Files, midge: Run, midge_json: RunJson, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    midge_json("compile", files["quantized"], "-o", folder, "--name", "net")
    assert midge_json("verify", files["quantized"], "--c", folder)["holds"] is True
    flip_one_weight_code(folder / "net.c")
    status, out, err = midge("verify", files["quantized"], "--c", folder, "--json")
    assert status == 1
    assert json.loads(out)["mismatches"] > 0
    assert "differ from the integer executor" in err


def test_verify_takes_real_data(files: Files, midge_json: RunJson) -> None:
    value = midge_json(
        "verify", files["quantized"], "--data", files["calibration"], "--requant", "int"
    )
    assert value["samples"] == 16
    assert value["holds"] is True


def test_bench_times_the_c_and_onnx_runtime(files: Files, midge_json: RunJson) -> None:
    value = midge_json("bench", files["quantized"], "--float-model", files["model"], "--chunks", 3)
    labels = set(value["timings"])
    assert labels >= {"ONNX Runtime, int8", "ONNX Runtime, float32"}
    assert len(labels) == 3
    assert all(t["p10_us"] <= t["median_us"] <= t["p90_us"] for t in value["timings"].values())
    assert value["machine"]


def test_report_compares_models_on_labelled_data(
    files: Files, midge_json: RunJson, tmp_path: Path
) -> None:
    data, x = tmp_path / "eval.npz", np.load(files["calibration"])
    np.savez(data, x=x, label=np.zeros(len(x), np.int64))
    folder = tmp_path / "report"
    value = midge_json("report", files["model"], files["quantized"], "--data", data, "-o", folder)
    engines = [v["engine"] for v in value["variants"]]
    assert [e for e in engines if not e.startswith("C, ")] == ["ONNX Runtime", "C"] * 2
    assert len(engines) == 6 if host_target().probe else 4  # one more for vector units
    assert value["metric"] == "Accuracy on 16 samples"
    assert all(layer["sqnr_db"] > 15 for layer in value["layers"] if layer["kind"] == "Conv")
    assert {node["state"] for node in value["coverage"]} == {"quantized"}
    (line,) = [line for line in value["notices"] if "may saturate" in line]
    assert line.startswith("small.int8: may saturate in ONNX Runtime on x86 without VNNI: 2 of 2")
    assert line in (folder / "index.html").read_text()
    assert json.loads((folder / "report.json").read_text()) == value


def test_report_without_labels_judges_by_the_first_model(
    files: Files, midge_json: RunJson, tmp_path: Path
) -> None:
    value = midge_json(
        "report",
        files["model"],
        files["quantized"],
        "--data",
        files["calibration"],
        "-o",
        tmp_path / "report",
    )
    assert value["metric"].startswith("Agreement with small.onnx")
    assert value["variants"][0]["correct"] == 16


def test_report_refuses_labels_that_do_not_count_the_samples(
    files: Files, midge: Run, tmp_path: Path
) -> None:
    data = tmp_path / "eval.npz"
    np.savez(data, x=np.load(files["calibration"]), label=np.zeros(5, np.int64))
    status, _, err = midge("report", files["model"], "--data", data, "-o", tmp_path / "report")
    assert status == 2
    assert "there are 16 samples" in err


def test_inspect_lists_layers_of_a_float_and_a_quantized_model(
    files: Files, midge_json: RunJson
) -> None:
    floating = midge_json("inspect", files["model"])
    assert floating["macs"] == 4 * 36 * 18 + 12
    assert floating["parameters"] == 4 * 18 + 4 + 12 + 3
    assert [n["fate"] for n in floating["nodes"]] == ["int8"] * 6
    quantized = midge_json("inspect", files["quantized"])
    assert quantized["quantized"] is True
    assert quantized["macs"] == floating["macs"]
    assert quantized["parameters"] == floating["parameters"]
    assert all(n["fate"] == "int8" for n in quantized["nodes"])


def test_doctor_names_the_compiler_and_every_package(midge_json: RunJson) -> None:
    found = {f["name"]: f["found"] for f in midge_json("doctor")["findings"]}
    assert found["C compiler"]
    assert found["onnxruntime"] == rt.__version__


def test_json_leaves_stdout_to_the_result_and_quiet_leaves_stderr_empty(
    files: Files, midge: Run
) -> None:
    status, out, err = midge("inspect", files["model"], "--json", "--quiet")
    assert status == 0
    assert json.loads(out)
    assert err == ""


@pytest.mark.parametrize("name", ["text.onnx", "truncated.onnx", "folder.onnx"])
@pytest.mark.parametrize(
    "command",
    [("inspect",), ("verify",), ("bench",), ("convert", "-o", "o"), ("compile", "-o", "o")],
)
def test_a_file_that_is_no_model_is_one_clear_line(
    command: tuple[str, ...], name: str, files: Files, midge: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files["model"].parent)
    Path("text.onnx").write_text("not a model")
    Path("truncated.onnx").write_bytes(files["model"].read_bytes()[:100])
    Path("folder.onnx").mkdir()
    status, _, err = midge(command[0], name, *command[1:])
    assert status == 2
    assert name in err
    assert err.count("\n") == 1
    assert not Path("o").exists()
