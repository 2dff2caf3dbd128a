"""Cuts a program into plain steps and streams so that its arena becomes small.

Dynamic programming over the cut points finds the smallest peak of all cuts, then the cuts with the
fewest bytes of rings below a limit. Where blocks overlap in every segment they move down through
the arena, which no single segment shows; so several limits and prices of that are tried, and what
counts is the arena that comes out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from midge.convert.memory_layout import Layout, blocks_of
from midge.convert.memory_place import best_starts
from midge.convert.memory_segments import Segment, Segments

PRICES = (0, 1, 4)  # of a byte of creep, in bytes of rings
LIMITS = 8  # between the smallest peak and the best arena so far
TRIAL_SWAPS, SWAPS = 20, 400  # of the search for offsets
STRIPS = (16, 8, 4, 2)  # rows of a strip that are tried where they cost nothing


@dataclass(frozen=True, slots=True)
class Placement:
    """A program cut into segments, and where everything lies.

    Attributes:
        top: bytes of the arena.
        segments: in order, all steps.
        layout: their blocks.
        offsets: of the blocks.
    """

    top: int
    segments: tuple[Segment, ...]
    layout: Layout
    offsets: list[int]

    @property
    def rank(self) -> tuple[int, int, int]:
        """What is better is less: the arena, steps in streams, bytes of rings."""
        streamed = sum(len(s.steps) for s in self.segments if s.strips)
        return self.top, streamed, sum(s.held for s in self.segments)


def placed(segments: Segments, chosen: Sequence[Segment], least: int, swaps: int) -> Placement:
    """Place a program that is cut so."""
    found = []
    blocks = blocks_of(segments.plan, segments.lives, chosen)
    overlaps = [o for s in chosen for o in s.overlaps]
    for merge in (True, False):
        layout = Layout(blocks, overlaps, merge=merge)
        top, starts = best_starts(layout, least, swaps)
        found.append(Placement(top, tuple(chosen), layout, layout.offsets(starts)))
        if top <= least or len(layout.clusters) == len(layout.blocks):
            break
    return min(found, key=lambda p: p.top)


class Cutter:
    """Looks for the best cut of one Plan.

    Args:
        segments: of the Plan.

    Attributes:
        peak: fewest bytes that any cut needs at once.
    """

    def __init__(self, segments: Segments) -> None:
        """Find the smallest peak."""
        self._segments = segments
        self._count = len(segments.plan.ops)
        self._ending = [list(self._candidates(stop)) for stop in range(1, self._count + 1)]
        cut = self._exact(self._lowest_peak)
        self.peak = max([segments.least(), *(s.bytes for s in cut)])

    def best(self) -> Placement:
        """Return the best placement that was found."""
        seen: dict[tuple[int, ...], Placement] = {}
        best = self._try(self.peak, PRICES[0], seen)
        for price in PRICES[1:]:
            best = min(best, self._try(self.peak, price, seen), key=lambda p: p.rank)
        for step in range(1, LIMITS + 1):
            limit = self.peak + (best.top - self.peak) * step // LIMITS
            for price in PRICES:
                best = min(best, self._try(limit, price, seen), key=lambda p: p.rank)
        cuts = [best.segments]
        whole = [self._segments.plain(i) for i in range(self._count)]
        if max((s.bytes for s in whole), default=0) < best.top:  # no worse than without streams
            cuts.append(tuple(whole))
        better = [placed(self._segments, cut, self.peak, SWAPS) for cut in cuts]
        return self._grown(min(best, *better, key=lambda p: p.rank))

    def _candidates(self, stop: int) -> Iterator[Segment]:
        """Yield the segments that end before step `stop`."""
        yield self._segments.plain(stop - 1)
        for first in range(stop - 1, self._segments.longest(stop) - 1, -1):
            yield self._segments.outline(range(first, stop))

    def _exact(self, find: Callable[[], list[Segment]]) -> list[Segment]:
        """Return the best cut by carrying out the streams of those that look best.

        A stream is never better than its outline, so what is best then is best of all.
        """
        while True:
            found = find()
            rough = [s for s in found if s.rough]
            if not rough:
                return found
            for s in rough:
                ending = self._ending[s.steps.stop - 1]
                ending[ending.index(s)] = self._segments.stream(s.steps, s.strips)

    def _lowest_peak(self) -> list[Segment]:
        best: list[tuple[int, tuple[Segment, ...]]] = [(0, ())]
        for ending in self._ending:
            s = min(ending, key=lambda s: (max(s.bytes, best[s.steps.start][0]), s.rough))
            peak, before = best[s.steps.start]
            best.append((max(s.bytes, peak), (*before, s)))
        return list(best[-1][1])

    def _try(self, limit: int, price: int, seen: dict[tuple[int, ...], Placement]) -> Placement:
        """Place the cut of the fewest bytes of rings of those that need no more than `limit`."""
        chosen = self._exact(lambda: self._cheapest(limit, price))
        key = tuple(2 * s.steps.start + bool(s.strips) for s in chosen)
        if key not in seen:
            seen[key] = placed(self._segments, chosen, self.peak, TRIAL_SWAPS)
        return seen[key]

    def _cheapest(self, limit: int, price: int) -> list[Segment]:
        best: list[tuple[int, int, tuple[Segment, ...]] | None] = [(0, 0, ())]
        for ending in self._ending:
            found = None
            for s in ending:
                before = best[s.steps.start]
                if before is None or s.bytes > limit:
                    continue
                creep = price * s.creep if s.apart > limit else 0
                cost = before[0] + s.held + creep, before[1] + len(s.strips)
                if found is None or cost < found[:2]:
                    found = (*cost, (*before[2], s))
            best.append(found)
        last = best[-1]
        assert last is not None  # limit is at least the smallest peak
        return list(last[2])

    def _grown(self, best: Placement) -> Placement:
        """Let strips have more rows where the arena stays as small."""
        for index, segment in enumerate(best.segments):
            for rows in STRIPS if segment.strips else ():
                strips = self._strips(segment, rows)
                segments = list(best.segments)
                segments[index] = self._segments.stream(segment.steps, strips)
                if strips == segment.strips or segments[index].bytes > best.top:
                    continue
                found = placed(self._segments, segments, best.top, TRIAL_SWAPS)
                if found.top <= best.top:
                    best = found
                    break
        return best

    def _strips(self, segment: Segment, rows: int) -> tuple[int, ...]:
        """Return strips of a stream whose last step makes so many rows at once."""
        plan = self._segments.plan
        heights = [plan.tensors[plan.ops[i].output].shape[1] for i in segment.steps]
        return tuple(min(h, max(1, rows * h // heights[-1])) for h in heights)
