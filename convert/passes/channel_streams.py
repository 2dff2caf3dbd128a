"""Follows channels through the operators that neither mix nor compute them.

A stream says along which axis of a tensor the channels lie and gives each a number. Channels that
can only go together (the two operands of an Add, what goes into and comes out of a depthwise
filter) are tied: they have one root.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.convert import graph as g
from midge.quant.scheme import QuantParams

Ints = npt.NDArray[np.int64]
UNKNOWN = -(2**15)  # no code: the channel varies with the input
SAME = ("Identity", "Dropout", "MaxPool", "GlobalMaxPool")


@dataclass(frozen=True, slots=True)
class Stream:
    """The channels of one activation.

    Args:
        axis: along which they lie.
        ids: a number per channel, int64 [channels].
        codes: what a constant channel holds, UNKNOWN where it varies; None for a value that is
            neither codes nor dequantized codes.
        params: of those codes.
    """

    axis: int
    ids: Ints
    codes: Ints | None = None
    params: QuantParams | None = None


class Ties:
    """Numbers that belong together: a union-find forest."""

    def __init__(self) -> None:
        """Begin without any."""
        self._parent = np.zeros(0, np.int64)

    def fresh(self, count: int) -> Ints:
        """Return new numbers, tied to nothing."""
        start = len(self._parent)
        ids = np.arange(start, start + count)
        self._parent = np.concatenate([self._parent, ids])
        return ids

    def tie(self, first: Ints, second: Ints) -> None:
        """Tie pairs of numbers."""
        for a, b in zip(self.roots(first).tolist(), self.roots(second).tolist(), strict=True):
            low, high = sorted((self._root(a), self._root(b)))
            self._parent[high] = low

    def roots(self, ids: Ints) -> Ints:
        """Return the root of each number."""
        parent = self._parent
        while not np.array_equal(parent[ids], ids):
            ids = parent[ids]
        return ids

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            i = int(self._parent[i])
        return i

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return len(self._parent)


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a move puts channels: channel j of its output is channel index[j] of its input."""

    axis: int
    index: Ints


def moved(node: ir.Node, stream: Stream) -> Moved | None:
    """Return what an operator that changes no code does to channels, or None.

    None stands for every operator that computes, that joins or cuts channels, or whose shapes are
    not known well enough.
    """
    axis, same = stream.axis, np.arange(len(stream.ids))
    if len(node.outputs) != 1:
        return None
    if g.is_op(node, *SAME):
        return Moved(axis, same)
    if g.is_op(node, "Transpose"):
        rank = g.rank(node.inputs[0]) or 0
        perm = g.attribute(node, "perm") or tuple(reversed(range(rank)))
        return Moved(perm.index(axis), same)
    if g.is_op(node, "Slice"):
        return Moved(axis, same) if _spares(node, axis) else None
    if g.is_op(node, "Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        return _reshaped(node, axis)
    return None


def _spares(node: ir.Node, axis: int) -> bool:
    """Tell whether a Slice leaves an axis whole."""
    axes, rank = g.constant(g.operand(node, 3)), g.rank(node.inputs[0])
    return axes is not None and rank is not None and axis not in {int(a) % rank for a in axes}


def _reshaped(node: ir.Node, axis: int) -> Moved | None:
    """Follow channels through a change of shape: each must keep whole slices of one output axis."""
    before, after = _one_sample(node.inputs[0]), _one_sample(node.outputs[0])
    if node.op_type == "Reshape" and not g.is_constant(node.inputs[1]):
        return None
    if before is None or after is None or np.prod(before) != np.prod(after):
        return None
    shape = [1] * len(before)
    shape[axis] = -1
    labels = np.broadcast_to(np.arange(before[axis]).reshape(shape), before).reshape(after)
    for a in range(len(after)):
        column = np.moveaxis(labels, a, 0).reshape(after[a], -1)
        if (column == column[:, :1]).all():
            return Moved(a, column[:, 0].copy())
    return None


def _one_sample(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape with an unknown leading dimension taken as 1, or None."""
    shape = g.dims(value)
    if not shape:
        return None
    known = (shape[0] or 1, *shape[1:])
    return tuple(d for d in known if d is not None) if None not in known else None
