"""Streams: random networks replayed row by row, and placements that are wrong by one row."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert.compile import random_inputs
from midge.convert.executor import Executor
from midge.convert.memory import fill, place
from midge.convert.memory_check import Arena, strips
from midge.convert.memory_rows import Streamer
from midge.convert.memory_segments import STREAM_MAX, Segments
from midge.convert.memory_streams import Cutter, placed
from midge.convert.plan import (
    ALIGNMENT,
    Add,
    Conv2d,
    Plan,
    PlanOp,
    PlanTensor,
    Pool2d,
    Requantization,
    Stream,
    Table,
    Transpose,
)
from midge.core.errors import CheckError, UnsupportedError
from midge.quant.scheme import QuantParams

f32 = np.float32
CODES = QuantParams(f32(0.05), 3, "int8")


class Builder:
    """Grows a Plan of int8 tensors [1, H, W, C]."""

    def __init__(self, H, W, C, seed=0):
        self.rng = np.random.default_rng(seed)
        self.tensors = [PlanTensor("x", (1, H, W, C), "int8", 0)]
        self.ops = []

    def op(self, params, inputs, *shape):
        y = len(self.tensors)
        self.tensors.append(PlanTensor(f"t{y}", (1, *shape), "int8", y))
        self.ops.append(PlanOp(f"op{len(self.ops)}", params, inputs, y))
        return y

    def conv(self, x, out, kernel=3, stride=1, groups=1, top=None):
        _, H, W, C = self.tensors[x].shape
        p = (kernel - 1) // 2
        pads = (p if top is None else top, p, p, p)
        size = [(n + pads[i] + p - kernel) // stride + 1 for i, n in enumerate((H, W))]
        params = Conv2d(
            self.rng.integers(-127, 128, (out, kernel, kernel, C // groups)).astype(np.int8),
            self.rng.integers(-99, 99, out).astype(np.int32),
            (stride, stride),
            pads,
            (1, 1),
            groups,
            -3,
            Requantization(np.full(out, 0.01, f32), 5),
        )
        return self.op(params, (x,), *size, out)

    def inverted_residual(self, x, expand=6):
        C = self.tensors[x].shape[3]
        wide = self.conv(x, expand * C, 1)
        deep = self.conv(wide, expand * C, 3, groups=expand * C)
        return self.add(x, self.conv(deep, C, 1))

    def residual(self, x, out, stride):
        first = self.conv(x, out, 1, stride)
        return self.add(first, self.conv(self.conv(x, out, 3, stride), out))

    def add(self, a, b):
        return self.op(Add(CODES, CODES, CODES), (a, b), *self.tensors[a].shape[1:])

    def table(self, x):
        table = self.rng.permutation(256).astype(np.uint8).view(np.int8)
        return self.op(Table(table), (x,), *self.tensors[x].shape[1:])

    def pool(self, x, size=2):
        _, H, W, C = self.tensors[x].shape
        params = Pool2d("max", (size, size), (size, size), (0, 0, 0, 0), 0)
        return self.op(params, (x,), H // size, W // size, C)

    def turned(self, x):
        _, H, W, C = self.tensors[x].shape
        return self.op(Transpose((0, 2, 1, 3)), (x,), W, H, C)

    def plan(self, *outputs):
        sizes = [t.bytes for t in self.tensors]
        return Plan("net", self.tensors, self.ops, (0,), outputs, sizes)


def check(plan):
    """Replay a placed Plan; its outputs must be the executor's."""
    inputs = [x[0] for x in random_inputs(plan, 1, 0)]
    for a, b in zip(Arena(plan).run(inputs), Executor(plan).run(inputs), strict=True):
        assert np.array_equal(a, b)


def chain():
    """Two pairs of a depthwise and a pointwise convolution over 12 rows of 8 x 4 bytes."""
    net, x = Builder(12, 8, 4), 0
    for _ in range(2):
        x = net.conv(net.conv(x, 4, 3, groups=4), 4, 1)
    return net.plan(x)


@st.composite
def networks(draw):
    net = Builder(draw(st.integers(3, 11)), draw(st.integers(2, 4)), draw(st.integers(1, 5)), 1)
    ends = [0]
    for _ in range(draw(st.integers(1, 5))):
        x = draw(st.sampled_from(ends[-2:]))
        _, H, _, C = net.tensors[x].shape
        kind = draw(st.integers(0, 7))
        if kind == 0:
            ends.append(net.inverted_residual(x, 2))
        elif kind == 1:
            ends.append(net.residual(x, draw(st.integers(1, 6)), draw(st.integers(1, 2))))
        elif kind == 2:
            ends.append(net.table(x))
        elif kind == 3 and min(net.tensors[x].shape[1:3]) > 1:
            ends.append(net.pool(x))
        elif kind == 4:
            ends.append(net.conv(x, C, 3, groups=C))
        elif kind == 5:
            ends.append(net.turned(x))
        elif kind == 6:
            ends.append(net.add(x, x))
        else:
            kernel = draw(st.sampled_from([1, 3] if H < 5 else [1, 3, 5]))
            top = draw(st.integers(0, kernel - 1)) if kernel <= H else None
            ends.append(net.conv(x, draw(st.integers(1, 6)), kernel, 1, top=top))
    plan = net.plan(*sorted({ends[-1], draw(st.sampled_from(ends))}))
    plan.scratch_bytes = [draw(st.sampled_from([0, 7, 40])) for _ in plan.ops]
    return plan


@given(networks())
@settings(deadline=None, max_examples=60, derandomize=True)
def test_streams_of_a_random_network_read_and_write_only_what_is_theirs(plan):
    whole = replace(plan)
    place(whole)
    place(plan, optimize="size")
    check(plan)
    assert plan.arena_bound <= plan.arena_bytes <= whole.arena_bytes
    assert all(len(s.strips) <= STREAM_MAX for s in plan.streams)


@given(networks(), st.data())
@settings(deadline=None, max_examples=150, derandomize=True)
def test_any_cut_of_a_random_network_may_be_placed(plan, data):
    segments, stop, chosen = Segments(plan), len(plan.ops), []
    while stop:
        first = data.draw(st.integers(min(segments.longest(stop), stop - 1), stop - 1))
        steps = range(first, stop)
        sizes = tuple(data.draw(st.integers(1, 4)) for _ in steps)
        if segments.longest(stop) < stop:
            chosen.append(segments.stream(steps, sizes))
            literal = list(strips(plan, Stream(first, sizes)))
            order = Streamer(plan).schedule(steps, sizes)
            assert [step - first for step, _, _ in literal] == order
        else:
            chosen.append(segments.plain(first))
        stop = first
    place_as(plan, segments, chosen[::-1])
    check(plan)


@given(networks())
@settings(deadline=None, max_examples=60, derandomize=True)
def test_no_stream_needs_less_than_its_outline(plan):
    segments = Segments(plan)
    for stop in range(1, len(plan.ops) + 1):
        for first in range(segments.longest(stop), stop):
            outline = segments.outline(range(first, stop))
            stream = segments.stream(outline.steps, outline.strips)
            assert (outline.rough, stream.rough) == (True, False)
            assert outline.bytes <= stream.bytes
            assert outline.apart <= stream.apart
            assert outline.held <= stream.held


def place_as(plan, segments, chosen):
    """Write the placement of a given cut into a Plan."""

    fill(plan, placed(segments, chosen, 0, 20))


def streamed(plan, steps, sizes=None):
    """Place one stream and plain steps around it."""
    segments = Segments(plan)
    plain = [segments.plain(i) for i in range(len(plan.ops))]
    stream = segments.stream(steps, sizes or (1,) * len(steps))
    place_as(plan, segments, [*plain[: steps.start], stream, *plain[steps.stop :]])
    return stream


def test_a_ring_holds_the_rows_of_a_window():
    stream = streamed(chain(), range(4))
    assert stream.rings == {1: 1, 2: 3, 3: 1}


def test_a_ring_that_is_one_row_too_small_is_noticed():
    plan = chain()
    streamed(plan, range(4))
    check(plan)
    plan.rings[2] -= 1
    with pytest.raises(CheckError, match="op2 reads tensor 't2', of which 32 bytes were"):
        check(plan)


def test_an_output_lies_so_far_below_its_input_that_rows_are_read_first():
    plan = chain()
    stream = streamed(plan, range(2))
    (overlap,) = stream.overlaps
    assert (overlap.x, overlap.y, overlap.most) == (0, 2, -32)


@pytest.mark.parametrize("steps", [range(1), range(2), range(4)])
def test_an_output_that_is_one_row_too_high_is_noticed(steps):
    plan = chain()
    (overlap,) = streamed(plan, steps).overlaps
    plan.offsets[overlap.x] = 2048
    plan.arena_bytes = 4096
    plan.offsets[overlap.y] = 2048 + overlap.most
    for other in set(range(len(plan.offsets))) - {overlap.x, overlap.y}:
        plan.offsets[other] = 4096
        plan.arena_bytes += 4096
        plan.offsets[other] = plan.arena_bytes - 4096
    check(plan)
    plan.offsets[overlap.y] += 32
    with pytest.raises(CheckError, match="overwritten"):
        check(plan)


def test_a_stream_of_strips_needs_rings_of_several_rows():
    assert streamed(chain(), range(4), (2, 2, 2, 2)).rings == {1: 2, 2: 5, 3: 2}


def test_an_inverted_residual_writes_over_its_own_input():
    net = Builder(12, 8, 4)
    plan = net.plan(net.inverted_residual(0))
    stream = streamed(plan, range(4))
    (overlap,) = stream.overlaps
    row = 8 * 4
    # Add reads row r before it writes it, and the first convolution needs row r + 2 next.
    assert overlap.most == 0
    assert stream.bytes == 12 * row + 6 * row * (3 + 1) + row
    check(plan)


@pytest.mark.parametrize("strip", [1, 5, 12])
def test_an_elementwise_step_lies_at_or_below_its_input(strip):
    net = Builder(12, 8, 4)
    (overlap,) = streamed(net.plan(net.table(0)), range(1), (strip,)).overlaps
    assert overlap.most == 0


def test_a_residual_block_of_two_convolutions_keeps_less_than_whole_tensors():
    net = Builder(16, 8, 4)
    plan = net.plan(net.residual(net.conv(0, 8), 16, 2))
    place(plan, optimize="size")
    check(plan)
    assert any(len(s.strips) > 2 for s in plan.streams)
    assert plan.arena_bytes < 16 * 8 * 8 + 2 * 8 * 4 * 16


def test_whole_tensors_never_overlap_by_rows():
    plan = chain()
    place(plan, optimize="speed")
    check(plan)
    assert (plan.streams, plan.rings, plan.arena_bytes) == ([], {}, 2 * 12 * 8 * 4)


def test_a_step_by_itself_may_not_lie_over_its_input():
    plan = chain()
    place(plan, optimize="speed")
    plan.offsets[1] = plan.offsets[0]
    with pytest.raises(CheckError, match="over what it still reads"):
        check(plan)


def test_scratch_shares_no_byte_with_what_lives():
    plan = chain()
    plan.scratch_bytes = [48, 0, 16, 0]
    place(plan, optimize="size")
    check(plan)
    assert plan.scratch[1] == 0 or plan.streams
    wrong = replace(plan, scratch=[plan.offsets[0]] * 4)
    with pytest.raises(CheckError, match="overwritten"):
        check(wrong)


def test_scratch_outside_of_the_arena_is_noticed():
    plan = chain()
    plan.scratch_bytes = [ALIGNMENT] * 4
    place(plan)
    with pytest.raises(CheckError, match="16 bytes of scratch at offset 4096 do not fit"):
        check(replace(plan, scratch=[4096] * 4))


def test_a_long_chain_is_cut_so_that_it_does_not_creep_through_the_arena():
    net, x = Builder(25, 5, 64), 0
    for _ in range(4):
        x = net.conv(net.conv(x, 64, 3, groups=64), 64, 1)
    plan = net.plan(x)
    place(plan, optimize="size")
    check(plan)
    assert plan.arena_bytes == 25 * 320 + 4 * 320
    assert {len(s.strips) for s in plan.streams} == {2}


def test_strips_have_several_rows_where_they_cost_nothing():
    net = Builder(8, 16, 32)
    x = net.turned(0)  # needs the whole input and output, twice 4096 bytes
    plan = net.plan(net.inverted_residual(x, expand=1))
    place(plan, optimize="size")
    check(plan)
    (stream,) = plan.streams
    # Rings of 5, 2 and 2 rows of 256 bytes beside 4096; strips of 4 would need 9, 4 and 4.
    assert (stream.strips, plan.arena_bytes) == ((2, 2, 2, 2), 8192)


def test_no_cut_has_a_smaller_peak():
    net = Builder(16, 4, 3)
    plan = net.plan(net.conv(net.pool(net.conv(net.conv(0, 8), 8)), 4))
    segments = Segments(plan)

    def peaks(stop):
        """Return the peaks of all cuts of the first steps."""
        if stop == 0:
            return [segments.least()]
        ending = [segments.plain(stop - 1)]
        ending += [segments.stream(range(i, stop), (1,) * (stop - i)) for i in range(stop)]
        return [max(p, s.bytes) for s in ending for p in peaks(s.steps.start)]

    assert Cutter(segments).peak == min(peaks(4))


def test_a_limit_that_is_too_low_names_the_step_and_the_remedy():
    plan = chain()
    with pytest.raises(UnsupportedError, match=r"--max-ram 500; op0 \(Conv2d\) needs 768.*size"):
        place(plan, max_ram=500)
    with pytest.raises(UnsupportedError, match=r"--max-ram 400; the stream op0 .*smaller input"):
        place(plan, optimize="size", max_ram=400)
    place(plan, optimize="size", max_ram=500)
    assert plan.arena_bytes <= 500
