"""Lowers operators that move codes and change none, or pick one (MaxPool, ReduceMax, ReduceMin).

Transpose, Reshape and their kin move nothing at all: they rename the storage's digits (layout.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes, pick, take, transposed
from midge.convert.lower_params import fail, real_constant
from midge.convert.lower_pools import max_pool
from midge.convert.lower_program import Stored
from midge.convert.lower_reductions import largest, largest_of, smallest, smallest_of
from midge.convert.lower_repeats import REPEATS
from midge.convert.lower_target import Destination, Target
from midge.convert.plan import Concat, Pad

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Move = Callable[["Lowering", ir.Node, int, Sequence[Stored], Target], Stored]


def move(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Target
) -> Stored:
    """Lower one output of a move.

    Args:
        low: the lowering.
        node: an operator of MOVES.
        index: which output.
        sources: codes of the operands, all with the target's parameters.
        target: of the output.
    """
    return MOVES[node.op_type](low, node, index, sources, target)


def _same(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    return sources[0]


def _dropout(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    training = g.operand(node, 2)
    if training is not None and g.scalar(training) != 0:
        raise fail(node, "it is in training mode", "export the model for inference")
    return sources[0]


def _reshape(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    return replace(sources[0], shape=low.shape(node.outputs[index]))


def _transpose(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    x = sources[0]
    return transposed(low, x, g.attribute(node, "perm") or tuple(reversed(range(len(x.shape)))))


def _max_pool(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Target
) -> Stored:
    return max_pool(low, node, sources[0], target)


def _concat(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    xs, order = by_axes(low, sources)
    axis = g.attribute(node, "axis") % len(xs[0].shape)
    shape = low.shape(node.outputs[0])
    layout, dtype = lay.permuted(shape, order), low.program.tensors[xs[0].tensor].dtype
    y = low.program.new(target.name, shape, layout, target.params, dtype=dtype)
    inputs = [low.program.view(x, [x.shape[a] for a in order]) for x in xs]
    return low.program.op(g.label(node), Concat(order.index(axis)), inputs, y)


def _pad(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Target
) -> Stored:
    before, after = pad_widths(node, sources[0])
    if pads_with_elements(node):
        return pad_with_elements(low, node, sources[0], before, after)
    value = _pad_value(g.operand(node, 2), target)
    if value is None:
        raise fail(node, "its value is computed", "make it a constant")
    if not any(before) and not any(after):
        return sources[0]
    (x,), order = by_axes(low, sources[:1])
    code = target.real_code(value)
    params = Pad(tuple(before[a] for a in order), tuple(after[a] for a in order), code)
    shape = low.shape(node.outputs[0])
    y = low.program.new(target.name, shape, lay.permuted(shape, order), target.params)
    inputs = [low.program.view(x, [x.shape[a] for a in order])]
    return low.program.op(g.label(node), params, inputs, y)


def pad_widths(node: ir.Node, x: Stored) -> tuple[list[int], list[int]]:
    """Return how much a Pad adds before and after each file axis.

    Raises:
        UnsupportedError: it crops, or its widths are computed.
    """
    rank = len(x.shape)
    pads, axes = g.constant(g.operand(node, 1)), g.constant(g.operand(node, 3))
    if pads is None:
        raise fail(node, "its pads are computed", "make them constants")
    if np.any(pads < 0):
        raise fail(node, "its pads are negative", "crop with Slice")
    where = range(rank) if axes is None else [int(a) % rank for a in axes]
    before, after = [0] * rank, [0] * rank
    for i, a in enumerate(where):
        before[a], after[a] = int(pads[i]), int(pads[i + len(pads) // 2])
    return before, after


def pads_with_elements(node: ir.Node) -> bool:
    """Tell whether a Pad's mode is reflect, edge or wrap."""
    return bool(g.attribute(node, "mode", "constant") != "constant")


def pad_with_elements(
    low: "Lowering", node: ir.Node, x: Stored, before: Sequence[int], after: Sequence[int]
) -> Stored:
    """Surround with elements of x itself, axis by axis."""
    names, mode = (g.label(node), g.name_of(node.outputs[0])), g.attribute(node, "mode")
    for axis, widths in enumerate(zip(before, after, strict=True)):
        if any(widths):
            places = np.pad(np.arange(x.shape[axis]), widths, mode=mode)
            x = pick(low, names, x, axis, places.tolist())
    return x


def _pad_value(operand: ir.Value | None, target: Target) -> float | None:
    """Return what is padded with, a real value or, among bare codes, a code."""
    if operand is None:
        return 0.0
    array = g.constant(operand) if target.bare else real_constant(operand)
    return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


def _slice(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    x = sources[0]
    rank = len(x.shape)
    arrays = [g.constant(g.operand(node, i)) for i in (1, 2, 3, 4)]
    absent = [g.operand(node, i) is None for i in (1, 2, 3, 4)]
    if any(a is None and not gone for a, gone in zip(arrays, absent, strict=True)):
        raise fail(node, "its bounds are computed", "make them constants")
    starts, ends, axes, steps = arrays
    assert starts is not None
    assert ends is not None
    where = range(rank) if axes is None else [int(a) % rank for a in axes]
    start, step = [0] * rank, [1] * rank
    for i, a in enumerate(where):
        stride = 1 if steps is None else int(steps[i])
        start[a], _, step[a] = slice(
            int(starts[i]), None if stride < 0 and ends[i] < -x.shape[a] else int(ends[i]), stride
        ).indices(x.shape[a])
    return take(low, (g.label(node), target.name), x, start, step, low.shape(node.outputs[0]))


def _split(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    x = sources[0]
    axis = g.attribute(node, "axis", 0) % len(x.shape)
    start = [0] * len(x.shape)
    start[axis] = sum(low.shape(v)[axis] for v in node.outputs[:index])
    shape = low.shape(node.outputs[index])
    return take(low, (g.label(node), target.name), x, start, [1] * len(start), shape)


MOVES_ANY: dict[str, Callable[..., Stored]] = {  # of codes and of float elements
    "Concat": _concat,
    "Dropout": _dropout,
    "Flatten": _reshape,
    "Identity": _same,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
    **REPEATS,
}

MOVES: dict[str, Move] = {
    **MOVES_ANY,
    "GlobalMaxPool": _max_pool,
    "Max": largest_of,
    "MaxPool": _max_pool,
    "Min": smallest_of,
    "Pad": _pad,
    "ReduceMax": largest,
    "ReduceMin": smallest,
}


JOINS = ("Concat", "Max", "Min")  # moves that read elements of every operand


def carriers(node: ir.Node) -> list[ir.Value]:
    """Return the inputs of a move that carry elements."""
    inputs = node.inputs if node.op_type in JOINS else node.inputs[:1]
    return [v for v in inputs if v is not None]


def moves_codes(node: ir.Node) -> bool:
    """Tell whether an operator moves elements to places that are known, and computes none."""
    if g.is_op(node, "Resize"):
        return bool(g.attribute(node, "mode", "nearest") == "nearest")
    if g.is_op(node, "Gather"):
        return g.is_constant(node.inputs[1])
    return g.is_op(node, *MOVES)
