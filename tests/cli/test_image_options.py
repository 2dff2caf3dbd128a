"""Images on the command line and in a config file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., dict[str, Any]]
Image = pytest.importorskip("PIL.Image")
GIVEN = ("--mean", "0.5,0.25,0.125", "--std", "2", "--scale", "1/255", "--layout", "nchw")
CONFIG = """
model: net.onnx
output: config.int8.onnx
calib-data: images
mean: [0.5, 0.25, 0.125]
std: 2
scale: 1/255
layout: nchw
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model for images of 6 by 6 pixels, and four of them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "conv")],
        "net",
        [value("x", TensorProto.FLOAT, ("N", 3, 6, 6))],
        [value("y", TensorProto.FLOAT, ("N", 2, 4, 4))],
        [numpy_helper.from_array(rng.standard_normal((2, 3, 3, 3)).astype(np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "net.onnx")
    (tmp_path / "images").mkdir()
    for index in range(4):
        pixels = rng.integers(0, 256, (6, 6, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(f"images/{index}.png")
    return tmp_path


def test_options_and_config_give_the_same_file(here: Path, midge: Run, midge_json: RunJson) -> None:
    value = midge_json(
        "quantize", "net.onnx", "-o", "net.int8.onnx", "--calib-data", "images", *GIVEN
    )
    assert value["samples"] == 4
    line = "calibration images: (pixel * 0.00392156863 - 0.5,0.25,0.125) / 2, nchw, not resized."
    assert line in value["notices"]
    (here / "c.yaml").write_text(CONFIG)
    status, _, err = midge("quantize", "--config", "c.yaml")
    assert status == 0, err
    assert (here / "config.int8.onnx").read_bytes() == (here / "net.int8.onnx").read_bytes()
    images = json.loads((here / "config.quant.json").read_text())["calibration"]["images"]
    assert images["mean"] == [0.5, 0.25, 0.125]
    assert images["scale"] == 1 / 255


def test_verify_takes_images_too(here: Path, midge: Run, midge_json: RunJson) -> None:
    data = ("--calib-data", "images", *GIVEN, "--quiet")
    assert midge("quantize", "net.onnx", "-o", "net.int8.onnx", *data)[0] == 0
    value = midge_json("verify", "net.int8.onnx", "--data", "images", *GIVEN)
    assert value["samples"] == 4
    assert value["holds"] is True
    status, _, err = midge("verify", "net.int8.onnx", *GIVEN)
    assert status == 2
    assert "only with --data" in err
