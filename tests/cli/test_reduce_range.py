"""--reduce-range, and what the commands say where ONNX Runtime may saturate."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

import midge as package

Files = dict[str, Path]
Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., dict[str, Any]]
SUMMARY = "may saturate in ONNX Runtime on x86 without VNNI"


def test_quantize_is_not_silent_about_it(files: Files, midge: Run) -> None:
    status, out, err = midge(
        "quantize", files["model"], "-o", files["quantized"], "--calib-data", files["calibration"]
    )
    assert status == 0
    (line,) = [line for line in err.splitlines() if SUMMARY in line]
    assert "2 of 2 layers; the C is exact anyway" in line
    assert "--reduce-range" in line
    assert "x64quantprecision=1" in line
    assert f"{SUMMARY}: 2 of 2 layers" in out
    assert out.count("may saturate without VNNI") == 2  # of the table


def test_a_reduced_range_is_an_option_of_the_command_line_the_config_and_the_function(
    files: Files, midge_json: RunJson, midge: Run, tmp_path: Path
) -> None:
    ask = ("quantize", files["model"], "--calib-data", files["calibration"])
    outs = [tmp_path / f"{name}.onnx" for name in ("option", "config", "function")]
    report = midge_json(*ask, "-o", outs[0], "--reduce-range")
    assert report["saturation"]["layers"] == 2
    assert report["saturation"]["may_saturate"] == []
    config = tmp_path / "config.yaml"
    config.write_text("reduce-range: true\n")
    status, out, err = midge(*ask, "-o", outs[1], "--config", config)
    assert status == 0
    assert SUMMARY not in err
    assert f"{SUMMARY}: 0 of 2 layers" in out
    package.quantize(files["model"], outs[2], str(files["calibration"]), reduce_range=True)
    same = {onnx.load(out).graph.SerializeToString(deterministic=True) for out in outs}
    assert len(same) == 1
    assert midge_json("verify", outs[0], "--samples", 5)["holds"]
