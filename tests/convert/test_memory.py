"""Placement in one arena: replayed byte by byte, in place where it may, never by accident."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert.compile import random_inputs
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.memory_check import Arena
from midge.convert.memory_segments import lifetimes
from midge.convert.plan import ALIGNMENT, Concat, FlipSign, Plan, PlanOp, PlanTensor
from midge.core.errors import CheckError


def residual(qdq):
    """A block with a shortcut: three activations of one size live at once."""
    graph = qdq(3)
    x = graph.layer("Conv", graph.input([1, 4, 10, 10]), (8, 4, 3, 3), 36, pads=[1] * 4)
    a = graph.layer("Conv", x, (8, 8, 3, 3), 72, pads=[1] * 4)
    b = graph.layer("Conv", a, (8, 8, 3, 3), 72, pads=[1] * 4)
    y = graph.quantized(graph.node("Add", [x, b]), graph.wider(x, 1, 2))
    pooled = graph.quantized(graph.node("GlobalAveragePool", [y]), graph.wider(y))
    return lower(graph.output(graph.node("Flatten", [pooled])).model(), name="residual")


def test_a_replay_in_the_arena_gives_the_executors_bits(qdq):
    plan = residual(qdq)
    place(plan)
    inputs = [x[0] for x in random_inputs(plan, 1, 0)]
    replayed = Arena(plan).run(inputs)
    for a, b in zip(replayed, Executor(plan).run(inputs), strict=True):
        assert np.array_equal(a, b)


def test_the_arena_meets_its_lower_bound_and_offsets_are_aligned(qdq):
    plan = residual(qdq)
    place(plan)
    assert plan.arena_bytes == plan.arena_bound == 3 * 800
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets)


def test_a_sum_lands_on_the_operand_that_it_reads_last(qdq):
    plan = residual(qdq)
    place(plan)
    add = next(op for op in plan.ops if type(op.params).__name__ == "Add")
    offsets = [plan.offsets[plan.tensors[t].buffer] for t in (*add.inputs, add.output)]
    assert offsets[2] in offsets[:2]


def test_outputs_live_to_the_end_and_inputs_from_the_start(qdq):
    plan = residual(qdq)
    lives = lifetimes(plan)
    assert lives[plan.tensors[plan.inputs[0]].buffer][0] == -1
    assert lives[plan.tensors[plan.outputs[0]].buffer][1] == len(plan.ops)


def test_an_output_is_never_overwritten_in_place():
    tensors = [PlanTensor(n, (32,), "int8", i) for i, n in enumerate("xyz")]
    ops = [PlanOp("one", FlipSign(), (0,), 1), PlanOp("two", FlipSign(), (1,), 2)]
    plan = Plan("chain", tensors, ops, (0,), (1, 2), [32] * 3)
    place(plan)
    assert plan.arena_bytes == 64


def test_overlapping_buffers_are_noticed(qdq):
    plan = residual(qdq)
    place(plan)
    plan.offsets = [0] * len(plan.offsets)
    with pytest.raises(CheckError, match="overwritten"):
        Arena(plan).run([x[0] for x in random_inputs(plan, 1, 0)])


def test_a_buffer_outside_of_the_arena_is_noticed(qdq):
    plan = residual(qdq)
    place(plan)
    plan.arena_bytes -= 1
    with pytest.raises(CheckError, match="do not fit the arena"):
        Arena(plan).run([x[0] for x in random_inputs(plan, 1, 0)])


def test_placing_twice_gives_the_same_offsets(qdq):
    first, second = residual(qdq), residual(qdq)
    place(first)
    place(second)
    assert first.offsets == second.offsets


@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_a_plan_without_steps_has_an_arena_for_its_inputs(optimize):
    plan = Plan("pass", [PlanTensor("x", (5,), "int8", 0)], [], (0,), (0,), [5])
    place(plan, optimize=optimize)
    assert (plan.arena_bytes, plan.arena_bound) == (5, 5)


@st.composite
def chains(draw):
    """A random program of FlipSigns: each step reads any earlier tensor of its size."""
    size = draw(st.lists(st.integers(1, 300), min_size=1, max_size=4))
    tensors = [PlanTensor(f"x{i}", (n,), "int8", i) for i, n in enumerate(size)]
    ops = []
    for i in range(draw(st.integers(0, 14))):
        source = draw(st.integers(0, len(tensors) - 1))
        tensors.append(PlanTensor(f"y{i}", tensors[source].shape, "int8", len(tensors)))
        ops.append(PlanOp(f"op{i}", FlipSign(), (source,), len(tensors) - 1))
    outputs = draw(st.sets(st.integers(0, len(tensors) - 1), min_size=1, max_size=3))
    sizes = [t.bytes for t in tensors]
    return Plan("chain", tensors, ops, tuple(range(len(size))), tuple(sorted(outputs)), sizes)


@given(chains())
@settings(deadline=None, max_examples=80, derandomize=True)
def test_no_placement_of_a_random_program_lets_a_step_read_foreign_bytes(plan):
    inputs = [x[0] for x in random_inputs(plan, 1, 0)]
    expected = Executor(plan).run(inputs)
    place(plan)
    for a, b in zip(Arena(plan).run(inputs), expected, strict=True):
        assert np.array_equal(a, b)
    assert plan.arena_bound <= plan.arena_bytes <= sum(plan.buffer_bytes) + 16 * len(plan.offsets)


def branches():
    """Two chains x -> big -> small that join: doing one whole chain first saves a big buffer."""
    sizes = [16, 512, 512, 16, 16, 16]
    tensors = [PlanTensor(f"t{i}", (n,), "int8", i) for i, n in enumerate(sizes)]
    edges = [((0,), 1), ((0,), 2), ((1,), 3), ((2,), 4), ((3, 4), 5)]
    ops = [PlanOp(f"op{o}", Concat(0), inputs, o) for inputs, o in edges]
    return Plan("branches", tensors, ops, (0,), (5,), sizes)


def test_the_steps_change_places_where_that_saves_bytes():
    plan = branches()
    place(plan)
    assert [op.name for op in plan.ops] in (
        ["op1", "op3", "op2", "op4", "op5"],
        ["op2", "op4", "op1", "op3", "op5"],
    )
    assert plan.arena_bytes == 16 + 16 + 512


def test_scratch_goes_with_its_step():
    plan = branches()
    plan.scratch_bytes = [16 * i for i in range(len(plan.ops))]
    before = dict(zip((op.name for op in plan.ops), plan.scratch_bytes, strict=True))
    place(plan)
    after = dict(zip((op.name for op in plan.ops), plan.scratch_bytes, strict=True))
    assert list(after) != list(before)
    assert after == before


def test_a_whole_elementwise_step_may_lie_on_its_input_only_exactly():
    tensors = [PlanTensor(n, (32,), "int8", i) for i, n in enumerate("xy")]
    plan = Plan("one", tensors, [PlanOp("one", FlipSign(), (0,), 1)], (0,), (1,), [32, 32])
    inputs = [x[0] for x in random_inputs(plan, 1, 0)]
    place(plan)
    plan.arena_bytes = 64
    for offset, fits in ((16, True), (0, False), (32, False)):
        plan.offsets = [16, offset]
        if fits:
            Arena(plan).run(inputs)
            continue
        with pytest.raises(CheckError, match="one writes 'y' over what it still reads of 'x'"):
            Arena(plan).run(inputs)


def test_the_steps_stay_where_another_order_saves_nothing(qdq):
    plan = residual(qdq)
    before = [op.name for op in plan.ops]
    place(plan)
    assert [op.name for op in plan.ops] == before
