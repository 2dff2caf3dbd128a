"""midge bench: the race, its tables, and what it says about engines that are not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from midge.cli.bench import PeerEntry, c_entries, difference, race
from midge.convert.bench_peers import peers_python
from midge.convert.bench_program import Program
from midge.convert.compile import random_inputs, read_plan
from midge.convert.plan import Plan
from midge.convert.target import host_target

Files = dict[str, Path]
Run = Callable[..., tuple[int, str, str]]
RunJson = Callable[..., dict[str, Any]]


@pytest.fixture
def plan(files: Files) -> Plan:
    """Return the placed Plan of the quantized model."""
    return read_plan(files["quantized"], "network", None, host_target(), optimize="speed")


def test_the_ratio_is_to_the_fastest_peer_and_answers_are_compared(
    files: Files, midge_json: RunJson
) -> None:
    value = midge_json("bench", files["quantized"], "--chunks", 3)
    c, peer = value["timings"].values()
    assert peer["ratio"] == 1
    assert c["ratio"] == pytest.approx(c["median_us"] / peer["median_us"])
    assert c["difference"] == 0
    assert peer["difference"] < 0.05
    assert peer["version"]
    assert value["threads"] == 1
    assert len(value["load"]) == 2
    assert value["arena_bytes"] > 0


def test_all_instruction_sets_and_peers_compete_and_missing_ones_are_named(
    files: Files, midge: Run
) -> None:
    status, out, err = midge("bench", files["quantized"], "--peers", "--chunks", 3)
    assert status == 0
    assert "ONNX Runtime, int8" in out
    if host_target().probe:
        assert "C portable, int8" in out
    for line in err.splitlines():
        if "not installed" in line:
            assert "pip install" in line
    assert "LiteRT" in err


def test_steps_show_their_work_and_memory(files: Files, midge: Run, midge_json: RunJson) -> None:
    arguments = ("bench", files["quantized"], "--chunks", 3, "--layers")
    value = midge_json(*arguments)
    assert sum(layer["macs"] for layer in value["layers"]) == value["macs"] > 0
    assert value["flash_bytes"] > 0
    status, out, _ = midge(*arguments)
    assert status == 0
    assert "step by step" in out
    assert "flash" in out


def test_two_threads_are_timed_by_the_wall_clock(files: Files, midge_json: RunJson) -> None:
    value = midge_json("bench", files["quantized"], "--chunks", 3, "--threads", 2)
    assert value["threads"] == 2
    assert value["clock"] == "wall"


def test_another_model_is_neither_compared_nor_the_measure(
    files: Files, midge_json: RunJson
) -> None:
    value = midge_json("bench", files["quantized"], "--float-model", files["model"], "--chunks", 3)
    other = value["timings"]["ONNX Runtime, float32"]
    assert other["difference"] is None
    own = value["timings"]["ONNX Runtime, int8"]
    assert other["ratio"] == pytest.approx(other["median_us"] / own["median_us"])


@pytest.mark.parametrize("option", ["--tflite", "--float-model"])
def test_a_file_that_does_not_exist_is_named(files: Files, midge: Run, option: str) -> None:
    status, _, err = midge("bench", files["quantized"], "--peers", option, "nowhere.file")
    assert status == 2
    assert "nowhere.file" in err


def test_a_tflite_file_that_nobody_would_run_is_refused(files: Files, midge: Run) -> None:
    status, _, err = midge("bench", files["quantized"], "--tflite", "net.tflite")
    assert status == 2
    assert "only --peers runs" in err


def test_a_number_that_is_none_is_called_so(files: Files, midge: Run) -> None:
    status, _, err = midge("bench", files["quantized"], "--threads", "2k")
    assert status == 2
    assert "'2k' is not a valid whole number" in err


def test_a_python_that_does_not_exist_is_named(files: Files, midge: Run) -> None:
    status, _, err = midge(
        "bench", files["quantized"], "--peers", "--peers-python", "no-such-python"
    )
    assert status == 2
    assert "no-such-python" in err


def test_a_peer_that_refuses_its_model_is_left_out_with_a_notice(
    plan: Plan, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"nothing")
    entries, _ = c_entries(plan, tmp_path / "c", host_target(), "int8", every=False)
    sample = [x[0] for x in random_inputs(plan, 1, 0)]
    peers = [PeerEntry("broken", "ONNX Runtime", broken)]
    result = race(plan, sample, entries, peers, python=peers_python(), chunks=3)
    assert list(result.rows) == [entries[0].label]
    assert next(iter(result.rows.values())).ratio is None
    assert "broken is left out" in result.notices[0]


def test_a_wrong_code_of_the_c_is_an_error(
    files: Files, midge: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, calibration = tmp_path / "codes.onnx", files["calibration"]
    arguments = ("--calib-data", calibration, "--io-type", "int8")
    assert midge("quantize", files["model"], "-o", codes, *arguments)[0] == 0
    right = Program.outputs

    def outputs(run: Program) -> bytes:
        raw = bytearray(right(run))
        raw[0] ^= 1
        return bytes(raw)

    assert midge("bench", codes, "--chunks", 3)[0] == 0
    monkeypatch.setattr(Program, "outputs", outputs)
    status, _, err = midge("bench", codes, "--chunks", 3)
    assert status == 1
    assert "1 of 3 elements of output 'y' differ from the integer executor" in err


def test_a_difference_counts_in_terms_of_the_range(plan: Plan) -> None:
    (index,) = plan.outputs
    want = np.linspace(-1, 1, plan.tensors[index].bytes // 4, dtype=np.float32)[None]
    got = want.copy()
    got[0, 0] += 0.5
    assert difference(plan, [got], [want]) == pytest.approx(0.25)
    assert difference(plan, [want], [want]) == 0
