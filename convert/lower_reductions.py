"""Lowers ReduceMean, ReduceSum, ReduceMax and ReduceMin of codes, and Max and Min, as pools.

The axes that are reduced are brought side by side in memory. What lies before, in and after them is
then an image whose windows do not overlap, and the kernels of pools do the rest. The operands of a
Max lie side by side once they are joined.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.layout import Layout
from midge.convert.lower_axes import by_axes, expand
from midge.convert.lower_params import fail
from midge.convert.lower_pools import Window, average
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Target
from midge.convert.plan import Concat, Pool2d, Table

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

LARGEST_SIDE = 2**16 - 1  # of an image or a window in a record of the C runtime
MIRROR = np.arange(127, -129, -1).astype(np.int8)  # -1 - code: the smallest becomes the largest


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction over axes that lie side by side in memory.

    Args:
        x: the operand, reordered where that was needed.
        storage: (outer, number of elements reduced, inner).
        layout: of the result.
    """

    x: Stored
    storage: tuple[int, int, int]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Tiles:
    """An image whose windows do not overlap and leave nothing out.

    Args:
        windows: how many, and the channels: the result [N, H, W, C].
        kernel: (y, x).
    """

    windows: tuple[int, int, int, int]
    kernel: tuple[int, int]

    @classmethod
    def of(cls, storage: tuple[int, int, int]) -> "Tiles":
        """Cut (outer, reduced, inner) so that no side is longer than a record takes."""
        outer, count, inner = storage
        if inner > LARGEST_SIDE:
            return cls((outer, 1, *sides(inner)), (count, 1))
        if count > LARGEST_SIDE:
            return cls((outer, 1, 1, inner), sides(count))
        width, height = sides(outer)
        return cls((1, height, width, inner), (1, count))

    @property
    def image(self) -> tuple[int, int, int, int]:
        """The operand [N, H, W, C]."""
        n, h, w, c = self.windows
        return n, h * self.kernel[0], w * self.kernel[1], c

    @property
    def window(self) -> Window:
        """What the pool slides."""
        return Window(self.kernel, self.kernel, (0, 0, 0, 0))


def mean(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower ReduceMean over any axes: the average of each window."""
    return _summed(low, node, target, mean=True)


def total(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower ReduceSum over any axes: an average pool that does not divide."""
    return _summed(low, node, target, mean=False)


def _summed(low: "Lowering", node: ir.Node, target: Target, *, mean: bool) -> Stored:
    x = low.operand(node, 0)
    r = reduction_of(low, x, reduced_axes(node, x))
    tiles = Tiles.of(r.storage)
    params = average(node, r.x, target, tiles.window, divisor=None if mean else 1)
    return _pool(low, node, r, tiles, params, target)


def largest(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Target
) -> Stored:
    """Lower ReduceMax of codes."""
    return _extreme(low, node, sources[0], target)


def smallest(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Target
) -> Stored:
    """Lower ReduceMin of codes: the largest of the mirrored codes, mirrored back."""
    mirrored = _mirrored(low, sources[0], f"{target.name}_mirrored")
    return _mirrored(low, _extreme(low, node, mirrored, target), target.name)


def largest_of(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Target
) -> Stored:
    """Lower Max of codes that have one scale; axes of size 1 are repeated."""
    return _of_several(low, node, sources, target)


def smallest_of(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Target
) -> Stored:
    """Lower Min of codes that have one scale, as ReduceMin."""
    mirrored = [_mirrored(low, x, f"{target.name}_mirrored_{i}") for i, x in enumerate(sources)]
    return _mirrored(low, _of_several(low, node, mirrored, target), target.name)


def _of_several(
    low: "Lowering", node: ir.Node, sources: Sequence[Stored], target: Target
) -> Stored:
    shape, name = low.shape(node.outputs[0]), f"{target.name}_joined"
    xs, order = by_axes(low, [expand(low, g.label(node), x, shape) for x in sources])
    storage = (1, len(xs), prod(shape))
    joined = low.program.new(
        name, (len(xs), *shape), lay.identity((len(xs), *shape)), target.params, storage=storage[1:]
    )
    inputs = [low.program.view(x, (1, prod(shape))) for x in xs]
    joined = low.program.op(name, Concat(0), inputs, low.program.as_written(joined))
    return _highest(low, node, Reduction(joined, storage, lay.permuted(shape, order)), target)


def _extreme(low: "Lowering", node: ir.Node, x: Stored, target: Target) -> Stored:
    return _highest(low, node, reduction_of(low, x, reduced_axes(node, x)), target)


def _highest(low: "Lowering", node: ir.Node, r: Reduction, target: Target) -> Stored:
    tiles = Tiles.of(r.storage)
    w = tiles.window
    params = Pool2d("max", w.kernel, w.stride, w.pads, r.x.stored_codes.zero_point)
    return _pool(low, node, r, tiles, params, target)


def _mirrored(low: "Lowering", x: Stored, name: str) -> Stored:
    y = low.program.new(name, x.shape, lay.spelt(x.shape, x.layout), x.params)
    return low.program.op(name, Table(MIRROR), [x.tensor], y)


def _pool(
    low: "Lowering", node: ir.Node, r: Reduction, tiles: Tiles, params: Pool2d, target: Target
) -> Stored:
    shape = low.shape(node.outputs[0])
    source = low.program.view(r.x, tiles.image)
    y = low.program.new(target.name, shape, r.layout, target.params, storage=tiles.windows)
    return low.program.op(g.label(node), params, [source], low.program.as_written(y))


def sides(count: int) -> tuple[int, int]:
    """Return two factors of a number, the second as large as a record of the C runtime takes."""
    second = max(d for d in range(1, min(count, LARGEST_SIDE) + 1) if count % d == 0)
    return count // second, second


def reduced_axes(node: ir.Node, x: Stored) -> list[int]:
    """Return the axes of a ReduceMean or its kin, all where it names none.

    Raises:
        UnsupportedError: they are computed.
    """
    given = g.constant(g.operand(node, 1))
    if given is None and g.operand(node, 1) is not None:
        raise fail(node, "its axes are computed", "make them constants")
    axes = g.attribute(node, "axes") if given is None else tuple(int(a) for a in given)
    if not axes and g.attribute(node, "noop_with_empty_axes", 0):
        return []
    rank = len(x.shape)
    return sorted({a % rank for a in axes} if axes else range(rank))


def reduction_of(low: "Lowering", x: Stored, reduced: Sequence[int]) -> Reduction:
    """Return what reducing these file axes does to x, in storage order."""
    rank = len(x.shape)
    kept = [a for a in range(rank) if a not in reduced]
    fine, groups = x.layout.axes(x.shape) or (None, [])
    inside = {k for a in reduced for k in groups[a]} if fine else set()
    runs = [] if fine is None else [i for i, k in enumerate(fine.order) if k in inside]
    if fine is None or (runs and runs != list(range(runs[0], runs[0] + len(runs)))):
        x = low.program.reorder(x, lay.permuted(x.shape, (*kept, *reduced)), "reduced_last")
        fine, groups = x.layout.axes(x.shape) or (x.layout, [])
        inside = {k for a in reduced for k in groups[a]}
        runs = [i for i, k in enumerate(fine.order) if k in inside]
    first = runs[0] if runs else len(fine.order)
    shape = fine.storage_shape
    storage = (
        prod(shape[:first]),
        prod(x.shape[a] for a in reduced),
        prod(shape[first + len(runs) :]),
    )
    return Reduction(x, storage, without(fine, inside))


def without(layout: Layout, gone: set[int]) -> Layout:
    """Return the layout with digits of size 1 in place of some."""
    return Layout(tuple(1 if k in gone else f for k, f in enumerate(layout.factors)), layout.order)


REDUCTIONS: dict[str, Callable[["Lowering", ir.Node, Target], Stored]] = {
    "ReduceMean": mean,
    "ReduceSum": total,
}
