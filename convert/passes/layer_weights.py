"""Scaling the weights of a layer, channel by channel, in float64 and into new constants."""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.core.errors import InputError

Array = g.Array


def channels_of(layer: ir.Node) -> int:
    """Return the number of output channels."""
    W = g.constant(layer.inputs[1])
    assert W is not None
    groups = g.attribute(layer, "group", 1) if layer.op_type == "ConvTranspose" else 1
    return int(W.shape[g.channel_axis(layer, W.ndim)] * groups)


def scale_outputs(model: ir.Model, layer: ir.Node, a: Array, names: g.Names) -> None:
    """Multiply what the layer makes by a [channels] (or [1]): weight and bias.

    Args:
        model: holds the layer.
        layer: Conv, ConvTranspose, Gemm or MatMul with constant weight and bias.
        a: float64.
        names: of the graph.
    """
    W, B = g.constant(layer.inputs[1]), g.constant(g.operand(layer, 2))
    assert W is not None
    if not np.all(a == 1):
        a = np.broadcast_to(a, (channels_of(layer),))
        _set(model, layer, 1, _times(layer, W.astype(np.float64), a), names)
        if B is not None:
            _set(model, layer, 2, B.astype(np.float64) * a, names)


def _times(layer: ir.Node, W: Array, a: Array) -> Array:
    shape = [1] * W.ndim
    if layer.op_type != "ConvTranspose":
        shape[g.channel_axis(layer, W.ndim)] = -1
        return W * a.reshape(shape)
    # W is [C, O/group, ...]: rows of group k belong to outputs k * O/group onwards.
    groups = g.attribute(layer, "group", 1)
    split = W.reshape(groups, W.shape[0] // groups, *W.shape[1:])
    scaled: Array = (split * a.reshape(groups, 1, W.shape[1], *shape[2:])).reshape(W.shape)
    return scaled


def scale_inputs(model: ir.Model, layer: ir.Node, a: Array, b: Array, names: g.Names) -> Array:
    """Let the layer take x where it took a x + b, and return what that adds to its bias.

    Args:
        model: holds the layer.
        layer: Conv, ConvTranspose, Gemm or MatMul with constant weight.
        a: float64 [input channels] or [1].
        b: the same; all 0 for ConvTranspose, MatMul and padded Conv.
        names: of the graph.

    Returns:
        float64 [output channels]: the sum over inputs of W b.
    """
    W = g.constant(layer.inputs[1])
    assert W is not None
    W = W.astype(np.float64)
    split = _by_input(layer, W)  # [groups, outputs of a group, inputs of a group, taps]
    groups, _, inputs, _ = split.shape
    a, b = (np.broadcast_to(v, (groups * inputs,)).reshape(groups, 1, inputs, 1) for v in (a, b))
    added: Array = (split * b).sum(axis=(2, 3)).reshape(-1)
    _set(model, layer, 1, _restore(layer, split * a, W), names)
    return added


def _by_input(layer: ir.Node, W: Array) -> Array:
    if layer.op_type == "Conv":
        groups = g.attribute(layer, "group", 1)
        return W.reshape(groups, W.shape[0] // groups, W.shape[1], -1)
    if layer.op_type == "ConvTranspose":
        groups = g.attribute(layer, "group", 1)
        split = W.reshape(groups, W.shape[0] // groups, W.shape[1], -1)
        return split.transpose(0, 2, 1, 3)
    rows = W if layer.op_type == "Gemm" and g.attribute(layer, "transB", 0) else W.swapaxes(-1, -2)
    return rows.reshape(1, -1, rows.shape[-1], 1)


def _restore(layer: ir.Node, split: Array, W: Array) -> Array:
    if layer.op_type == "Conv":
        return split.reshape(W.shape)
    if layer.op_type == "ConvTranspose":
        return split.transpose(0, 2, 1, 3).reshape(W.shape)
    if layer.op_type == "Gemm" and g.attribute(layer, "transB", 0):
        return split.reshape(W.shape)
    return split.reshape(*W.shape[:-2], W.shape[-1], W.shape[-2]).swapaxes(-1, -2)


def add_bias(model: ir.Model, layer: ir.Node, b: Array, names: g.Names) -> None:
    """Add b, float64 [channels] or [1], to the layer's bias; a MatMul's must be 0."""
    if not b.any():
        return
    B = g.constant(g.operand(layer, 2))
    total = np.broadcast_to(b, (channels_of(layer),)) + (0 if B is None else B.astype(np.float64))
    if len(layer.inputs) < 3:
        layer.resize_inputs(3)
    _set(model, layer, 2, total, names)


def _set(model: ir.Model, layer: ir.Node, index: int, array: Array, names: g.Names) -> None:
    stem = f"{g.label(layer)}_{'W' if index == 1 else 'B'}"
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise InputError(
            f"node {g.label(layer)!r} ({layer.op_type}): with the scales and shifts around it "
            "folded in, its weights are too large for float32; the model is damaged or diverged."
        )
    value = g.add_constant(model.graph, names, stem, rounded)
    layer.replace_input_with(index, value)
