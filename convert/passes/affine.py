"""Recognising y = a x + b with constant a and b, however it is spelt.

BatchNormalization in inference is one, and so are Mul, Div, Add, Sub and Neg with constants that
vary along one axis of x at most. Everything is computed in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g

Array = g.Array


@dataclass(frozen=True, slots=True)
class Affine:
    """y = a x + b.

    Args:
        source: x.
        axis: of x, along which a and b vary, not negative; None where both are one number.
        a: float64 [size of the axis] or [1].
        b: float64, of a's shape.
    """

    source: ir.Value
    axis: int | None
    a: Array
    b: Array

    def then(self, other: "Affine") -> "Affine | None":
        """Return the affine of `self` followed by `other`, or None if they vary along two axes."""
        if self.axis is not None and other.axis is not None and self.axis != other.axis:
            return None
        axis = self.axis if self.axis is not None else other.axis
        a, b = np.broadcast_arrays(other.a * self.a, other.a * self.b + other.b)
        return Affine(self.source, axis, a, b)

    def vector(self, channels: int) -> Array:
        """Return b as float32 [channels]."""
        return np.broadcast_to(self.b, (channels,)).astype(np.float32)


def read_affine(node: ir.Node) -> Affine | None:
    """Return what the node computes as an Affine, or None if it is none."""
    if g.is_op(node, "BatchNormalization"):
        return _batch_norm(node)
    if g.is_op(node, "Neg"):
        source = node.inputs[0]
        return Affine(source, None, -np.ones(1), np.zeros(1)) if source is not None else None
    if not g.is_op(node, *ARITHMETIC):
        return None
    left, right = node.inputs
    for source, other, swapped in ((left, right, False), (right, left, True)):
        c = g.constant(other)
        if c is None or source is None or g.is_constant(source) or not g.is_float(source):
            continue
        found = _along_one_axis(c, source)
        if found is None:
            return None
        axis, c = found
        if node.op_type == "Div" and (swapped or not np.all(c)):
            return None
        a, b = ARITHMETIC[node.op_type](c, swapped)
        return Affine(source, axis, *(np.array(v) for v in np.broadcast_arrays(a, b)))
    return None


# c -> (a, b); `swapped` says that the constant is the left operand
ARITHMETIC: dict[str, Callable[[Array, bool], tuple[Array, Array]]] = {
    "Add": lambda c, swapped: (np.ones(1), c),
    "Sub": lambda c, swapped: (-np.ones(1), c) if swapped else (np.ones(1), -c),
    "Mul": lambda c, swapped: (c, np.zeros(1)),
    "Div": lambda c, swapped: (1 / c, np.zeros(1)),
}


def _along_one_axis(c: Array, x: ir.Value) -> tuple[int | None, Array] | None:
    """Return the axis of x along which c varies, and c as a float64 vector."""
    shape = g.dims(x)
    if shape is None or c.ndim > len(shape) or not np.all(np.isfinite(c)):
        return None
    full = (1,) * (len(shape) - c.ndim) + c.shape
    axes = [i for i, size in enumerate(full) if size != 1]
    flat = c.astype(np.float64).reshape(-1)
    if not axes:
        return None, flat
    if len(axes) > 1 or shape[axes[0]] != full[axes[0]]:
        return None
    return axes[0], flat


def _batch_norm(node: ir.Node) -> Affine | None:
    """Return a = scale / sqrt(var + epsilon), b = B - mean a."""
    source, *operands = node.inputs
    values = [g.constant(v) for v in operands]
    training = g.attribute(node, "training_mode", 0)
    if source is None or training or any(o.uses() for o in node.outputs[1:]):
        return None
    if any(v is None for v in values):
        return None
    scale, B, mean, var = (np.asarray(v, np.float64) for v in values)
    spread = var + np.float64(np.float32(g.attribute(node, "epsilon", 1e-5)))
    if (spread <= 0).any():
        return None
    a = scale / np.sqrt(spread)
    return Affine(source, 1, a, B - mean * a)
