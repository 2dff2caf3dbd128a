"""The page on x86-64: its networks, the .tflite files that are written for LiteRT, its text."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import midge
from midge.convert.bench_peers import LITERT, installed, peer, peers_python
from midge.convert.compile import random_inputs, read_plan
from midge.convert.emit_c import io_params
from midge.convert.executor import Executor

SCRIPT = Path(__file__).with_name("x86.py")
LARGEST_CODE_GAP = 1  # LiteRT rounds its own way, which may move a code by one


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """Return a function that imports a module beside this file."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


def network(folder: Path, *, size: int = 10) -> Path:
    """Write a float network with everything that the .tflite writer knows, NCHW."""
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "d": (8, 1, 3, 3), "p": (8, 8, 1, 1), "g": (8, 5)}
    weights = {k: (rng.standard_normal(s) / 3).astype(np.float32) for k, s in shapes.items()}
    weights["b"] = rng.standard_normal(8).astype(np.float32)
    node, pads = helper.make_node, [0, 0, 1, 1]
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=pads),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "d"], ["e"], kernel_shape=[3, 3], pads=[1] * 4, group=8),
        node("Relu", ["e"], ["f"]),
        node("Conv", ["f", "p"], ["h"], kernel_shape=[1, 1]),
        node("Add", ["h", "r"], ["s"]),
        node("Relu", ["s"], ["t"]),
        node("MaxPool", ["t"], ["m"], kernel_shape=[2, 2], strides=[1, 1]),
        node("GlobalAveragePool", ["m"], ["a"]),
        node("Flatten", ["a"], ["l"]),
        node("MatMul", ["l", "g"], ["k"]),
        node("Softmax", ["k"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, size, size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 5))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path = folder / "network.onnx"
    onnx.save(model, path)
    return path


def quantized(folder: Path) -> Path:
    """Write the network above with codes."""
    x = np.random.default_rng(1).standard_normal((16, 3, 10, 10)).astype(np.float32)
    midge.quantize(network(folder), folder / "codes.onnx", x, io_type="int8")
    return folder / "codes.onnx"


@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_a_plan_has_the_same_operators_as_a_tflite_file(tmp_path: Path, load, kind: str) -> None:
    path = quantized(tmp_path) if kind == "int8" else network(tmp_path)
    made = load("x86_tflite").Network(read_plan(path, "network")).description()
    names = [operator["op"] for operator in made["operators"]]
    assert [n for n in names if n not in ("RESHAPE", "AVERAGE_POOL_2D", "MEAN")] == [
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "CONV_2D",
        "ADD",
        "MAX_POOL_2D",
        "FULLY_CONNECTED",
        "SOFTMAX",
    ]
    (entry,) = (made["tensors"][i] for i in made["inputs"])
    assert entry["shape"] == [1, 10, 10, 3]
    assert entry["dtype"] == kind


@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.skipif(LITERT not in installed(peers_python()), reason="LiteRT is not installed")
def test_litert_computes_the_same_from_the_file_that_is_written(
    tmp_path: Path, load, kind: str
) -> None:
    path = quantized(tmp_path) if kind == "int8" else network(tmp_path)
    plan = read_plan(path, "network")
    load("x86_tflite").write_tflite(plan, tmp_path / "n.tflite", peers_python())
    sample = [x[0] for x in random_inputs(plan, 1, 0)]
    (want,) = Executor(plan).run(sample)
    params = [io_params(plan.tensors[i]) for i in plan.inputs]
    with peer(LITERT, tmp_path / "n.tflite", sample, params, python=peers_python()) as worker:
        (got,) = worker.outputs()
    y = io_params(plan.tensors[plan.outputs[0]])
    if y is None:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    else:
        codes = np.rint(got / y.scale) + y.zero_point
        assert np.abs(codes - want).max() <= LARGEST_CODE_GAP
        assert len(np.unique(want)) > 1


@pytest.mark.parametrize(("size", "pads"), [(10, [0, 0, 1, 1]), (9, [1, 1, 1, 1])])
def test_windows_of_stride_2_are_padded_at_the_end(tmp_path: Path, load, size, pads) -> None:
    model = onnx.load(network(tmp_path, size=size))
    attributes = [{a.name: a for a in node.attribute} for node in model.graph.node]
    attributes[0]["pads"].ints[:] = [1, 1, 1, 1]
    load("x86_networks").pad_as_same(model)
    assert list(attributes[0]["pads"].ints) == pads
    assert list(attributes[2]["pads"].ints) == [1, 1, 1, 1]


def facts(level: str) -> dict[str, Any]:
    """Return what the script hands to its page, for one network."""
    timing = {"median_us": 8.0, "p10_us": 7.0, "p90_us": 9.0, "ratio": 0.8, "difference": 0.0}
    peer_timing = {**timing, "median_us": 10.0, "ratio": 1.0, "difference": 0.2}
    race = {
        "clock": "CPU",
        "load": [0.5, 0.6],
        "notices": ["OpenVINO is left out"],
        "timings": {
            "C best, int8": {**timing, "version": ""},
            "LiteRT": {**peer_timing, "version": "2.3"},
        },
    }
    build = {"arena": 2048, "flash": 4096, "const": 900, "records": 100, "ideal": 800}
    result = {
        "name": "net",
        "kind": "int8",
        "threads": 1,
        "macs": 16_000,
        "race": race,
        "builds": {"speed": build, "size": {**build, "arena": 1024}},
        "build_of": {"C best, int8": "speed"},
    }
    return {
        "machine": "a machine",
        "versions": {"midge": "1"},
        "compiler": "cc",
        "peaks": {level: 80.0},
        "chunks": 40,
        "results": [result],
    }


def test_the_page_shows_times_memory_and_wrong_answers(load) -> None:
    text = load("x86_page").page(facts("avx2, int8"))
    assert "| network | C, us | x ONNX Runtime | x LiteRT | x OpenVINO | threads speed up |" in text
    assert "| net, int8 | 8.0 |  | 0.80 (1.00) |  |  | 2.0 / 1.0 | 4.0 | 1.250 |" in text
    assert "| C best, int8 | 8.0 (7.0 to 9.0) | 0.80 | 2.0 | 2.0 | 4.0 | 0.00% |" in text
    assert "**20.00%**" in text
    assert "CPU time; load 0.5 to 0.6" in text
    assert "OpenVINO is left out" in text


def test_a_build_that_keeps_all_channels_is_shown_too(load) -> None:
    known = facts("avx2, int8")
    (result,) = known["results"]
    label = "C best, int8, all channels"
    result["race"]["timings"][label] = {**result["race"]["timings"]["C best, int8"]}
    result["build_of"][label] = "all channels"
    result["builds"]["all channels"] = result["builds"]["speed"]
    text = load("x86_page").page(known)
    assert "| net, int8, all channels | 8.0 |  | 0.80 (1.00) |" in text


def test_several_threads_are_compared_with_one_and_with_the_peers_threads(load) -> None:
    known = facts("avx2, int8")
    (result,) = known["results"]
    timings, build_of = result["race"]["timings"], result["build_of"]
    result["threads"] = 2
    timings["C best, int8, 2 threads"] = {**timings["C best, int8"], "median_us": 5.0}
    timings["LiteRT, 2 threads"] = timings.pop("LiteRT")
    build_of["C best, int8, 2 threads"] = "speed"
    text = load("x86_page").page(known)
    assert "The machine was busy" not in text
    result["race"]["load"] = [0.5, 3.0]
    assert "**The machine was busy:**" in load("x86_page").page(known)
    assert "| net, int8, 2 threads | 5.0 |  | 0.50 (1.00) |  | 1.60 |" in text


def test_the_page_says_that_avx2_is_no_vnni(load) -> None:
    page = load("x86_page").page
    assert "This processor has no VNNI" in page(facts("avx2, int8"))
    assert "This processor has no VNNI" not in page(facts("avx512vnni, int8"))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("MIDGE_MODELS"), reason="MIDGE_MODELS is not set")
def test_the_script_measures_a_network_and_writes_its_page(tmp_path: Path) -> None:
    page, found = tmp_path / "x86.md", tmp_path / "x86.json"
    command = [sys.executable, str(SCRIPT), "--networks", "KWS", "--chunks", "3", "--wait", "0"]
    command += ["--output", str(page), "--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(found.read_text())["results"]
    assert [r["kind"] for r in results] == ["int8", "float32"]
    for r in results:
        assert r["race"]["timings"]["ONNX Runtime"]["median_us"] > 0
        assert r["builds"]["size"]["arena"] <= r["builds"]["speed"]["arena"]
    assert "## KWS, int8" in page.read_text()
