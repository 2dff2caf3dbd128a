"""--drop-softmax on the command line, in a config file and as an argument."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import midge as package

Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., dict[str, Any]]
TEXT = """<ir_version: 9, opset_import: ["" : 17]>
net (float[1,3] x) => (int64[1,1] y) <float[3,3] W = {1, 2, -3, 4, 5, 6, -7, 8, 9}>
{ m = MatMul(x, W) p = Softmax(m) y = ArgMax<axis=1>(p) }"""


@pytest.fixture
def net(tmp_path: Path) -> tuple[Path, Path]:
    """Return a classifier that ends in ArgMax, and data."""
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32))
    return tmp_path / "net.onnx", tmp_path / "x.npy"


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def test_convert_drops_it_on_request(net: tuple[Path, Path], midge: Run) -> None:
    out = net[0].with_name("out.onnx")
    assert midge("convert", net[0], "-o", out)[0] == 0
    assert "Softmax" in operators(out)
    status, text, _ = midge("convert", net[0], "-o", out, "--drop-softmax")
    assert status == 0
    assert "finds the same place in its input" in text
    assert "Softmax" not in operators(out)


def test_quantize_drops_it_and_the_c_compares_codes(
    net: tuple[Path, Path], midge_json: RunJson, tmp_path: Path
) -> None:
    model, data = net
    config = tmp_path / "config.yaml"
    config.write_text("drop-softmax: true\n")
    outs = [tmp_path / f"{name}.onnx" for name in ("option", "config", "function")]
    ask = ("quantize", model, "--calib-data", data)
    report = midge_json(*ask, "-o", outs[0], "--drop-softmax", "--strict")
    states = {c["op_type"]: (c["state"], c["reason"]) for c in report["coverage"]}
    assert states["Softmax"][0] == "folded"
    assert states["ArgMax"] == ("quantized", "compares codes")
    midge_json(*ask, "-o", outs[1], "--config", config)
    package.quantize(model, outs[2], str(data), drop_softmax=True)
    assert all("Softmax" not in operators(out) for out in outs)
    report = midge_json("compile", outs[0], "-o", tmp_path / "c", "--name", "net")
    assert "midge_arg_s8.c" in report["files"]
    assert not {"midge_softmax_s8.c", "midge_dequantize_s8_f32.c"} & set(report["files"])
    assert midge_json("verify", outs[0], "--samples", 20)["holds"]


def test_nothing_to_drop_is_said(net: tuple[Path, Path], midge: Run, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(TEXT.replace("Softmax", "Neg")), tmp_path / "other.onnx")
    out = tmp_path / "out.onnx"
    status, _, err = midge("convert", tmp_path / "other.onnx", "-o", out, "--drop-softmax")
    assert status == 0
    assert "--drop-softmax has no effect" in err
