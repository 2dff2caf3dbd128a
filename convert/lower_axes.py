"""Moves along the axes of a tensor: reordering, cutting, repeating. The moves are made of these."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from midge.convert import layout as lay
from midge.convert.lower_program import Stored
from midge.convert.plan import Concat, Slice

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


def by_axes(low: "Lowering", sources: Sequence[Stored]) -> tuple[list[Stored], tuple[int, ...]]:
    """Return the tensors with one storage axis per file axis, all in one order, and that order.

    Of the orders in question the one is taken that moves the fewest bytes.
    """
    shape = sources[0].shape
    orders = [tuple(range(len(shape)))]
    orders += [(0, *range(2, len(shape)), 1)] if len(shape) > 2 else []
    orders += [order for x in sources if (order := _axis_order(x)) is not None]

    def cost(order: tuple[int, ...]) -> int:
        return sum(
            prod(x.shape)
            for x in sources
            if x.layout.canonical() != lay.permuted(x.shape, order).canonical()
        )

    best = min(orders, key=cost)
    return [low.program.reorder(x, lay.permuted(x.shape, best), "reordered") for x in sources], best


def _axis_order(x: Stored) -> tuple[int, ...] | None:
    """Return x's storage order as an order of file axes, or None where an axis is torn apart."""
    cut = x.layout.axes(x.shape)
    if cut is None or any(len(group) > 1 for group in cut[1]):
        return None
    fine, groups = cut
    owner = {k: a for a, group in enumerate(groups) for k in group}
    unit = [a for a, group in enumerate(groups) if not group]
    return (*unit, *(owner[k] for k in fine.order))


def transposed(low: "Lowering", x: Stored, perm: Sequence[int]) -> Stored:
    """Permute file axes; bytes move only where a Reshape before cut across the stored digits."""
    layout = x.layout.transposed(x.shape, perm)
    if layout is None:
        x = low.program.reorder(x, lay.identity(x.shape), "in_order")
        layout = lay.identity(x.shape).transposed(x.shape, perm)
        assert layout is not None
    return replace(x, shape=tuple(x.shape[a] for a in perm), layout=layout)


def take(
    low: "Lowering",
    names: tuple[str, str],
    x: Stored,
    start: Sequence[int],
    step: Sequence[int],
    shape: tuple[int, ...],
) -> Stored:
    """Add a Slice of file axes; step 0 repeats.

    Args:
        low: the lowering.
        names: of the step and of what it makes.
        x: what is cut.
        start: first index along each axis.
        step: from index to index.
        shape: of the result.
    """
    if shape == x.shape and all(s == 1 for s in step):
        return x
    (x,), order = by_axes(low, [x])
    params = Slice(tuple(start[a] for a in order), tuple(step[a] for a in order))
    layout, dtype = lay.permuted(shape, order), low.program.tensors[x.tensor].dtype
    y = low.program.new(names[1], shape, layout, x.params, dtype=dtype)
    inputs = [low.program.view(x, [x.shape[a] for a in order])]
    return low.program.op(names[0], params, inputs, y)


def pick(
    low: "Lowering", names: tuple[str, str], x: Stored, axis: int, places: Sequence[int]
) -> Stored:
    """Take elements of one axis at any places: evenly spaced runs are cut out and joined."""
    parts = []
    for run in _runs(places):
        start, step, shape = [0] * len(x.shape), [1] * len(x.shape), list(x.shape)
        start[axis], step[axis], shape[axis] = run[0], run[1] - run[0] if run[1:] else 1, len(run)
        parts.append(take(low, names, x, start, step, tuple(shape)))
    if len(parts) == 1:
        return parts[0]
    parts, order = by_axes(low, parts)
    shape = [*x.shape[:axis], len(places), *x.shape[axis + 1 :]]
    layout, dtype = lay.permuted(shape, order), low.program.tensors[x.tensor].dtype
    y = low.program.new(names[1], shape, layout, x.params, dtype=dtype)
    inputs = [low.program.view(part, [part.shape[a] for a in order]) for part in parts]
    return low.program.op(names[0], Concat(order.index(axis)), inputs, y)


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Cut a sequence into runs of one step from each number to the next."""
    runs: list[list[int]] = [[]]
    for place in places:
        run = runs[-1]
        if len(run) > 1 and place - run[-1] != run[1] - run[0]:
            runs.append([place])
        else:
            run.append(place)
    return runs


def expand(low: "Lowering", name: str, x: Stored, shape: tuple[int, ...]) -> Stored:
    """Repeat axes of size 1, and axes in front that x lacks; `name` is that of the step."""
    x = replace(x, shape=(1,) * (len(shape) - len(x.shape)) + x.shape)
    step = [int(a == b) for a, b in zip(x.shape, shape, strict=True)]
    made = f"{low.program.tensors[x.tensor].name}_expanded"
    return take(low, (name, made), x, [0] * len(shape), step, shape)


def repeat(low: "Lowering", name: str, x: Stored, times: Sequence[int], *, whole: bool) -> Stored:
    """Repeat along every axis.

    Args:
        low: the lowering.
        name: of the step.
        x: what is repeated.
        times: how often, per axis.
        whole: the axis as a whole (0 1 0 1), not each of its elements (0 0 1 1).
    """
    pairs = [(n, k) for n, k in zip(x.shape, times, strict=True)]
    apart = [(1, n) if whole else (n, 1) for n, _ in pairs]
    wanted = [(k, n) if whole else (n, k) for n, k in pairs]
    # Axes that are not repeated need no second axis: the C kernel has few.
    keep = [(a, b) if k > 1 else (n,) for (a, b), (n, k) in zip(apart, pairs, strict=True)]
    full = [(a, b) if k > 1 else (n,) for (a, b), (n, k) in zip(wanted, pairs, strict=True)]
    x = replace(x, shape=tuple(n for axis in keep for n in axis))
    y = expand(low, name, x, tuple(n for axis in full for n in axis))
    return replace(y, shape=tuple(prod(axis) for axis in full))
