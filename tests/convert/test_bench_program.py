"""The timing program of an emitted folder, its steps, its levels and threads, its instructions."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from midge.convert.bench_callgrind import count_instructions, read_counts
from midge.convert.bench_layers import step_infos, time_layers
from midge.convert.bench_program import build_program, running
from midge.convert.compile import arrange, random_inputs
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.plan import Plan, PlanOp, PlanTensor, Table
from midge.convert.target import C99, Target, host_target
from midge.core.errors import InputError, ToolError

GRAPH = """(float[1, 4, 12, 12] x) => (float[1, 8, 12, 12] y) {
    h = Conv<pads = [1, 1, 1, 1]>(x, w)
    r = Relu(h)
    y = Conv(r, v)
}"""


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


@pytest.fixture(scope="module")
def network(build) -> Plan:
    """Return a Plan of two float convolutions, not placed."""
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal(s).astype(np.float32) for s in ((8, 4, 3, 3), (8, 8, 1, 1)))
    return lower(build(GRAPH, w=w, v=v), name="two")


def emitted(plan: Plan, target: Target, folder: Path) -> bytes:
    """Place and emit a Plan; return the raw bytes of a sample."""
    arrange(plan, target, optimize="speed")
    emit(plan, folder, "two", target=target)
    return b"".join(x[0].tobytes() for x in random_inputs(plan, 1, 0))


def test_the_time_of_a_burst_grows_with_its_calls(folder: Path) -> None:
    with running(build_program(folder, "tiny"), bytes(4)) as program:
        few, many = program.time(5, 1_000), program.time(5, 1_000_000)
    assert len(few.wall_us) == len(few.cpu_us) == 5
    # Both are microseconds of one call.
    assert min(many.wall_us) < 10 * min(few.wall_us)
    assert min(many.wall_us) > 0


def test_a_sample_that_cannot_be_read_ends_in_one_clear_line(folder: Path) -> None:
    program = running(build_program(folder, "tiny"), b"")
    with program as run, pytest.raises(ToolError, match="status 1"):
        run.time(1, 1)


def test_a_level_that_does_not_exist_is_refused(folder: Path) -> None:
    program = running(build_program(folder, "tiny"), bytes(4), level=9)
    with program as run, pytest.raises(InputError, match="instruction set"):
        run.time(1, 1)


def test_the_program_shows_its_outputs(folder: Path) -> None:
    sample = np.array([-128, -1, 0, 127], np.int8)
    with running(build_program(folder, "tiny"), sample.tobytes()) as program:
        program.time(2, 3)
        assert np.array_equal(np.frombuffer(program.outputs(), np.int8), ~sample)


def test_every_level_and_two_threads_compute_the_same(network: Plan, tmp_path: Path) -> None:
    target = host_target()
    raw = emitted(network, target, tmp_path)
    sample = np.frombuffer(raw, np.float32).reshape(1, 4, 12, 12)
    expected = Executor(network).run([sample])[0]
    program = build_program(tmp_path, "two")
    for arguments in ({"level": 0}, {"level": 0, "threads": 2}, {}):
        with running(program, raw, **arguments) as run:
            run.time(1, 2)
            got = np.frombuffer(run.outputs(), np.float32).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_each_step_has_its_name_its_work_and_its_time(network: Plan, tmp_path: Path) -> None:
    raw = emitted(network, C99, tmp_path)
    steps = step_infos(network, C99, "portable")
    with running(build_program(tmp_path, "two"), raw) as run:
        layers = time_layers(run, steps, peak_gmacs=1000.0)
    assert [layer.name for layer in layers] == [step.name for step in steps]
    assert sum(layer.macs for layer in layers) == 144 * 8 * (4 * 9 + 8)
    assert sum(layer.share for layer in layers) == pytest.approx(1)
    for layer in layers:
        assert 0 < layer.min_us <= layer.median_us
        assert layer.kernel.startswith("midge_")
        if layer.macs:
            assert layer.gmacs == pytest.approx(layer.macs / layer.median_us / 1e3)
            assert layer.peak_share == pytest.approx(layer.gmacs / 1000)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instructions_are_the_same_on_every_run(network: Plan, tmp_path: Path) -> None:
    raw = emitted(network, C99, tmp_path)
    first, second = (count_instructions(tmp_path, "two", raw) for _ in range(2))
    assert first == second
    assert set(first.kernels) == {s.kernel for s in step_infos(network, C99, "portable")}
    inside = sum(first.kernels.values())
    assert 0.98 * first.total < inside < first.total


def test_what_kernels_cost_is_read_from_callgrind() -> None:
    text = """events: Ir
fn=(1) midge_run
10 5
cfn=(2) midge_conv
calls=2 3
11 700
cfn=(3) midge_stream
calls=1 9
12 260
fn=(3)
3 40
cfn=(2)
calls=1 3
4 200
cfn=(4) midge_stream'2
calls=1 9
5 20
fn=(2)
7 900
cfn=(5) memcpy
calls=1 1
8 10
totals: 985
"""
    assert read_counts(text) == (985, {"midge_conv": 900, "midge_stream": 40})


def test_a_count_of_nothing_is_an_error() -> None:
    with pytest.raises(ToolError, match="counted nothing"):
        read_counts("events: Ir\ntotals: 0\n")
