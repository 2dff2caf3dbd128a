"""Lowers what puts elements to, or takes them from, places that constants name.

Every output element comes from one known element of the operands strung together: a Gather. Where a
reduction lets several updates meet in one place, the k-th of each place are combined in round k.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_float_values import combine, constant_step
from midge.convert.lower_params import fail
from midge.convert.lower_program import Stored
from midge.convert.plan import Concat
from midge.convert.plan_general import Gather

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array
# reduction of ScatterElements and ScatterND -> kind of BinaryF32, what changes nothing
REDUCTIONS = {
    "add": ("add", 0.0),
    "max": ("max", -np.inf),
    "min": ("min", np.inf),
    "mul": ("mul", 1.0),
}


def gathered(
    low: "Lowering", name: str, sources: Sequence[Stored], places: Array, shape: tuple[int, ...]
) -> Stored:
    """Return elements of tensors, each in the file's order and one behind the other.

    Args:
        low: the lowering.
        name: of the result.
        sources: float32 or int32, all alike.
        places: integers, one for each element of the result, in the file's order.
        shape: of the result.
    """
    dtype = low.program.tensors[sources[0].tensor].dtype
    flat = []
    for x in sources:
        ordered = low.program.reorder(x, lay.identity(x.shape), "in_order")
        flat.append(low.program.view(ordered, (prod(x.shape),)))
    total = sum(prod(x.shape) for x in sources)
    if len(flat) > 1:
        joined = low.program.new(
            f"{name}_joined", (total,), lay.identity((total,)), None, dtype=dtype
        )
        flat = [low.program.op(f"{name}_join", Concat(0), flat, joined).tensor]
    line = low.program.view(Stored(flat[0], (total,), lay.identity((total,))), (1, total, 1))
    index = low.reals.constant(f"{name}_places", places.reshape(-1))
    y = low.program.new(
        name, shape, lay.identity(shape), None, dtype=dtype, storage=(1, prod(shape), 1)
    )
    return low.program.op(name, Gather(), [line, index.tensor], y)


def _operand(low: "Lowering", node: ir.Node, index: int) -> Stored:
    value = node.inputs[index]
    assert value is not None
    return low.reals.of(value)


def _indices(node: ir.Node, index: int, what: str = "indices") -> Array:
    array = g.constant(node.inputs[index])
    if array is None:
        raise fail(node, f"its {what} are computed", "make them constants")
    return array.astype(np.int64)


def _numbered(shape: Sequence[int]) -> Array:
    """Return the places of a tensor's elements, in its shape."""
    return np.arange(prod(shape)).reshape(shape)


def _within(node: ir.Node, indices: Array, sizes: Array) -> Array:
    """Count indices below 0 from the end.

    Raises:
        UnsupportedError: one lies outside.
    """
    whole: Array = np.where(indices < 0, indices + sizes, indices)
    if np.any((whole < 0) | (whole >= sizes)):
        raise fail(node, "an index lies outside of its axis", "export a sound model")
    return whole


def _scatter_elements(low: "Lowering", node: ir.Node, index: int) -> Stored:
    data, indices = _operand(low, node, 0), _indices(node, 1)
    axis = g.attribute(node, "axis", 0) % len(data.shape)
    places = list(np.indices(indices.shape))
    places[axis] = _within(node, indices, np.array(data.shape[axis]))
    targets = _numbered(data.shape)[tuple(places)]
    return _scattered(low, node, data, targets.reshape(-1))


def _scatter_nd(low: "Lowering", node: ir.Node, index: int) -> Stored:
    data, indices = _operand(low, node, 0), _indices(node, 1)
    sizes = np.array(data.shape[: indices.shape[-1]])
    places = _within(node, indices, sizes)
    targets = _numbered(data.shape)[tuple(np.moveaxis(places, -1, 0))]
    return _scattered(low, node, data, targets.reshape(-1))


def _scattered(low: "Lowering", node: ir.Node, data: Stored, targets: Array) -> Stored:
    """Return data with the updates in these places of it."""
    updates, name = _operand(low, node, 2), g.name_of(node.outputs[0])
    reduction, count = g.attribute(node, "reduction", "none"), prod(data.shape)
    if reduction == "none":
        places = np.arange(count)
        places[targets] = count + np.arange(len(targets))  # of several, the last remains
        return gathered(low, name, [data, updates], places, data.shape)
    if not g.is_float(node.inputs[0]):
        raise fail(node, f"it combines integers by {reduction}", "cast them to float")
    kind, neutral = REDUCTIONS[reduction]
    parts = _rounds(low, name, updates, targets, data.shape, neutral)
    for k, part in enumerate(parts):
        made = name if k == len(parts) - 1 else f"{name}_{k}"
        data = combine(low, made, kind, data, part)
    return data


def _rounds(
    low: "Lowering",
    name: str,
    updates: Stored,
    targets: Array,
    shape: tuple[int, ...],
    neutral: float,
) -> list[Stored]:
    """Return tensors that hold, at each place, the first update of it, the second, and so on.

    Args:
        low: the lowering.
        name: stem of their names.
        updates: the elements.
        targets: place of each; one below 0 is nowhere.
        shape: of the tensors.
        neutral: where there is no update.
    """
    count = prod(shape)
    seen = np.zeros(count, np.int64)
    turn = np.full(len(targets), -1)
    for i, place in enumerate(targets.tolist()):
        if place >= 0:
            turn[i] = seen[place]
            seen[place] += 1
    rest = constant_step(low, f"{name}_neutral", np.array([neutral], np.float32))
    parts = []
    for k in range(max(int(seen.max()), 1)):
        places = np.full(count, prod(updates.shape))
        chosen = np.flatnonzero(turn == k)
        places[targets[chosen]] = chosen
        parts.append(gathered(low, f"{name}_round_{k}", [updates, rest], places, shape))
    return parts


def _gather_nd(low: "Lowering", node: ir.Node, index: int) -> Stored:
    x, indices = _operand(low, node, 0), _indices(node, 1)
    shared = g.attribute(node, "batch_dims", 0)
    batches, depth = prod(x.shape[:shared]), indices.shape[-1]
    whole = _within(node, indices, np.array(x.shape[shared : shared + depth]))
    rows = whole.reshape(batches, -1, depth)
    numbers = _numbered(x.shape).reshape(batches, *x.shape[shared:])
    places = np.stack([n[tuple(row.T)] for n, row in zip(numbers, rows, strict=True)])
    return gathered(low, g.name_of(node.outputs[0]), [x], places, low.shape(node.outputs[0]))


def _reverse_sequence(low: "Lowering", node: ir.Node, index: int) -> Stored:
    x, lengths = _operand(low, node, 0), _indices(node, 1, "lengths")
    axes = (g.attribute(node, "batch_axis", 1), g.attribute(node, "time_axis", 0))
    places = _numbered(x.shape)
    rows = np.moveaxis(places, axes, (0, 1))
    for row, length in zip(rows, lengths.tolist(), strict=True):
        row[:length] = row[:length][::-1].copy()
    return gathered(low, g.name_of(node.outputs[0]), [x], places, x.shape)


def _col2im(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Add the columns of all windows up to the image they were cut from."""
    x, name, shape = _operand(low, node, 0), g.name_of(node.outputs[0]), low.shape(node.outputs[0])
    block = [int(v) for v in _indices(node, 2, "block sizes")]
    rank, size = len(block), shape[2:]
    ones, zeros = (1,) * rank, (0,) * (2 * rank)
    stride, spread = g.attribute(node, "strides", ones), g.attribute(node, "dilations", ones)
    pads = g.attribute(node, "pads", zeros)
    padded = [size[i] + pads[i] + pads[i + rank] for i in range(rank)]
    numbers = np.pad(
        _numbered(shape),
        [(0, 0), (0, 0), *((pads[i], pads[i + rank]) for i in range(rank))],
        constant_values=-1,
    )
    steps = [(padded[i] - (block[i] - 1) * spread[i] - 1) // stride[i] + 1 for i in range(rank)]
    taps = [  # per axis, the row of every tap and step
        np.arange(block[i])[:, None] * spread[i] + np.arange(steps[i]) * stride[i]
        for i in range(rank)
    ]
    for i, rows in enumerate(taps):  # every spatial axis becomes taps, steps
        numbers = np.take(numbers, rows, axis=2 + 2 * i)
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]
    targets = numbers.transpose(order).reshape(-1)
    if len(targets) != prod(x.shape):
        what = f"its windows hold {len(targets)} elements and its input {prod(x.shape)}"
        raise fail(node, what, "export a sound model")
    parts = _rounds(low, name, x, targets, shape, 0.0)
    y = parts[0]
    for k, part in enumerate(parts[1:], 1):
        y = combine(low, name if k == len(parts) - 1 else f"{name}_{k}", "add", y, part)
    return y


Step = Callable[["Lowering", ir.Node, int], Stored]
SCATTER: dict[str, Step] = {  # of words: float32 and int32
    "GatherND": _gather_nd,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
SCATTER_F32: dict[str, Step] = {**SCATTER, "Col2Im": _col2im}
