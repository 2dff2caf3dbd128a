"""Offsets: gaps between blocks, blocks that share a place, exact search, scratch."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert.compile import random_inputs
from midge.convert.executor import Executor
from midge.convert.memory import place
from midge.convert.memory_check import Arena
from midge.convert.memory_layout import Block, Gap, Layout
from midge.convert.memory_place import best_starts
from midge.convert.memory_rows import Overlap
from midge.convert.plan import ALIGNMENT, Concat, FlipSign, Plan, PlanOp, PlanTensor
from midge.core.errors import CheckError


def layout(lives, overlaps=(), merge=False):
    """Lay out blocks (bytes, first, last)."""
    blocks = [Block(i, *life) for i, life in enumerate(lives)]
    return Layout(blocks, overlaps, merge=merge)


def test_blocks_that_never_meet_have_no_gap():
    chain = layout([(16, -1, 0), (32, 0, 1), (48, 1, 2)])
    assert chain.gap(0, 2) is None
    assert chain.gap(0, 1) == Gap(-32, 16)
    assert chain.gap(1, 0) == Gap(-16, 32)


def test_a_gap_allows_both_sides_and_what_is_named():
    gap = Gap(-32, 16, (0,))
    assert [d for d in range(-48, 33, 16) if gap.allows(d)] == [-48, -32, 0, 16, 32]


def test_an_output_may_lie_a_margin_below_its_input():
    found = layout([(64, -1, 0), (64, 0, 1)], [Overlap(0, 1, most=-16)])
    assert found.gap(0, 1) == Gap(-16, 64)
    assert found.gap(1, 0) == Gap(-64, 16)
    top, starts = best_starts(found, 0, 20)
    assert (top, starts[0] - starts[1]) == (80, 16)


def test_a_part_of_a_concatenation_lies_where_it_is_copied_to():
    lives = [(16, -1, 1), (16, 0, 1), (32, 1, 2)]
    overlaps = [Overlap(0, 2, exact=0), Overlap(1, 2, exact=-16)]
    for merge in (True, False):
        found = layout(lives, overlaps, merge)
        top, starts = best_starts(found, 0, 20)
        assert top == 32
        assert found.offsets(starts) == [0, 16, 0]
    assert len(layout(lives, overlaps, merge=True).clusters) == 1


def test_blocks_that_cannot_share_a_place_are_not_tied():
    # Both inputs would have to lie at the start of the output.
    overlaps = [Overlap(0, 2, exact=0), Overlap(1, 2, exact=0)]
    found = layout([(16, -1, 1), (16, 0, 1), (16, 1, 2)], overlaps, merge=True)
    assert sorted(len(c.members) for c in found.clusters) == [1, 2]


def test_concatenated_parts_take_no_bytes_of_their_own():
    tensors = [PlanTensor(n, (64,), "int8", i) for i, n in enumerate("xab")]
    tensors.append(PlanTensor("y", (128,), "int8", 3))
    ops = [
        PlanOp("one", FlipSign(), (0,), 1),
        PlanOp("two", FlipSign(), (0,), 2),
        PlanOp("join", Concat(0), (1, 2), 3),
    ]
    plan = Plan("join", tensors, ops, (0,), (3,), [64, 64, 64, 128])
    place(plan)
    assert plan.arena_bytes == plan.arena_bound == 128
    assert plan.offsets[2] == plan.offsets[3] + 64
    inputs = [x[0] for x in random_inputs(plan, 1, 0)]
    assert np.array_equal(Arena(plan).run(inputs)[0], Executor(plan).run(inputs)[0])
    y = plan.offsets[3]
    plan.offsets, plan.arena_bytes = [128, y + 64, y, y], 192
    with pytest.raises(CheckError, match="join writes 'y' over what it still reads"):
        Arena(plan).run(inputs)


def test_a_part_that_is_not_aligned_is_copied():
    tensors = [PlanTensor(n, (24,), "int8", i) for i, n in enumerate("xa")]
    tensors.append(PlanTensor("y", (48,), "int8", 2))
    ops = [PlanOp("one", FlipSign(), (0,), 1), PlanOp("join", Concat(0), (0, 1), 2)]
    plan = Plan("join", tensors, ops, (0,), (2,), [24, 24, 48])
    place(plan)
    inputs = [x[0] for x in random_inputs(plan, 1, 0)]
    assert np.array_equal(Arena(plan).run(inputs)[0], Executor(plan).run(inputs)[0])
    assert plan.offsets[0] == plan.offsets[2]
    assert all(offset % ALIGNMENT == 0 for offset in plan.offsets)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 2)), min_size=1,
                max_size=5))  # fmt: skip
@settings(deadline=None, max_examples=60, derandomize=True)
def test_few_blocks_are_placed_as_well_as_can_be(drawn):
    blocks = [Block(i, ALIGNMENT * n, a, a + more) for i, (n, a, more) in enumerate(drawn)]
    top, starts = best_starts(Layout(blocks, [], merge=False), 0, 400)
    for (i, a), (j, b) in itertools.combinations(enumerate(blocks), 2):
        if a.meets(b):
            assert starts[i] + a.bytes <= starts[j] or starts[j] + b.bytes <= starts[i]
    assert top == smallest(blocks)


def smallest(blocks):
    """Return the bytes of the best placement, by trying all offsets below the sum."""
    total = sum(b.bytes for b in blocks) // ALIGNMENT

    def fits(limit, placed):
        if len(placed) == len(blocks):
            return True
        block = blocks[len(placed)]
        for at in range(0, limit * ALIGNMENT - block.bytes + 1, ALIGNMENT):
            clear = all(
                not block.meets(b) or at + block.bytes <= s or s + b.bytes <= at
                for b, s in zip(blocks, placed, strict=False)
            )
            if clear and fits(limit, [*placed, at]):
                return True
        return False

    return ALIGNMENT * next(n for n in range(total + 1) if fits(n, []))
