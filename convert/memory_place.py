"""Finds offsets for the blocks of a Layout: the best of several orders, then a search.

Each order gives every cluster of blocks, one after the other, the lowest place that is still free.
With few clusters all orders are tried.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from midge.convert.memory_layout import Layout
from midge.convert.plan import ALIGNMENT

EXACT_CLUSTERS = 8  # so few are tried in every order
PLACES = 20  # of clusters that this may look for, per swap of the other search
FAR = 8  # times smaller


def best_starts(layout: Layout, least: int, swaps: int) -> tuple[int, list[int]]:
    """Return (bytes of the arena, start of each cluster).

    Args:
        layout: to be placed.
        least: the search stops where so few bytes are enough.
        swaps: changes of the best order that are tried, or their worth in exact search.
    """
    search = _Search(layout)
    for key in ORDERS:
        if search.top <= least:
            break
        search.attempt(sorted(range(len(layout.clusters)), key=partial(key, layout)))
    if len(layout.clusters) <= EXACT_CLUSTERS:
        search.exhaust(least, PLACES * swaps)
    elif len(layout.clusters) > 1:
        search.improve(least, swaps)
    return search.top, search.starts


class _Search:
    """The best starts so far.

    Attributes:
        top: bytes of the arena.
        starts: of each cluster.
    """

    def __init__(self, layout: Layout) -> None:
        self._gaps = [cluster.gaps for cluster in layout.clusters]
        self._sizes = layout.sizes
        self._order = list(range(len(self._sizes)))
        self.starts = [0] * len(self._sizes)
        self.top = 1 << 62 if self._sizes else 0

    def attempt(self, order: list[int]) -> bool:
        """Place in this order; keep it where it is no worse."""
        starts = self._fit(order)
        top = max((s + n for s, n in zip(starts, self._sizes, strict=True)), default=0)
        if top > self.top:
            return False
        self.top, self.starts, self._order = top, starts, order
        return True

    def improve(self, least: int, swaps: int) -> None:
        """Change the order at random: two swap places, or what lies highest comes earlier."""
        rng = np.random.default_rng(0)  # a fixed seed: the same Plan gives the same arena
        for i, j in rng.integers(len(self._order), size=(swaps, 2)):
            if self.top <= least:
                return
            order = list(self._order)
            if (i + j) % 2:
                order[i], order[j] = order[j], order[i]
            else:
                ends = [self.starts[k] + self._sizes[k] for k in order]
                order.insert(min(i, j), order.pop(int(np.argmax(ends))))
            self.attempt(order)

    def exhaust(self, least: int, most: int) -> None:
        """Try every order, leaving out those that begin no better than the best.

        Args:
            least: nothing can be better.
            most: places of clusters that are looked for.
        """
        count, places = len(self._sizes), 0
        waiting: list[tuple[list[int], int]] = [([], 0)]
        while waiting and self.top > least and places < most:
            order, top = waiting.pop()
            if top >= self.top:
                continue
            if len(order) == count:
                self.attempt(order)
                continue
            starts: list[int | None] = [None] * count
            for i in order:
                starts[i] = self._lowest(i, starts)
            places += count
            rest = [i for i in range(count) if starts[i] is None]
            ends = {i: self._lowest(i, starts) + self._sizes[i] for i in rest}
            # The one that ends lowest goes on first.
            for i in sorted(rest, key=lambda i: -ends[i]):
                waiting.append(([*order, i], max(top, ends[i])))

    def _fit(self, order: Sequence[int]) -> list[int]:
        starts: list[int | None] = [None] * len(self._sizes)
        for i in order:
            starts[i] = self._lowest(i, starts)
        return [s or 0 for s in starts]

    def _lowest(self, cluster: int, starts: Sequence[int | None]) -> int:
        """Return the lowest place that those already placed leave to a cluster."""
        taken = []
        for other, gap in self._gaps[cluster]:
            base = starts[other]
            if base is not None:
                taken.append((base + gap.low, base + gap.high, base, gap))
        taken.sort(key=lambda t: t[0])
        at = 0
        for low, high, _, _ in taken:
            if low >= at:
                break
            if at < high:
                at = _aligned(high)
        shared = [base + d for _, _, base, gap in taken for d in gap.but if 0 <= base + d < at]
        for candidate in sorted(shared):
            if all(gap.allows(candidate - base) for _, _, base, gap in taken):
                return candidate
        return at


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _size(layout: Layout, index: int) -> int:
    return layout.sizes[index]


def _first(layout: Layout, index: int) -> int:
    return min(layout.blocks[i].first for i, _ in layout.clusters[index].members)


def _last(layout: Layout, index: int) -> int:
    return max(layout.blocks[i].last for i, _ in layout.clusters[index].members)


def _small(layout: Layout, index: int) -> bool:
    """Tell whether a cluster fits gaps between others: it is far smaller than the largest."""
    return _size(layout, index) * FAR < max(layout.sizes)


def _crowd(layout: Layout, index: int) -> int:
    """Return the bytes of all clusters that a cluster must keep away from."""
    return sum(_size(layout, other) for other, _ in layout.clusters[index].gaps)


ORDERS: tuple[Callable[[Layout, int], tuple[int, ...]], ...] = (
    lambda a, i: (-_size(a, i), _first(a, i)),
    lambda a, i: (_first(a, i) - _last(a, i), -_size(a, i)),
    lambda a, i: ((_first(a, i) - _last(a, i) - 1) * _size(a, i), _first(a, i)),
    lambda a, i: (-_crowd(a, i), -_size(a, i)),
    lambda a, i: (_first(a, i), -_size(a, i)),
    lambda a, i: (-_last(a, i), -_size(a, i)),
    # Where each output lies a little below its input, the last one is the lowest.
    lambda a, i: (_small(a, i), -_last(a, i), -_size(a, i)),
    lambda a, i: (_small(a, i), _first(a, i), -_size(a, i)),
)
