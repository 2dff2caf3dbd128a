"""Lowers Conv, Gemm and MatMul in float32, with float weights or int8 weights and their scales."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.layout import Layout
from midge.convert.lower_axes import expand
from midge.convert.lower_layers import pads_of, pair, rows_first
from midge.convert.lower_params import dequantizes_constant, fail, real_constant, weight
from midge.convert.lower_program import Stored
from midge.convert.plan_float import Conv2dF32, FullyConnectedF32, Limits, MatMulF32
from midge.core.errors import UnsupportedError

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer to be lowered.

    Args:
        node: Conv, Gemm or MatMul.
        name: of the tensor it gives.
        limits: of a fused Relu or Clip.
    """

    node: ir.Node
    name: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class RealWeight:
    """A constant weight.

    Args:
        values: float32, or int8 codes with a scale; in the layout of the ONNX operand.
        scale: float32 [channels] of codes.
    """

    values: Array
    scale: Array | None


def real_weight(node: ir.Node, axis: int) -> RealWeight | None:
    """Return a layer's weight (operand 1), None where it is an activation.

    Args:
        node: the layer.
        axis: output-channel axis.
    """
    dequantize = dequantizes_constant(node.inputs[1])
    if dequantize is None:
        array = g.constant(node.inputs[1])
        return None if array is None else RealWeight(array.astype(np.float32), None)
    try:
        w = weight(node, axis)
    except UnsupportedError:  # codes that no int8 kernel takes still stand for real values
        array = real_constant(node.inputs[1])
        return None if array is None else RealWeight(array, None)
    return RealWeight(w.codes, float32_row(w.scale, w.codes.shape[axis]))


def float32_row(values: Array, count: int) -> Array:
    """Return float32 [count] from an array of that many elements or one."""
    return np.broadcast_to(np.asarray(values, np.float32).reshape(-1), (count,)).copy()


def real_bias(node: ir.Node, value: ir.Value | None, channels: int) -> Array:
    """Return float32 [channels], zeros where there is no bias."""
    if value is None:
        return np.zeros(channels, np.float32)
    array = real_constant(value)
    if array is None or array.size not in (1, channels):
        raise fail(node, "its bias is no constant with one value a channel", "add it with Add")
    return float32_row(array, channels)


def conv(low: "Lowering", layer: Layer) -> Stored:
    """Lower a 1-D or 2-D Conv."""
    node = layer.node
    w = real_weight(node, axis=0)
    if w is None:
        raise fail(node, "its weight is no constant", "make the weight an initializer")
    assert node.inputs[0] is not None
    x = low.reals.of(node.inputs[0])
    if len(x.shape) not in (3, 4):
        raise fail(node, f"its input has {len(x.shape)} axes", "use a 1-D or 2-D convolution")
    shape = low.shape(node.outputs[0])
    image = lay.image_shape(shape)
    W = np.moveaxis(w.values.reshape(lay.image_shape(w.values.shape)), 1, -1)
    params = Conv2dF32(
        weight=np.ascontiguousarray(W),
        bias=real_bias(node, g.operand(node, 2), len(W)),
        stride=pair(node, "strides", 1),
        pads=pads_of(node),
        dilation=pair(node, "dilations", 1),
        groups=g.attribute(node, "group", 1),
        scale=w.scale,
        limits=layer.limits,
    )
    x = low.program.reorder(x, lay.channels_last(x.shape), "nhwc")
    source = low.program.view(x, lay.channels_last(x.shape).storage_shape)
    y = low.program.new(layer.name, shape, lay.permuted(image, lay.NHWC), None)
    macs = prod(image) * prod(W.shape[1:])
    return low.program.op(g.label(node), params, [source], y, macs)


def gemm(low: "Lowering", layer: Layer) -> Stored:
    """Lower a Gemm with alpha = beta = 1 and a constant B."""
    node = layer.node
    if g.attribute(node, "alpha", 1.0) != 1 or g.attribute(node, "transA", 0):
        raise fail(node, "alpha is not 1 or transA is set", "canonicalize with `midge convert`")
    C = g.operand(node, 2)
    if C is not None and g.attribute(node, "beta", 1.0) != 1:
        raise fail(node, "beta is not 1", "canonicalize with `midge convert`")
    axis = 0 if g.attribute(node, "transB", 0) else 1
    w = real_weight(node, axis)
    if w is None:
        raise fail(node, "its B is no constant", "use MatMul and Add")
    return _fully_connected(low, layer, w, axis, C)


def matmul(low: "Lowering", layer: Layer) -> Stored:
    """Lower a MatMul by a constant matrix, or of two activations."""
    node = layer.node
    w = real_weight(node, axis=1) if g.rank(node.inputs[1]) == 2 else None
    if w is not None:
        return _fully_connected(low, layer, w, 1, None)
    a, b = (low.reals.of(v) for v in node.inputs[:2] if v is not None)
    return _activations(low, node, layer.name, a, b)


def _fully_connected(
    low: "Lowering", layer: Layer, w: RealWeight, axis: int, bias: ir.Value | None
) -> Stored:
    """Lower X [..., I] times a matrix whose output channels lie along `axis`."""
    node = layer.node
    assert node.inputs[0] is not None
    x = low.reals.of(node.inputs[0])
    W = np.moveaxis(w.values, axis, 0)
    x, rows, features = rows_first(low, x, node)
    params = FullyConnectedF32(
        weight=np.ascontiguousarray(W[:, features]),
        bias=real_bias(node, bias, len(W)),
        scale=w.scale,
        limits=layer.limits,
    )
    return rows_step(low, layer, params, x, rows, len(W))


def rows_step(
    low: "Lowering", layer: Layer, params: FullyConnectedF32, x: Stored, rows: Layout, channels: int
) -> Stored:
    """Add the step of a product whose operand has its rows contiguous."""
    shape = (*x.shape[:-1], channels)
    layout = Layout((*rows.factors, channels), (*rows.order, len(rows.factors)))
    y = low.program.new(layer.name, shape, lay.spelt(shape, layout), None)
    inputs = [low.program.view(x, (prod(x.shape[:-1]), x.shape[-1]))]
    return low.program.op(g.label(layer.node), params, inputs, y, prod(x.shape) * channels)


def _activations(low: "Lowering", node: ir.Node, name: str, a: Stored, b: Stored) -> Stored:
    """Lower A [..., M, K] times B [..., K, N]; a vector is one row, or one column."""
    shape = low.shape(node.outputs[0])
    a = replace(a, shape=(1, *a.shape)) if len(a.shape) == 1 else a
    b = replace(b, shape=(*b.shape, 1)) if len(b.shape) == 1 else b
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    inputs = []
    for x in (a, b):
        count, whole = prod(x.shape[:-2]), (*leading, *x.shape[-2:])
        if count not in (1, prod(leading)):  # the kernel repeats all of an operand, or nothing
            x, count = expand(low, g.label(node), x, whole), prod(leading)
        x = low.program.reorder(x, lay.identity(x.shape), "in_order")
        inputs.append(low.program.view(x, (count, *x.shape[-2:])))
    storage = (prod(leading), a.shape[-2], b.shape[-1])
    y = low.program.new(name, shape, lay.identity(shape), None, storage=storage)
    return low.program.op(g.label(node), MatMulF32(), inputs, y, prod(storage) * a.shape[-1])


def takes_limits(node: ir.Node) -> bool:
    """Tell whether a Relu or Clip may join a layer: it may where the weight is a constant."""
    w = node.inputs[1] if len(node.inputs) > 1 else None
    known = g.is_constant(w) or dequantizes_constant(w) is not None
    return g.is_op(node, "Conv", "Gemm") or (g.is_op(node, "MatMul") and known and g.rank(w) == 2)


LAYERS_F32: dict[str, Callable[["Lowering", Layer], Stored]] = {
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": matmul,
}
