"""Ctrl-C leaves the files of earlier runs as they were."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from midge.cli import errors
from midge.convert import compile as compile_module
from midge.convert import emit, onnx_out
from midge.models import datasets, training

Refused = Callable[..., str]
Run = Callable[..., tuple[int, str, str]]
WORDS = ("interrupted", "unchanged")
FUNCTION = """
import numpy as np
def stops():
    yield {"x": np.zeros((1, 2, 6, 6), "float32")}
    raise KeyboardInterrupt
"""
QUANTIZE = ("quantize", "small.onnx", "-o", "small.int8.onnx", "--calib-data")
RECIPE = """
network: cnn1d
arguments: {classes: 2, channels: 1, width: 4}
data: noise
train: {epochs: 3, batch_size: 8, lr: 0.01}
qat: {epochs: 1, batch_size: 8, lr: 0.001}
"""


def stop_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, interrupted before its call with this number (from 0)."""
    calls = iter(range(1_000_000))

    def stopped(*arguments: Any, **keywords: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments, **keywords)

    return stopped


def test_during_calibration(refused: Refused, here: Path) -> None:
    Path("function_that_stops.py").write_text(FUNCTION)
    line = (*QUANTIZE, "function_that_stops:stops")
    refused(*line, words=WORDS, status=errors.INTERRUPTED)


def test_while_the_quantized_model_is_written(
    refused: Refused, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_out.os, "replace", stop_at(0, os.replace))
    line = (*QUANTIZE, "calibration.npy", "--calibration-method", "mse")
    refused(*line, words=WORDS, status=errors.INTERRUPTED)


def test_before_the_golden_test(
    refused: Refused, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_module, "self_test", stop_at(0, compile_module.self_test))
    line = ("compile", "small.int8.onnx", "-o", "c")
    refused(*line, words=WORDS, status=errors.INTERRUPTED)


@pytest.mark.parametrize("call", [0, 1, 5])
def test_while_the_c_is_moved_into_place(
    call: int, refused: Refused, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "c" / "small.c").write_text("// an earlier one\n")
    monkeypatch.setattr(emit.os, "replace", stop_at(call, os.replace))
    line = ("compile", "small.int8.onnx", "-o", "c", "--target", "c99")
    refused(*line, words=WORDS, status=errors.INTERRUPTED)
    line = ("compile", "small.int8.onnx", "-o", "new", "--target", "c99")
    monkeypatch.setattr(emit.os, "replace", stop_at(call, os.replace))
    refused(*line, words=WORDS, status=errors.INTERRUPTED)


def noise() -> datasets.Split:
    """Return a data set of 16 random signals."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 1, 1, 32)).astype(np.float32)
    y = rng.integers(0, 2, 16)
    return datasets.Split(x, y, x, y, ("no", "yes"))


@pytest.mark.parametrize("function", ["_epoch", "_save"])
def test_during_training(
    function: str, here: Path, midge: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(datasets.LOADERS, "noise", noise)
    (here / "r.yaml").write_text(RECIPE)
    (here / "t").mkdir()
    for name in ("model.onnx", "model.int8.onnx", "model.quant.json"):
        (here / "t" / name).write_text("of an earlier run")
    monkeypatch.setattr(training, function, stop_at(1, getattr(training, function)))
    status, _, err = midge("train", "r.yaml", "-o", "t")
    assert status == errors.INTERRUPTED, err
    assert err.splitlines()[-1] == "Error: interrupted; files written earlier are unchanged."
    files = {p.name: p for p in (here / "t").iterdir()}
    assert {files.pop(f"model.{e}").read_text() for e in ("onnx", "int8.onnx", "quant.json")} == {
        "of an earlier run"
    }
    assert list(files) == ["float.ckpt"]  # from where the next run goes on
