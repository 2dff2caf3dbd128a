"""Workers of other engines: what they answer, and how they fail."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from midge.convert.bench_peers import PYTHON_VARIABLE, installed, peer, peers_python
from midge.convert.bench_worker import as_input, as_real
from midge.convert.onnx_out import to_proto
from midge.core.errors import InputError, ToolError

ORT = "ONNX Runtime"


@pytest.fixture
def relu(tmp_path: Path, build) -> Path:
    """Write a model of one Relu."""
    path = tmp_path / "relu.onnx"
    onnx.save(to_proto(build("(float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }")), path)
    return path


def test_a_worker_times_its_model_and_shows_the_outputs(relu: Path) -> None:
    x = np.array([[-1, 2, -3, 4]], np.float32)
    with peer(ORT, relu, [x], [None], python=sys.executable) as worker:
        assert worker.version == installed(sys.executable)[ORT]
        laps = worker.time(3, 10)
        (y,) = worker.outputs()
    assert len(laps.wall_us) == len(laps.cpu_us) == 3
    assert min(laps.wall_us) > 0
    assert np.array_equal(y, np.maximum(x, 0))


def test_an_engine_that_refuses_a_model_says_why_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"nothing")
    opened = peer(ORT, broken, [], [], python=sys.executable)
    with pytest.raises(ToolError, match=r"^ONNX Runtime: \w+: .+$") as caught, opened:
        pass
    assert "\n" not in str(caught.value)


def test_a_worker_that_dies_is_reported(relu: Path) -> None:
    x = np.zeros((1, 4), np.float32)
    with peer(ORT, relu, [x], [None], python=sys.executable) as worker:
        worker.process.kill()
        worker.process.wait()
        with pytest.raises(ToolError, match="died with status"):
            worker.time(1, 1)


def test_the_interpreter_is_the_one_chosen_then_the_variable_then_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    assert peers_python() == sys.executable
    monkeypatch.setenv(PYTHON_VARIABLE, "elsewhere")
    assert peers_python() == "elsewhere"
    assert peers_python("chosen") == "chosen"


def test_an_interpreter_that_does_not_run_is_the_users_fault() -> None:
    with pytest.raises(InputError, match="--peers-python"):
        installed("no-such-python")


def test_codes_become_the_codes_of_the_other_file() -> None:
    x = np.array([[0, 128, 255]], np.uint8)
    same = {"shape": [1, 3], "dtype": np.int8, "quantization": (0.5, 0)}
    assert as_input(x, (0.5, 128), same).tolist() == [[-128, 0, 127]]
    coarse = {"shape": [1, 3], "dtype": np.int8, "quantization": (1.0, 10)}
    assert as_input(x, (0.5, 128), coarse).tolist() == [[-54, 10, 74]]
    real = {"shape": [1, 3], "dtype": np.float32, "quantization": (0.0, 0)}
    assert as_input(x, (0.5, 128), real).tolist() == [[-64, 0, 63.5]]


def test_images_become_nhwc_only_where_the_other_file_wants_them() -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    wanted = {"shape": [1, 3, 4, 2], "dtype": np.float32, "quantization": (0.0, 0)}
    assert np.array_equal(as_input(x, None, wanted), x.transpose(0, 2, 3, 1))
    kept = {**wanted, "shape": [1, 2, 3, 4]}
    assert np.array_equal(as_input(x, None, kept), x)


def test_real_values_of_codes() -> None:
    assert as_real(np.array([3], np.int8), (0.25, -1)).tolist() == [1.0]
    assert as_real(np.array([3.5], np.float32), (0.0, 0)).tolist() == [3.5]
