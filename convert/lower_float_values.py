"""Building blocks of float lowering: elementwise steps, reductions and constants on real values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes
from midge.convert.lower_program import Stored
from midge.convert.lower_reductions import reduction_of
from midge.convert.plan_float import BinaryF32, ConstantF32, ReduceF32, UnaryF32

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array


def constant_step(low: "Lowering", name: str, array: Array) -> Stored:
    """Copy a float constant into the arena."""
    value = np.ascontiguousarray(array, np.float32)
    y = low.program.new(name, array.shape, lay.identity(array.shape), None)
    return low.program.op(f"{name}_constant", ConstantF32(value), [], y)


def apply(
    low: "Lowering", name: str, kind: str, x: Stored, alpha: float = 0.0, beta: float = 0.0
) -> Stored:
    """Apply an elementwise function, in whatever order x lies."""
    y = low.program.new(name, x.shape, lay.spelt(x.shape, x.layout), None)
    return low.program.op(name, UnaryF32(kind, alpha, beta), [x.tensor], y)


def combine(low: "Lowering", name: str, kind: str, a: Stored | Array, b: Stored | Array) -> Stored:
    """Combine two values element by element; axes are matched from the last, as in ONNX.

    Args:
        low: the lowering.
        name: of the result.
        kind: of BinaryF32.
        a: a tensor, or a float32 constant.
        b: the same.
    """
    if not isinstance(a, Stored):
        if isinstance(b, Stored):
            return _with_constant(low, name, kind, b, a, swapped=True)
        a = constant_step(low, f"{name}_a", a)
    if not isinstance(b, Stored):
        return _with_constant(low, name, kind, a, b, swapped=False)
    shape = np.broadcast_shapes(a.shape, b.shape)
    if a.shape == b.shape:
        if a.layout.canonical() != b.layout.canonical():
            # What an image layer made stays as it lies: the next layer wants it so.
            towards_b = a.layout.is_identity()
            a = low.program.reorder(a, b.layout, "reordered") if towards_b else a
            b = b if towards_b else low.program.reorder(b, a.layout, "reordered")
        y = low.program.new(name, shape, lay.spelt(a.shape, a.layout), None)
        inputs = [low.program.view(x, y.layout.storage_shape) for x in (a, b)]
        return low.program.op(name, BinaryF32(kind), inputs, y)
    (a, b), order = by_axes(low, [of_rank(x, len(shape)) for x in (a, b)])
    y = low.program.new(name, shape, lay.permuted(shape, order), None)
    inputs = [low.program.view(x, [x.shape[k] for k in order]) for x in (a, b)]
    return low.program.op(name, BinaryF32(kind), inputs, y)


def _with_constant(
    low: "Lowering", name: str, kind: str, x: Stored, array: Array, *, swapped: bool
) -> Stored:
    shape = np.broadcast_shapes(x.shape, array.shape)
    if array.size == 1 and shape == x.shape:
        y = low.program.new(name, shape, lay.spelt(shape, x.layout), None)
        storage = y.layout.storage_shape
        constant = np.full((1,) * len(storage), array.reshape(-1)[0], np.float32)
        inputs = [low.program.view(x, storage)]
        return low.program.op(name, BinaryF32(kind, constant, swapped), inputs, y)
    (x,), order = by_axes(low, [of_rank(x, len(shape))])
    rows = array.reshape((1,) * (len(shape) - array.ndim) + array.shape).transpose(order)
    constant = np.ascontiguousarray(rows, np.float32)
    y = low.program.new(name, shape, lay.permuted(shape, order), None)
    inputs = [low.program.view(x, [x.shape[k] for k in order])]
    return low.program.op(name, BinaryF32(kind, constant, swapped), inputs, y)


def of_rank(x: Stored, rank: int) -> Stored:
    """Return x with axes of size 1 in front."""
    return replace(x, shape=(1,) * (rank - len(x.shape)) + x.shape)


def reduce(
    low: "Lowering", name: str, kind: str, x: Stored, axes: Sequence[int], shape: tuple[int, ...]
) -> Stored:
    """Reduce file axes.

    Args:
        low: the lowering.
        name: of the result.
        kind: of ReduceF32.
        x: the operand.
        axes: sorted, not negative.
        shape: of the result in the file.
    """
    r = reduction_of(low, x, axes)
    outer, _, inner = r.storage
    source = low.program.view(r.x, r.storage)
    y = low.program.new(name, shape, r.layout, None, storage=(outer, 1, inner))
    return low.program.op(name, ReduceF32(kind), [source], y)
