"""Lowers Add, Sub and Mul: of two activations, of one and a constant, or of one with itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes, expand
from midge.convert.lower_layers import matmul
from midge.convert.lower_params import Array, Codes, constant_codes, real_constant
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Target
from midge.convert.plan import Add, Constant, Mul
from midge.core.errors import UnsupportedError
from midge.quant import arithmetic

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Formula = Callable[..., Array]
Operand = Stored | Codes


def pairs_codes(low: "Lowering", node: ir.Node) -> bool:
    """Tell whether both operands of such a pair are codes, one of them at least no constant."""
    natural = [v is not None and low.natural(v) is not None for v in node.inputs]
    known = [n or constant_codes(v) is not None for n, v in zip(natural, node.inputs, strict=True)]
    return any(natural) and all(known)


def add(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower an Add, or one that is a MatMul's bias."""
    for index in (0, 1):
        x, C = node.inputs[index], node.inputs[1 - index]
        layer = None if x is None else x.producer()
        if x is None or layer is None or not g.is_op(layer, "MatMul"):
            continue
        if real_constant(C) is not None and low.natural(x) is None:
            return matmul(low, layer, target, C)
    return _sum(low, node, target, arithmetic.add)


def sub(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower a Sub."""
    return _sum(low, node, target, arithmetic.sub)


def _sum(low: "Lowering", node: ir.Node, target: Target, formula: Formula) -> Stored:
    """Lower a sum or a difference, by arithmetic.add or arithmetic.sub."""
    operands = _operands(low, node)
    done = _as_table(low, operands, target, formula)
    if done is not None:
        return done
    shape = low.shape(node.outputs[0])
    a, b = (_whole(low, node, i, x, shape) for i, x in enumerate(operands))
    a, b = _side_by_side(low, a, b)
    y = low.program.new(target.name, shape, lay.spelt(shape, a.layout), target.params)
    params = Add(a.codes, b.codes, target.params, formula is arithmetic.sub)
    if not np.isfinite(arithmetic.add_coefficients(params.a, params.b, params.y)).all():
        raise UnsupportedError(
            f"{g.label(node)}: the scales of its inputs and its output lie too far apart for "
            "float32; quantize the model again."
        )
    return low.program.op(g.label(node), params, [a.tensor, b.tensor], y)


def mul(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower a Mul; an operand with axes of size 1 is repeated by the step itself."""
    operands = _operands(low, node)
    done = _as_table(low, operands, target, arithmetic.mul)
    if done is not None:
        return done
    a, b = operands if isinstance(operands[0], Stored) else operands[::-1]
    assert isinstance(a, Stored)
    m = arithmetic.multiplier(a.codes.scale, b.codes.scale, target.params.scale)
    shape = low.shape(node.outputs[0])
    stored = [x for x in (a, b) if isinstance(x, Stored)]
    if len(stored) == 2 and stored[0].shape == stored[1].shape:
        stored = list(_side_by_side(low, *stored))
        layout = lay.spelt(shape, stored[0].layout)
        inputs = [low.program.view(x, layout.storage_shape) for x in stored]
    else:
        stored, order = by_axes(low, [_of_rank(x, len(shape)) for x in stored])
        layout = lay.permuted(shape, order)
        inputs = [low.program.view(x, [x.shape[k] for k in order]) for x in stored]
    constant = None
    if not isinstance(b, Stored):
        wide = b.signed.reshape((1,) * (len(shape) - b.signed.ndim) + b.signed.shape)
        constant = np.ascontiguousarray(wide.transpose(order))
    zero_points = [x.codes.as_dtype("int8").zero_point for x in (a, b)]
    params = Mul(zero_points[0], zero_points[1], target.requantization(m), constant)
    y = low.program.new(target.name, shape, layout, target.params)
    return low.program.op(g.label(node), params, inputs, y)


def _operands(low: "Lowering", node: ir.Node) -> list[Operand]:
    """Return both operands, constants as codes.

    Raises:
        UnsupportedError: one is a float value that was never quantized.
    """
    found = [constant_codes(v) for v in node.inputs]
    return [low.operand(node, i) if c is None else c for i, c in enumerate(found)]


def _as_table(
    low: "Lowering", operands: list[Operand], target: Target, formula: Formula
) -> Stored | None:
    """Lower what depends on one tensor's codes only: a table of the integer formula."""
    a, b = operands
    x = a if isinstance(a, Stored) else b
    assert isinstance(x, Stored)
    other = b if x is a else a
    codes = np.arange(x.codes.qmin, x.codes.qmax + 1)
    if isinstance(other, Stored):
        if other != x or formula is not arithmetic.mul:
            return None
        others = codes
    elif other.array.size == 1 and other.array.ndim <= len(x.shape):
        others = np.broadcast_to(other.array.reshape(()), codes.shape)
    else:
        return None
    pair = (codes, others) if x is a else (others, codes)
    return low.look_up(x, formula(*pair, a.codes, b.codes, target.params), target)


def _whole(
    low: "Lowering", node: ir.Node, index: int, x: Operand, shape: tuple[int, ...]
) -> Stored:
    """Return an operand of an Add or Sub as a tensor of the result's shape."""
    if isinstance(x, Stored):
        return expand(low, g.label(node), x, shape)
    value = node.inputs[index]
    assert value is not None
    name = g.name_of(value)
    codes = np.ascontiguousarray(np.broadcast_to(x.signed, shape))
    y = low.program.new(name, shape, lay.identity(shape), x.codes)
    return low.program.op(f"{name}_constant", Constant(codes), [], y)


def _side_by_side(low: "Lowering", a: Stored, b: Stored) -> tuple[Stored, Stored]:
    """Return two tensors of one shape in one storage order."""
    if a.layout.canonical() != b.layout.canonical():
        # What an image layer made stays as it lies: the next layer wants it so.
        towards_b = a.layout.is_identity()
        a = low.program.reorder(a, b.layout, "reordered") if towards_b else a
        b = b if towards_b else low.program.reorder(b, a.layout, "reordered")
    return a, b


def _of_rank(x: Stored, rank: int) -> Stored:
    """Return x with axes of size 1 in front."""
    return replace(x, shape=(1,) * (rank - len(x.shape)) + x.shape)


PAIRS: dict[str, Callable[["Lowering", ir.Node, Target], Stored]] = {
    "Add": add,
    "Mul": mul,
    "Sub": sub,
}
