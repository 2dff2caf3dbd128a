"""Lowers dynamic INT8 layers: products of integers whose activation is quantized at run time.

The graph of one layer, as midge and ONNX Runtime's quantize_dynamic write it:

    q, s_x, z_x = DynamicQuantizeLinear(x)
    y = Cast(MatMulInteger(q, W, z_x)) * (s_x * s_w) + B        (or ConvInteger; B may be absent)
"""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.layout import Layout
from midge.convert.lower_float_layers import float32_row
from midge.convert.lower_layers import pads_of, pair, rows_first
from midge.convert.lower_params import ACCUMULATOR_LIMIT, fail
from midge.convert.lower_program import Stored
from midge.convert.plan_float import (
    DYNAMIC_HEADER,
    Conv2dDynamic,
    DynamicQuantize,
    FullyConnectedDynamic,
    Limits,
)

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array
PRODUCTS = ("MatMulInteger", "ConvInteger")
REMEDY = "quantize the float model with `midge quantize --mode dynamic`"
CODE_SPAN = 255  # the most that a code differs from its zero-point


@dataclass(frozen=True, slots=True)
class DynamicLayer:
    """One layer found in the graph.

    Args:
        x: the float activation that is quantized.
        product: MatMulInteger or ConvInteger.
        scale: float32 constant s_w.
        bias: float32 constant, or None.
    """

    x: ir.Value
    product: ir.Node
    scale: Array
    bias: Array | None


def find_dynamic(node: ir.Node) -> DynamicLayer | None:
    """Return the dynamic layer that an Add or Mul completes, or None."""
    if g.is_op(node, "Add"):
        for value, other in (node.inputs[:2], node.inputs[1::-1]):
            B, product = g.constant(other), None if value is None else value.producer()
            if B is None or product is None or value is None or g.sole_consumer(value) is not node:
                continue
            layer = find_dynamic(product) if g.is_op(product, "Mul") else None
            if layer is not None and _lies_along_channels(layer, B):
                return DynamicLayer(layer.x, layer.product, layer.scale, B)
    if g.is_op(node, "Mul"):
        for sums, scale in (node.inputs[:2], node.inputs[1::-1]):
            layer = _find_product(sums, scale)
            if layer is not None:
                return layer
    return None


def _find_product(sums: ir.Value | None, scale: ir.Value | None) -> DynamicLayer | None:
    """Match Cast(product) and s_x * s_w."""
    cast = None if sums is None else sums.producer()
    factor = None if scale is None else scale.producer()
    if cast is None or not g.is_op(cast, "Cast") or not g.is_op(factor, "Mul") or factor is None:
        return None
    product = None if cast.inputs[0] is None else cast.inputs[0].producer()
    if product is None or not g.is_op(product, *PRODUCTS):
        return None
    quantizer = None if product.inputs[0] is None else product.inputs[0].producer()
    if quantizer is None or not g.is_op(quantizer, "DynamicQuantizeLinear"):
        return None
    for x_scale, w_scale in (factor.inputs[:2], factor.inputs[1::-1]):
        s_w = g.constant(w_scale)
        if x_scale is quantizer.outputs[1] and s_w is not None:
            if g.operand(product, 2) is not quantizer.outputs[2]:
                raise fail(product, "its zero-point is not its input's", "export it anew")
            assert quantizer.inputs[0] is not None
            layer = DynamicLayer(quantizer.inputs[0], product, s_w, None)
            return layer if _lies_along_channels(layer, s_w) else None
    return None


def _lies_along_channels(layer: DynamicLayer, array: Array) -> bool:
    """Tell whether a constant has one value for all or one for each output channel."""
    if array.size == 1:
        return True
    rank = g.rank(layer.product.outputs[0])
    axis = -1 if layer.product.op_type == "MatMulInteger" else 1
    shape = [1] * (rank or 0)
    if not shape or array.ndim > len(shape):
        return False
    shape[axis] = -1
    return array.reshape(shape).shape == (1,) * (len(shape) - array.ndim) + array.shape


def lower_dynamic(low: "Lowering", layer: DynamicLayer, name: str, limits: Limits) -> Stored:
    """Add the steps of a dynamic layer: quantize x unless that is done, then multiply."""
    x, node = low.reals.of(layer.x), layer.product
    if node.op_type == "ConvInteger":
        return _conv(low, layer, x, name, limits)
    if g.rank(node.inputs[1]) != 2:
        raise fail(node, "its second operand is no matrix", "leave it in float")
    W = _codes(node, axis=1).T
    x, rows, features = rows_first(low, x, node)
    params = FullyConnectedDynamic(
        weight=np.ascontiguousarray(W[:, features]),
        scale=float32_row(layer.scale, len(W)),
        bias=_bias(layer, len(W)),
        limits=limits,
    )
    shape = (*x.shape[:-1], len(W))
    layout = Layout((*rows.factors, len(W)), (*rows.order, len(rows.factors)))
    y = low.program.new(name, shape, lay.spelt(shape, layout), None)
    return low.program.op(g.label(node), params, [_quantized(low, x)], y, prod(x.shape) * len(W))


def _conv(low: "Lowering", layer: DynamicLayer, x: Stored, name: str, limits: Limits) -> Stored:
    node = layer.product
    if len(x.shape) not in (3, 4):
        raise fail(node, f"its input has {len(x.shape)} axes", "use a 1-D or 2-D convolution")
    codes = _codes(node, axis=0)
    W = np.moveaxis(codes.reshape(lay.image_shape(codes.shape)), 1, -1)
    x = low.program.reorder(x, lay.channels_last(x.shape), "nhwc")
    n, h, w, c = lay.channels_last(x.shape).storage_shape
    params = Conv2dDynamic(
        weight=np.ascontiguousarray(W),
        scale=float32_row(layer.scale, len(W)),
        bias=_bias(layer, len(W)),
        x_shape=(n, h, w, c),
        stride=pair(node, "strides", 1),
        pads=pads_of(node),
        dilation=pair(node, "dilations", 1),
        groups=g.attribute(node, "group", 1),
        limits=limits,
    )
    shape = low.shape(node.outputs[0])
    image = lay.image_shape(shape)
    y = low.program.new(name, shape, lay.permuted(image, lay.NHWC), None)
    macs = prod(image) * prod(W.shape[1:])
    return low.program.op(g.label(node), params, [_quantized(low, x)], y, macs)


def _quantized(low: "Lowering", x: Stored) -> int:
    """Return the codes of a float tensor behind their header; made once."""
    known = low.reals.quantized
    if x.tensor not in known:
        name = f"{low.program.tensors[x.tensor].name}_dynamic"
        shape = (DYNAMIC_HEADER + prod(x.shape),)
        y = low.program.new(name, shape, lay.identity(shape), None, dtype="uint8")
        known[x.tensor] = low.program.op(name, DynamicQuantize(), [x.tensor], y).tensor
    return known[x.tensor]


def _bias(layer: DynamicLayer, channels: int) -> Array:
    return float32_row(np.zeros(1) if layer.bias is None else layer.bias, channels)


def _codes(node: ir.Node, axis: int) -> Array:
    """Return the int8 weight codes less their zero-point.

    Raises:
        UnsupportedError: they are no constant, leave int8, or a sum could leave int32.
    """
    W, zero = g.constant(node.inputs[1]), g.constant(g.operand(node, 3))
    if W is None or (zero is None and g.operand(node, 3) is not None):
        raise fail(node, "its weight is no constant", "make the weight an initializer")
    wide = W.astype(np.int32)
    if zero is not None:
        shape = [1] * W.ndim
        shape[axis] = -1 if zero.size > 1 else 1
        wide = wide - zero.astype(np.int32).reshape(shape)
    if wide.min(initial=0) < -128 or wide.max(initial=0) > 127:
        raise fail(node, "its weight less the zero-point leaves int8", REMEDY)
    sums = np.abs(np.moveaxis(wide, axis, 0).astype(np.int64)).reshape(W.shape[axis], -1).sum(1)
    if int(sums.max(initial=0)) * CODE_SPAN >= ACCUMULATOR_LIMIT:
        raise fail(node, "a sum of products could leave int32", "leave it in float")
    return wide.astype(np.int8)
