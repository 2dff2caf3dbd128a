"""Quantization without data and float models, from the command line to C."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Files = dict[str, Path]
Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., dict[str, Any]]
MODES = ("dynamic", "weight-only")


@pytest.mark.parametrize("mode", MODES)
def test_a_file_quantized_without_data_compiles_and_verifies(
    files: Files, midge_json: RunJson, tmp_path: Path, mode: str
) -> None:
    out = tmp_path / f"{mode}.onnx"
    report = midge_json("quantize", files["model"], "-o", out, "--mode", mode)
    assert report["samples"] == 0
    assert report["counts"]["quantized"] == 2
    compiled = midge_json("compile", out, "-o", tmp_path / "c", "--name", "small")
    assert "small.c" in compiled["files"]
    assert midge_json("verify", out, "--samples", "5")["mismatches"] == 0
    assert midge_json("inspect", out)["quantized"] is True


@pytest.mark.parametrize("mode", MODES)
def test_data_that_would_be_ignored_is_refused(files: Files, midge: Run, mode: str) -> None:
    asked = ("quantize", files["model"], "-o", files["quantized"], "--mode", mode)
    for option in (("--calib-data", files["calibration"]), ("--random-calib",)):
        before = files["quantized"].read_bytes()
        status, _, err = midge(*asked, *option)
        assert status == 2
        assert f"--mode {mode} takes no" in err
        assert files["quantized"].read_bytes() == before


def test_static_quantization_still_asks_for_data(files: Files, midge: Run) -> None:
    status, _, err = midge("quantize", files["model"], "-o", files["quantized"])
    assert status == 2
    assert "No calibration data" in err


def test_a_float_model_compiles_verifies_and_is_timed_as_what_it_is(
    files: Files, midge: Run, midge_json: RunJson, tmp_path: Path
) -> None:
    status, out, _ = midge("compile", files["model"], "-o", tmp_path / "c")
    assert status == 0
    assert "the golden test passes" in out
    assert midge_json("verify", files["model"], "--samples", "5")["holds"] is True
    timings = midge_json("bench", files["model"], "--chunks", "3")["timings"]
    assert sorted(label.split(", ")[1] for label in timings) == ["float32", "float32"]
    assert "ONNX Runtime, float32" in timings
