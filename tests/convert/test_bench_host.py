"""The interleaved chunks, and the choice of the clock."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from midge.convert import ort
from midge.convert.bench_host import CPU, WALL, Laps, Timer, function_timer, interleave, ort_timer

CHUNK_S = 0.001


def candidate(calls: list[str], name: str, wall_us: float, cpu_us: float) -> Timer:
    """Return a timer that claims these times and notes when it was called."""

    def timer(bursts: int, runs: int) -> Laps:
        calls.append(name)
        return Laps([wall_us] * bursts, [cpu_us] * bursts)

    return timer


def test_chunks_of_all_candidates_alternate_and_another_one_begins_each_round() -> None:
    calls: list[str] = []
    timers = {name: candidate(calls, name, us, us) for name, us in (("a", 2.0), ("b", 4.0))}
    timings = interleave(timers, chunks=3, chunk_s=CHUNK_S)
    assert calls[-8:] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert timings["a"].median_us == 2.0
    assert timings["b"].median_us == 4.0


def test_a_burst_is_long_against_the_clock_and_a_chunk_has_its_length() -> None:
    timing = interleave({"a": candidate([], "a", 2.0, 2.0)}, chunks=3, chunk_s=0.03)["a"]
    assert timing.calls == 150
    assert timing.bursts == 3 * 100


def test_a_call_longer_than_a_chunk_is_still_timed() -> None:
    timing = interleave({"a": candidate([], "a", 1e5, 1e5)}, chunks=3, chunk_s=0.03)["a"]
    assert (timing.calls, timing.bursts) == (1, 3)


def test_all_candidates_change_to_cpu_time_where_one_is_interrupted() -> None:
    timers = {"a": candidate([], "a", 2.0, 2.0), "b": candidate([], "b", 4.0, 3.0)}
    timings = interleave(timers, chunks=3, chunk_s=CHUNK_S, cpu_time=True)
    assert [t.clock for t in timings.values()] == [CPU, CPU]
    assert timings["b"].median_us == 3.0


def test_the_wall_clock_counts_where_nobody_is_interrupted_or_nobody_asked() -> None:
    quiet = {"a": candidate([], "a", 2.0, 1.99)}
    assert interleave(quiet, chunks=3, chunk_s=CHUNK_S, cpu_time=True)["a"].clock == WALL
    busy = {"a": candidate([], "a", 4.0, 2.0)}
    assert interleave(busy, chunks=3, chunk_s=CHUNK_S)["a"].median_us == 4.0


def test_percentiles_are_those_of_all_bursts() -> None:
    values = iter(range(10_000))

    def timer(bursts: int, runs: int) -> Laps:
        us = [100.0 + next(values) % 100 for _ in range(bursts)]
        return Laps(us, us)

    timing = interleave({"a": timer}, chunks=20, chunk_s=0.0318)["a"]
    assert 100 <= timing.p10_us < timing.median_us < timing.p90_us < 200
    assert timing.median_us == pytest.approx(149.5, abs=2)


def test_a_function_is_called_as_often_as_said() -> None:
    seen: list[int] = []
    laps = function_timer(lambda: seen.append(1))(3, 5)
    assert len(seen) == 15
    assert len(laps.wall_us) == len(laps.cpu_us) == 3
    assert all(us > 0 for us in laps.wall_us)


def test_onnx_runtime_is_timed_with_bound_inputs() -> None:
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 4)) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    timer = ort_timer(ort.make_session(model, threads=1), {"x": np.ones((1, 4), np.float32)})
    assert min(timer(2, 10).wall_us) > 0
