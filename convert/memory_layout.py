"""Blocks of bytes, when they are needed, and how near to each other two of them may lie."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from midge.convert.memory_rows import Overlap, row_bytes
from midge.convert.memory_segments import Segment
from midge.convert.plan import Plan


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes in the arena.

    Attributes:
        buffer: index, -1 for scratch.
        bytes: at least 1.
        first: segment that writes it, -1 for an input.
        last: last segment that needs it.
    """

    buffer: int
    bytes: int
    first: int
    last: int

    def meets(self, other: "Block") -> bool:
        """Tell whether both are needed in some segment."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Gap:
    """offset(b) - offset(a) is not between low and high, except when it is one of `but`."""

    low: int
    high: int
    but: tuple[int, ...] = ()

    def allows(self, difference: int) -> bool:
        """Tell whether b may lie so far above a."""
        return not self.low < difference < self.high or difference in self.but


@dataclass(slots=True)
class Cluster:
    """Blocks that keep their distance: elementwise outputs on their inputs, parts of a Concat.

    Attributes:
        members: (block, bytes from the start of the cluster).
        gaps: (other cluster, Gap from that one to this one).
    """

    members: list[tuple[int, int]]
    gaps: list[tuple[int, Gap]] = field(default_factory=list)


class Layout:
    """Blocks, and how near to each other they may lie.

    Args:
        blocks: of buffers and of scratch.
        overlaps: between buffers.
        merge: tie blocks that may share one place to each other.

    Attributes:
        blocks: as given.
        clusters: of the blocks, every block in one.
        sizes: bytes from the start of each cluster to its end.
    """

    def __init__(
        self, blocks: Sequence[Block], overlaps: Iterable[Overlap], *, merge: bool
    ) -> None:
        """Find out how the blocks may lie."""
        self.blocks = blocks
        at = {b.buffer: i for i, b in enumerate(blocks) if b.buffer >= 0}
        self._overlaps = {(at[o.x], at[o.y]): o for o in overlaps if o.x in at and o.y in at}
        self.clusters = self._clustered(merge)
        self.sizes = [
            max(start + self.blocks[i].bytes for i, start in cluster.members)
            for cluster in self.clusters
        ]
        self._find_gaps()

    def offsets(self, starts: Sequence[int]) -> list[int]:
        """Return the offset of each block where the clusters start there."""
        offsets = [0] * len(self.blocks)
        for cluster, start in zip(self.clusters, starts, strict=True):
            for i, inside in cluster.members:
                offsets[i] = start + inside
        return offsets

    def gap(self, a: int, b: int) -> Gap | None:
        """Return how two blocks must lie, None where they never meet."""
        x, y = self.blocks[a], self.blocks[b]
        if not x.meets(y):
            return None
        low, high, but = -y.bytes, x.bytes, []
        for o, sign in ((self._overlaps.get((a, b)), 1), (self._overlaps.get((b, a)), -1)):
            if o is not None and o.most is not None:
                low, high = (max(low, o.most), high) if sign > 0 else (low, min(high, -o.most))
            elif o is not None and o.exact is not None:
                but.append(sign * o.exact)
        return Gap(low, high, tuple(but)) if low < high else None

    def _clustered(self, merge: bool) -> list[Cluster]:
        clusters = {i: Cluster([(i, 0)]) for i in range(len(self.blocks))}
        home = {i: i for i in clusters}
        for (x, y), o in self._overlaps.items() if merge else ():
            a, b = clusters[home[x]], clusters[home[y]]
            if o.exact is None or a is b:
                continue
            shift = dict(a.members)[x] + o.exact - dict(b.members)[y]
            moved = [(i, start + shift) for i, start in b.members]
            if all(self._fits(i, s, j, t) for i, s in a.members for j, t in moved):
                del clusters[home[y]]
                low = min(start for _, start in (*a.members, *moved))
                a.members = [(i, start - low) for i, start in (*a.members, *moved)]
                home |= {i: home[x] for i, _ in moved}
        return list(clusters.values())

    def _fits(self, a: int, a_start: int, b: int, b_start: int) -> bool:
        gap = self.gap(a, b)
        return gap is None or gap.allows(b_start - a_start)

    def _find_gaps(self) -> None:
        for index, cluster in enumerate(self.clusters):
            for other, before in enumerate(self.clusters[:index]):
                for a, a_start in before.members:
                    for b, b_start in cluster.members:
                        gap = self.gap(a, b)
                        if gap is not None:
                            moved = _moved(gap, a_start - b_start)
                            cluster.gaps.append((other, moved))
                            before.gaps.append((index, _mirrored(moved)))


def _moved(gap: Gap, by: int) -> Gap:
    return Gap(gap.low + by, gap.high + by, tuple(d + by for d in gap.but))


def _mirrored(gap: Gap) -> Gap:
    return Gap(-gap.high, -gap.low, tuple(-d for d in gap.but))


def blocks_of(
    plan: Plan, lives: Sequence[tuple[int, int]], segments: Sequence[Segment]
) -> list[Block]:
    """Return the blocks of a program.

    Args:
        plan: for the sizes.
        lives: (first, last) step of each buffer.
        segments: in order, all steps.
    """
    at: Mapping[int, int] = {
        -1: -1,
        len(plan.ops): len(segments),
        **{step: g for g, segment in enumerate(segments) for step in segment.steps},
    }
    sizes = list(plan.buffer_bytes)
    for segment in segments:
        for tensor, rows in segment.rings.items():
            t = plan.tensors[tensor]
            sizes[t.buffer] = rows * row_bytes(t.bytes, t.shape)
    blocks = [
        Block(b, sizes[b], at[first], at[last]) for b, (first, last) in enumerate(lives) if sizes[b]
    ]
    return blocks + [Block(-1, s.scratch, g, g) for g, s in enumerate(segments) if s.scratch]
