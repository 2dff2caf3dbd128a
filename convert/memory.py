"""Places every buffer of a Plan in one arena: the best of several greedy orders and a short search.

A buffer lives from the step that writes it (an input: from before the first) to the step that reads
it last (an output: to the end). Two buffers that live at the same time never overlap, with one
exception: an elementwise step may write its output exactly over an input that it reads last.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from midge.convert.memory_order import best_order
from midge.convert.plan import ALIGNMENT, Add, FlipSign, Mul, Plan, Table
from midge.convert.plan_float import BinaryF32, UnaryF32

# Element i of the output depends on element i of the inputs only.
IN_PLACE = (Add, BinaryF32, FlipSign, Mul, Table, UnaryF32)
SWAPS = 400  # of the search; it stops at the lower bound, which small networks reach at once


@dataclass(frozen=True, slots=True)
class Block:
    """Buffers that share one place.

    Args:
        buffers: indices, in the order in which they are written.
        bytes: size of the largest.
        first: step that writes the first of them, -1 for an input.
        last: last step that needs it.
    """

    buffers: tuple[int, ...]
    bytes: int
    first: int
    last: int

    def meets(self, other: "Block") -> bool:
        """Tell whether both are needed at some step."""
        return self.first <= other.last and other.first <= self.last


def place(plan: Plan) -> None:
    """Fill the Plan's offsets, arena_bytes and arena_bound.

    The steps change places where another order needs fewer bytes at once.
    """
    blocks = merged(plan, lifetimes(plan))
    reordered = replace(plan, ops=best_order(plan, IN_PLACE))
    others = merged(reordered, lifetimes(reordered))
    if bound(others) < bound(blocks):
        plan.ops, blocks = reordered.ops, others
    plan.arena_bound = bound(blocks)
    offsets = _best(blocks, plan.arena_bound)
    plan.offsets = [0] * len(plan.buffer_bytes)
    for block, offset in zip(blocks, offsets, strict=True):
        for buffer in block.buffers:
            plan.offsets[buffer] = offset
    plan.arena_bytes = _top(blocks, offsets)


def lifetimes(plan: Plan) -> list[tuple[int, int]]:
    """Return (first, last) step of each buffer; -1 is before the first step."""
    steps: list[list[int]] = [[] for _ in plan.buffer_bytes]
    for tensor in plan.inputs:
        steps[plan.tensors[tensor].buffer].append(-1)
    for index, op in enumerate(plan.ops):
        for tensor in (*op.inputs, op.output):
            steps[plan.tensors[tensor].buffer].append(index)
    for tensor in plan.outputs:
        steps[plan.tensors[tensor].buffer].append(len(plan.ops))
    return [(min(s, default=0), max(s, default=0)) for s in steps]


def merged(plan: Plan, lives: Sequence[tuple[int, int]]) -> list[Block]:
    """Return the blocks after every elementwise step took over a dying input's place."""
    blocks = {b: Block((b,), size, *lives[b]) for b, size in enumerate(plan.buffer_bytes) if size}
    home = {b: b for b in blocks}
    for index, op in enumerate(plan.ops):
        y = plan.tensors[op.output].buffer
        for tensor in op.inputs if isinstance(op.params, IN_PLACE) else ():
            x = plan.tensors[tensor].buffer
            dying = lives[x][1] == index and plan.buffer_bytes[x] == plan.buffer_bytes[y]
            if dying and lives[y][0] == index and home[y] == y:
                into = blocks[home[x]]
                taken = blocks.pop(y)
                last = max(into.last, taken.last)
                blocks[home[x]] = Block((*into.buffers, y), into.bytes, into.first, last)
                home[y] = home[x]
    return list(blocks.values())


def bound(blocks: Sequence[Block]) -> int:
    """Return the most bytes needed at one step: no placement in this order of steps needs fewer."""
    steps = {block.first for block in blocks}
    return max(
        (sum(b.bytes for b in blocks if b.first <= step <= b.last) for step in steps), default=0
    )


def _best(blocks: Sequence[Block], least: int) -> list[int]:
    """Return the offsets of the best order found."""
    best: list[int] = [0] * len(blocks)
    order: list[int] = []
    for key in ORDERS:
        candidate = sorted(range(len(blocks)), key=lambda i, k=key: k(blocks[i], blocks))  # type: ignore[misc]
        offsets = _fit(blocks, candidate)
        if not order or _top(blocks, offsets) < _top(blocks, best):
            best, order = offsets, candidate
    rng = np.random.default_rng(0)  # a fixed seed: the same Plan gives the same arena
    for _ in range(SWAPS if len(blocks) > 2 else 0):
        if _top(blocks, best) <= least:
            break
        i, j = rng.choice(len(blocks), 2, replace=False)
        candidate = list(order)
        candidate[i], candidate[j] = candidate[j], candidate[i]
        offsets = _fit(blocks, candidate)
        if _top(blocks, offsets) <= _top(blocks, best):
            best, order = offsets, candidate
    return best


def _fit(blocks: Sequence[Block], order: Sequence[int]) -> list[int]:
    """Give each block, in this order, the lowest free place."""
    offsets = [0] * len(blocks)
    placed: list[int] = []
    for i in order:
        block, at = blocks[i], 0
        for j in sorted((j for j in placed if blocks[j].meets(block)), key=offsets.__getitem__):
            if at + block.bytes <= offsets[j]:
                break
            at = max(at, _aligned(offsets[j] + blocks[j].bytes))
        offsets[i] = at
        placed.append(i)
    return offsets


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _top(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    return max((o + b.bytes for b, o in zip(blocks, offsets, strict=True)), default=0)


def _conflicts(block: Block, blocks: Sequence[Block]) -> int:
    return sum(other.bytes for other in blocks if other.meets(block))


ORDERS: tuple[Callable[[Block, Sequence[Block]], tuple[int, ...]], ...] = (
    lambda b, all_: (-b.bytes, b.first),
    lambda b, all_: (b.first - b.last, -b.bytes),
    lambda b, all_: ((b.first - b.last - 1) * b.bytes, b.first),
    lambda b, all_: (-_conflicts(b, all_), -b.bytes),
    lambda b, all_: (b.first, -b.bytes),
    lambda b, all_: (-b.last, -b.bytes),
)
