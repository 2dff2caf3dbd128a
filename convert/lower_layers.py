"""Lowers Conv, Gemm and MatMul: integer steps with 8-bit weights, or of two activations."""

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.layout import Layout
from midge.convert.lower_matmul import multiplies_codes, product
from midge.convert.lower_params import (
    Weight,
    any_weight,
    bias,
    check_accumulator,
    fail,
)
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Target
from midge.convert.plan import Conv2d, FullyConnected
from midge.quant import arithmetic

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


def conv(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower a 1-D or 2-D Conv."""
    x = low.operand(node, 0)
    if len(x.shape) not in (3, 4):
        raise fail(node, f"its input has {len(x.shape)} axes", "use a 1-D or 2-D convolution")
    w = any_weight(node, axis=0)
    B = bias(node, g.operand(node, 2), x.codes.scale, w, w.codes.shape[0])
    check_accumulator(node, w.centred, B, x.stored_codes.zero_point)
    shape = low.shape(node.outputs[0])
    image = lay.image_shape(shape)
    W = np.moveaxis(w.codes.reshape(lay.image_shape(w.codes.shape)), 1, -1)
    params = Conv2d(
        weight=np.ascontiguousarray(W),
        bias=B,
        stride=pair(node, "strides", 1),
        pads=pads_of(node),
        dilation=pair(node, "dilations", 1),
        groups=g.attribute(node, "group", 1),
        x_zero_point=x.stored_codes.zero_point,
        requantization=target.requantization(
            arithmetic.multiplier(x.codes.scale, w.scale, target.params.scale)
        ),
        weight_zero_point=w.zero_point,
    )
    x = low.program.reorder(x, lay.channels_last(x.shape), "nhwc")
    source = lay.channels_last(x.shape).storage_shape
    y = low.program.new(target.name, shape, lay.permuted(image, lay.NHWC), target.params)
    macs = prod(image) * prod(W.shape[1:])
    return low.program.op(g.label(node), params, [low.program.view(x, source)], y, macs)


def pair(node: ir.Node, name: str, default: int) -> tuple[int, int]:
    """Return a spatial attribute as (y, x); 1-D has y = 1."""
    values = [int(v) for v in g.attribute(node, name, ())] or [default, default]
    return (values[0], values[1]) if len(values) == 2 else (1, values[0])


def pads_of(node: ir.Node) -> tuple[int, int, int, int]:
    """Return (top, left, bottom, right).

    Raises:
        UnsupportedError: padding that depends on sizes, or is negative.
    """
    if g.attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise fail(node, "its auto_pad is not resolved", "export explicit pads")
    values = [int(v) for v in g.attribute(node, "pads", ())] or [0, 0, 0, 0]
    if min(values) < 0:
        raise fail(node, f"its pads {values} are negative", "crop with Slice")
    return (
        (values[0], values[1], values[2], values[3])
        if len(values) == 4
        else (0, values[0], 0, values[1])
    )


def gemm(low: "Lowering", node: ir.Node, target: Target) -> Stored:
    """Lower a Gemm with constant B and alpha = beta = 1."""
    if g.attribute(node, "alpha", 1.0) != 1 or g.attribute(node, "transA", 0):
        raise fail(node, "alpha is not 1 or transA is set", "canonicalize with `midge convert`")
    has_bias = g.operand(node, 2) is not None
    if has_bias and g.attribute(node, "beta", 1.0) != 1:
        raise fail(node, "beta is not 1", "canonicalize with `midge convert`")
    axis = 0 if g.attribute(node, "transB", 0) else 1
    return _fully_connected(low, node, any_weight(node, axis), axis, g.operand(node, 2), target)


def matmul(low: "Lowering", node: ir.Node, target: Target, B: ir.Value | None = None) -> Stored:
    """Lower a MatMul by a constant matrix; B is the constant that an Add behind it adds."""
    if B is None and multiplies_codes(low, node):
        return product(low, node, target)
    if g.rank(node.inputs[1]) != 2:
        raise fail(node, "its second operand is no constant matrix", "leave it in float")
    return _fully_connected(low, node, any_weight(node, axis=1), 1, B, target)


def _fully_connected(
    low: "Lowering", node: ir.Node, w: Weight, axis: int, B: ir.Value | None, target: Target
) -> Stored:
    """Lower X [..., I] times a matrix whose output channels lie along `axis`."""
    x = low.operand(node, 0)
    W = np.moveaxis(w.codes, axis, 0)
    codes = bias(node, B, x.codes.scale, w, len(W))
    check_accumulator(node, np.moveaxis(w.centred, axis, 0), codes, x.stored_codes.zero_point)
    x, rows, features = rows_first(low, x, node)
    params = FullyConnected(
        weight=np.ascontiguousarray(W[:, features]),
        bias=codes,
        x_zero_point=x.stored_codes.zero_point,
        requantization=target.requantization(
            arithmetic.multiplier(x.codes.scale, w.scale, target.params.scale)
        ),
        weight_zero_point=w.zero_point,
    )
    count = len(rows.factors)
    shape = (*x.shape[:-1], len(W))
    layout = lay.spelt(shape, Layout((*rows.factors, len(W)), (*rows.order, count)))
    y = low.program.new(target.name, shape, layout, target.params)
    inputs = [low.program.view(x, (prod(x.shape[:-1]), x.shape[-1]))]
    return low.program.op(g.label(node), params, inputs, y, prod(x.shape) * len(W))


def rows_first(
    low: "Lowering", x: Stored, node: ir.Node
) -> tuple[Stored, Layout, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """Return x with every row contiguous, the layout of its rows, and a row's features in order.

    The features of a row may lie in any order, because the weights can follow it.
    """
    cut = x.layout.axes(x.shape)
    last = [] if cut is None else cut[1][-1]
    if cut is None or set(cut[0].order[len(cut[0].order) - len(last) :]) != set(last):
        x = low.program.reorder(x, lay.identity(x.shape), "in_order")
        cut = x.layout.axes(x.shape)
        assert cut is not None
        last = cut[1][-1]
    fine = cut[0]
    outer = len(fine.factors) - len(last)
    inner = [k - outer for k in fine.order[outer:]]
    index = np.arange(x.shape[-1]).reshape(fine.factors[outer:]).transpose(inner)
    rows = Layout(fine.factors[:outer], fine.order[:outer])
    return x, rows, index.reshape(-1)


LAYERS: dict[str, Callable[["Lowering", ir.Node, Target], Stored]] = {
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": matmul,
}
