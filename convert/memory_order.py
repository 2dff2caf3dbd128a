"""Looks for an order of a Plan's steps that needs fewer bytes at once than the file's.

A beam search over the orders that respect what each step reads: of the partial orders with equally
many steps, the ones with the smallest peak, then the fewest bytes alive, go on.

Source: Liberis, Lane, "Neural networks on microcontrollers: saving memory at inference via operator
reordering", 2019 (the idea; they search exhaustively).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from midge.convert.plan import Plan, PlanOp

BEAM = 16  # partial orders kept; one is enough for a chain, branches need a few


@dataclass(frozen=True, slots=True)
class _Partial:
    """The first steps of an order.

    Args:
        peak: most bytes alive so far.
        alive: bytes alive now.
        order: indices of the steps done.
        done: the same as a set.
    """

    peak: int
    alive: int
    order: tuple[int, ...]
    done: frozenset[int]


def best_order(plan: Plan, in_place: tuple[type, ...]) -> list[PlanOp]:
    """Return the steps in the order of the smallest peak that was found.

    Args:
        plan: in the file's order; every buffer is written once.
        in_place: parameter classes of steps that may write over an input that they read last.
    """
    search = _Search(plan, in_place)
    beam = [search.start()]
    for _ in plan.ops:
        grown: dict[frozenset[int], _Partial] = {}
        for partial in (p for old in beam for p in search.grow(old)):
            known = grown.get(partial.done)
            if known is None or _rank(partial) < _rank(known):
                grown[partial.done] = partial
        beam = sorted(grown.values(), key=_rank)[:BEAM]
    return [plan.ops[i] for i in beam[0].order]


def _rank(partial: _Partial) -> tuple[int, int, tuple[int, ...]]:
    return partial.peak, partial.alive, partial.order


class _Search:
    """Who reads and writes which buffer."""

    def __init__(self, plan: Plan, in_place: tuple[type, ...]) -> None:
        self._sizes = plan.buffer_bytes
        buffers = [t.buffer for t in plan.tensors]
        self._reads = [frozenset(buffers[t] for t in op.inputs) for op in plan.ops]
        self._writes = [buffers[op.output] for op in plan.ops]
        self._in_place = [isinstance(op.params, in_place) for op in plan.ops]
        self._given = {buffers[t] for t in plan.inputs}
        self._kept = {buffers[t] for t in plan.outputs}
        self._readers: dict[int, set[int]] = {}
        for index, read in enumerate(self._reads):
            for buffer in read:
                self._readers.setdefault(buffer, set()).add(index)
        self._writer = {buffer: i for i, buffer in enumerate(self._writes)}

    def start(self) -> _Partial:
        """Return the order of no steps: the inputs are alive."""
        alive = sum(self._sizes[b] for b in self._given)
        return _Partial(alive, alive, (), frozenset())

    def grow(self, partial: _Partial) -> Iterator[_Partial]:
        """Yield the order continued by each step that may come next."""
        for index, read in enumerate(self._reads):
            if index in partial.done or not self._ready(read, partial.done):
                continue
            done = partial.done | {index}
            size = self._sizes[self._writes[index]]
            dying = [
                self._sizes[b] for b in read if b not in self._kept and self._readers[b] <= done
            ]
            shared = size if self._in_place[index] and size in dying else 0
            peak = max(partial.peak, partial.alive + size - shared)
            unread = self._writes[index] not in self._kept | set(self._readers)
            alive = partial.alive + (0 if unread else size) - sum(dying)
            yield _Partial(peak, alive, (*partial.order, index), done)

    def _ready(self, read: frozenset[int], done: frozenset[int]) -> bool:
        return all(b in self._given or self._writer[b] in done for b in read)
