"""Lowers the MatMul of two activations: one integer step, wherever its operands' axes lie.

Attention multiplies matrices that were cut out of others and turned; the step takes them as they
lie, and gives its output in the order that undoes the turn.
"""

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.layout import Layout
from midge.convert.lower_params import ACCUMULATOR_LIMIT, constant_codes, dequantizes_constant, fail
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Target
from midge.convert.plan import Constant, MatMul
from midge.quant import arithmetic

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Order = tuple[int, int, int]
REACH = 255  # of a code less its zero-point


def multiplies_codes(low: "Lowering", node: ir.Node) -> bool:
    """Tell whether both operands of a MatMul are codes of one scale, one of them no constant.

    A product with a constant matrix is a layer, whatever its scales.
    """
    if g.rank(node.inputs[1]) == 2 and dequantizes_constant(node.inputs[1]) is not None:
        return False
    natural = [v is not None and low.natural(v) is not None for v in node.inputs]
    known = [n or constant_codes(v) is not None for n, v in zip(natural, node.inputs, strict=True)]
    return any(natural) and all(known) and _fits(node)


def _fits(node: ir.Node) -> bool:
    """Tell whether the step can do it: matrices, and one batch for all or as many as the other."""
    shapes = [g.static_dims(v) for v in (*node.inputs, *node.outputs)]
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return False
    a, b, y = (shape for shape in shapes if shape is not None)
    return all(prod(x[:-2]) == 1 or x[:-2] == y[:-2] for x in (a, b))


def product(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower A [..., M, K] times B [..., K, N]."""
    a, b = (_operand(low, node, index) for index in (0, 1))
    shape = low.shape(node.outputs[0])
    depth = a.shape[-1]
    if depth * REACH**2 >= ACCUMULATOR_LIMIT:
        raise fail(node, f"its depth is {depth}, which int32 sums do not hold", "split it")
    a, a_storage, a_order = _matrices(low, a)
    b, b_storage, b_order = _matrices(low, b)
    # Heads that lie between the rows of B and their elements lie so in Y.
    turned = prod(shape[:-2]) > 1 and b_order == (1, 0, 2)
    y_order: Order = (1, 0, 2) if turned else (0, 1, 2)
    sizes = (prod(shape[:-2]), shape[-2], shape[-1])
    outer = tuple(range(len(shape) - 2))
    order = (len(outer), *outer, len(outer) + 1) if turned else tuple(range(len(shape)))
    layout = lay.spelt(shape, lay.permuted(shape, order))
    y = low.program.new(target.name, shape, layout, target.params)
    m = arithmetic.multiplier(a.codes.scale, b.codes.scale, target.params.scale)
    params = MatMul(
        a.stored_codes.zero_point,
        b.stored_codes.zero_point,
        target.requantization(m),
        a_order,
        b_order,
        y_order,
        sizes,
    )
    inputs = [low.program.view(a, a_storage), low.program.view(b, b_storage)]
    return low.program.op(g.label(node), params, inputs, y, prod(shape) * depth)


def _operand(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Return an operand as a tensor of codes; a constant is copied into the arena."""
    value = node.inputs[index]
    constant = constant_codes(value)
    if constant is None or value is None:
        return low.operand(node, index)
    name, shape = g.name_of(value), constant.array.shape
    y = low.program.new(name, shape, lay.identity(shape), constant.codes)
    codes = np.ascontiguousarray(constant.signed)
    return low.program.op(f"{name}_constant", Constant(codes), [], y)


def _matrices(low: "Lowering", x: Stored) -> tuple[Stored, list[int], Order]:
    """Return x, the sizes of its three stored axes, and which of them are batch, rows, columns."""
    places = _places(x.layout, x.shape)
    if places is None:
        x = low.program.reorder(x, lay.identity(x.shape), "in_order")
        places = [0, 1, 2]
    sizes = (prod(x.shape[:-2]), *x.shape[-2:])
    stored = sorted(range(3), key=places.__getitem__)
    batch, rows, columns = (stored.index(axis) for axis in range(3))
    return x, [sizes[axis] for axis in stored], (batch, rows, columns)


def _places(layout: Layout, shape: tuple[int, ...]) -> list[int] | None:
    """Return where batch, rows and columns begin in the storage, or None where one is torn apart.

    An axis of size 1 lies before all others.
    """
    cut = layout.axes(shape)
    if cut is None:
        return None
    fine, axes = cut
    places = []
    for digits in ([k for group in axes[:-2] for k in group], axes[-2], axes[-1]):
        at = [fine.order.index(k) for k in digits if fine.factors[k] != 1]
        if at != list(range(at[0], at[0] + len(at)) if at else []):
            return None
        places.append(at[0] if at else -1)
    return places
