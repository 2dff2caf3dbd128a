"""The timing program of an emitted folder, and the interleaved chunks."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from midge.convert import ort
from midge.convert.bench_host import c_timer, interleave, ort_timer
from midge.convert.emit import emit
from midge.convert.plan import Plan, PlanOp, PlanTensor, Table
from midge.core.errors import ToolError

FAST_CHUNK_S = 0.001


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Emit a network of one table over four codes."""
    table = np.arange(-128, 128, dtype=np.int8)[::-1].copy()
    tensors = [
        PlanTensor("x", (1, 4), "int8", 0, layout=(0, 1), file_shape=(1, 4)),
        PlanTensor("y", (1, 4), "int8", 1, layout=(0, 1), file_shape=(1, 4)),
    ]
    op = PlanOp("flip", Table(table), (0,), 1)
    plan = Plan("tiny", tensors, [op], (0,), (1,), [4, 4], [0, 16], 32, 32)
    emit(plan, tmp_path / "c", "tiny")
    return tmp_path / "c"


def test_the_program_reports_time_that_grows_with_the_number_of_runs(folder: Path) -> None:
    with c_timer(folder, "tiny", bytes(4)) as timer:
        few, many = timer(1_000), timer(1_000_000)
    assert 0 < few < many


def test_a_sample_that_cannot_be_read_ends_in_one_clear_line(folder: Path) -> None:
    with c_timer(folder, "tiny", b"") as timer, pytest.raises(ToolError, match="status 1"):
        timer(1)


def test_candidates_are_timed_in_alternating_chunks() -> None:
    calls: list[str] = []

    def candidate(name: str, seconds: float) -> float:
        calls.append(name)
        return seconds

    timings = interleave(
        {"a": lambda n: candidate("a", n * 2e-6), "b": lambda n: candidate("b", n * 4e-6)},
        chunks=3,
        chunk_s=FAST_CHUNK_S,
    )
    assert calls[-10:] == ["a", "b"] * 5
    assert timings["a"].median_us == pytest.approx(2.0)
    assert timings["b"].median_us == pytest.approx(4.0)
    assert timings["a"].chunks == 3


def test_onnx_runtime_is_timed_with_bound_inputs() -> None:
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 4)) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    timer = ort_timer(ort.make_session(model, threads=1), {"x": np.ones((1, 4), np.float32)})
    assert timer(10) > 0
