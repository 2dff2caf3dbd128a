"""Places every buffer of a Plan in one arena, and for size also cuts the Plan into streams.

A buffer lives from the segment that writes it (an input: from before the first) to the one that
reads it last (an output: to the end). Two buffers that live at the same time never share a byte,
except where the order of reads and writes is known: see midge.convert.memory_rows.
"""

from dataclasses import replace

from midge.convert.memory_order import best_order
from midge.convert.memory_rows import ELEMENTWISE
from midge.convert.memory_segments import Segment, Segments
from midge.convert.memory_streams import SWAPS, Cutter, Placement, placed
from midge.convert.plan import Plan, PlanOp, Stream
from midge.core.errors import UnsupportedError


def place(plan: Plan, *, optimize: str = "speed", max_ram: int | None = None) -> None:
    """Fill the Plan's offsets, scratch, streams, rings, arena_bytes and arena_bound.

    The steps change places where another order needs fewer bytes.

    Args:
        plan: as lowered, with scratch_bytes where steps need some.
        optimize: "speed" makes whole tensors, one step after the other; "size" makes some strip by
            strip where that saves memory.
        max_ram: bytes that the arena may have.

    Raises:
        UnsupportedError: the arena is larger than `max_ram`; the step that sets the peak is named.
    """
    plan.streams, plan.rings = [], {}
    before = plan.ops
    arrange = _small if optimize == "size" else _fast
    bound, best = arrange(plan)
    order = best_order(plan, ELEMENTWISE)
    if any(a is not b for a, b in zip(order, before, strict=True)):
        other = _reordered(plan, order)
        other_bound, found = arrange(other)
        if (found.top, other_bound) < (best.top, bound):
            plan.ops, plan.scratch_bytes = other.ops, other.scratch_bytes
            bound, best = other_bound, found
    fill(plan, best)
    plan.arena_bound = bound
    if max_ram is not None and plan.arena_bytes > max_ram:
        raise _too_large(plan, best, optimize, max_ram)


def _fast(plan: Plan) -> tuple[int, Placement]:
    """Return a lower bound and the best placement of whole tensors."""
    segments = Segments(plan)
    chosen = [segments.plain(i) for i in range(len(plan.ops))]
    bound = max([segments.least(), *(s.bytes for s in chosen)])
    return bound, placed(segments, chosen, bound, SWAPS)


def _small(plan: Plan) -> tuple[int, Placement]:
    """Return a lower bound for all streams, and the best placement with some."""
    cutter = Cutter(Segments(plan))
    return cutter.peak, cutter.best()


def _reordered(plan: Plan, order: list[PlanOp]) -> Plan:
    at = {id(op): i for i, op in enumerate(plan.ops)}
    scratch = [plan.scratch_bytes[at[id(op)]] for op in order] if plan.scratch_bytes else []
    return replace(plan, ops=order, scratch_bytes=scratch)


def fill(plan: Plan, best: Placement) -> None:
    """Write a placement into its Plan."""
    plan.arena_bytes = best.top
    plan.offsets = [0] * len(plan.buffer_bytes)
    scratch = {}
    for block, offset in zip(best.layout.blocks, best.offsets, strict=True):
        if block.buffer >= 0:
            plan.offsets[block.buffer] = offset
        else:
            scratch[block.first] = offset
    plan.scratch = []
    for index, segment in enumerate(best.segments):
        plan.scratch += [scratch.get(index, 0)] * len(segment.steps)
        plan.rings |= segment.rings
        if segment.strips:
            plan.streams.append(Stream(segment.steps.start, segment.strips))


def _too_large(plan: Plan, best: Placement, optimize: str, max_ram: int) -> UnsupportedError:
    """Return the error that names what sets the peak."""
    peak = max(best.segments, key=lambda s: s.bytes, default=None)
    where = f"{_title(plan, peak)} needs {peak.bytes} of them at once" if peak else "its inputs"
    remedy = (
        "compile with --optimize size"
        if optimize == "speed"
        else "give the network a smaller input or fewer channels there"
    )
    return UnsupportedError(
        f"{plan.name}: the arena has {plan.arena_bytes} bytes, more than --max-ram {max_ram}; "
        f"{where}; {remedy}."
    )


def _title(plan: Plan, segment: Segment) -> str:
    ops = [plan.ops[i] for i in segment.steps]
    first = f"{ops[0].name} ({type(ops[0].params).__name__})"
    return first if len(ops) == 1 else f"the stream {first} .. {ops[-1].name}"
