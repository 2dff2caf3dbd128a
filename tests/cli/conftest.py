"""A small float model with its calibration data, and one quick demo for all tests of it."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from midge.cli.main import run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def midge(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line and returns exit status, stdout and stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def midge_json(midge: Run) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a command with --json and returns what it wrote."""

    def call(*arguments: str | Path) -> dict[str, Any]:
        status, out, err = midge(*arguments, "--json")
        assert status == 0, err
        value = json.loads(out)
        assert isinstance(value, dict)
        return value

    return call


def small_model() -> onnx.ModelProto:
    """Return Conv, Relu, GlobalAveragePool, Flatten, Gemm, Softmax on x [N, 2, 6, 6]."""
    rng = np.random.default_rng(7)
    weights = {
        "conv.W": rng.standard_normal((4, 2, 3, 3)),
        "conv.B": rng.standard_normal(4),
        "fc.W": rng.standard_normal((3, 4)),
        "fc.B": rng.standard_normal(3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv.W", "conv.B"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "fc.W", "fc.B"], ["g"], "fc", transB=1),
        helper.make_node("Softmax", ["g"], ["y"], "softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 2, 6, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 3))],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def files(tmp_path: Path, midge: Run) -> dict[str, Path]:
    """Return a float model, calibration data and the model quantized on the command line."""
    model, calibration = tmp_path / "small.onnx", tmp_path / "calibration.npy"
    onnx.save(small_model(), model)
    data = np.random.default_rng(1).standard_normal((16, 2, 6, 6)).astype(np.float32)
    np.save(calibration, data)
    quantized = tmp_path / "small.int8.onnx"
    status, _, err = midge("quantize", model, "-o", quantized, "--calib-data", calibration)
    assert status == 0, err
    return {"model": model, "calibration": calibration, "quantized": quantized}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a float model, calibration data, the quantized model and its C."""
    folder = tmp_path_factory.mktemp("template")
    data = np.random.default_rng(1).standard_normal((16, 2, 6, 6)).astype(np.float32)
    onnx.save(small_model(), folder / "small.onnx")
    np.save(folder / "calibration.npy", data)
    model, out = str(folder / "small.onnx"), str(folder / "small.int8.onnx")
    calibration = str(folder / "calibration.npy")
    assert run(["quantize", model, "-o", out, "--calib-data", calibration, "--quiet"]) == 0
    assert run(["compile", out, "-o", str(folder / "c"), "--quiet"]) == 0
    return folder


@pytest.fixture
def here(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a folder of the test's own that holds what `template` holds."""
    folder = tmp_path / "here"
    shutil.copytree(template, folder)
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return the bytes of every file below a folder, hidden ones too, and None for folders."""
    paths = sorted(p for p in folder.rglob("*") if "__pycache__" not in p.parts)
    return {str(p): p.read_bytes() if p.is_file() else None for p in paths}


@pytest.fixture
def refused(here: Path, midge: Run) -> Callable[..., str]:
    """Return a function that runs a command line which must fail in one line and change no file."""

    def check(*arguments: str, words: tuple[str, ...], status: int = 2) -> str:
        before = contents(here)
        got, out, err = midge(*arguments)
        lines = err.splitlines()
        assert (got, out) == (status, ""), err
        assert [line for line in lines if line.startswith("Error: ")] == lines[-1:], err
        assert "Traceback" not in err
        assert "internal error" not in err
        assert all(word in lines[-1] for word in words), err
        assert contents(here) == before
        return lines[-1]

    return check


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `midge demo --quick` once for all workers and return its folder."""
    pytest.importorskip("sklearn")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "midge-demo"
    with (shared / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "report" / "index.html").exists():
            assert run(["demo", "--quick", "--quiet", "--output", str(folder)]) == 0
    return folder
