"""The integer parameters of the layers of a graph, and the proof that their sums fit int32."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.select import Selection
from midge.core.errors import InputError
from midge.quant.rules import Kind
from midge.quant.scheme import (
    WEIGHT_MAX,
    QuantParams,
    WeightCodes,
    bias_scale,
    quantize_weights,
)

INT32_MAX = 2**31 - 1


def layer_codes(
    selection: Selection,
    params: Mapping[str, QuantParams],
    forced: Mapping[str, WeightCodes],
    per_channel: bool,
    limit: int = WEIGHT_MAX,
) -> dict[ir.Node, WeightCodes]:
    """Return weight and bias codes of every layer with a constant weight.

    Args:
        selection: what is quantized.
        params: of the activations, by tensor name.
        forced: codes that are given already, by the name of the layer's quantized output.
        per_channel: one weight scale per output channel, where the operator allows.
        limit: largest weight code.
    """
    codes = {}
    for node, rule in selection.quantized.items():
        if rule.kind != Kind.ACCUMULATE or not g.is_constant(node.inputs[1]):
            continue
        given = forced.get(g.name_of(selection.carrier(node)))
        x = params[g.name_of(selection.operands(node)[0])]
        codes[node] = given or _quantize(node, x, per_channel, limit)
    return codes


def _quantize(node: ir.Node, x: QuantParams, per_channel: bool, limit: int) -> WeightCodes:
    W, B = g.constant(node.inputs[1]), g.constant(g.operand(node, 2))
    assert W is not None
    axis = g.channel_axis(node, W.ndim)
    # A MatMul with a stack of matrices has no single axis of output channels.
    per_channel = per_channel and not (node.op_type == "MatMul" and W.ndim > 2)
    groups = g.attribute(node, "group", 1) if node.op_type == "ConvTranspose" else 1
    largest = float(np.abs(W).max(initial=0)) * float(x.scale)
    if largest > float(np.finfo(np.float32).max):
        raise InputError(
            f"{g.label(node)}: weights of up to {np.abs(W).max():.3g} times inputs in steps of "
            f"{float(x.scale):.3g} leave float32; are the calibration data and the model sound?"
        )
    if groups == 1:
        return quantize_weights(W, B, x.scale, axis, per_channel, limit)
    # Axis 1 of a grouped ConvTranspose holds one group's channels; the groups share their scales.
    worst = None if B is None else np.abs(B.reshape(groups, -1)).max(axis=0)
    shared = quantize_weights(W, worst, x.scale, axis, per_channel, limit)
    if B is None:
        return shared
    scale = bias_scale(x.scale, channel_scales(node, shared)).astype(np.float64)
    return replace(shared, bias=np.rint(B / scale).astype(np.int32))


def channel_scales(node: ir.Node, codes: WeightCodes) -> g.Array:
    """Return the weight scale of every output channel (or one), float32."""
    groups = g.attribute(node, "group", 1) if node.op_type == "ConvTranspose" else 1
    return np.tile(codes.scale, groups) if codes.scale.size > 1 else codes.scale


def overflowing(
    codes: Mapping[ir.Node, WeightCodes], selection: Selection, params: Mapping[str, QuantParams]
) -> dict[str, str]:
    """Return the layers whose accumulators could leave int32 -> why they stay in float.

    The bound is max|x - z_x| times the largest sum of |w|, plus |bias|, over output channels.
    """
    found = {}
    for node, code in codes.items():
        x = params[g.name_of(selection.operands(node)[0])]
        axis = g.channel_axis(node, code.weight.ndim)
        moved = np.moveaxis(np.abs(code.weight.astype(np.int64)), axis, 0)
        sums = moved.reshape(moved.shape[0], -1).sum(axis=1)
        reach = max(x.qmax - x.zero_point, x.zero_point - x.qmin)
        bias = 0 if code.bias is None else int(np.abs(code.bias.astype(np.int64)).max(initial=0))
        bound = int(sums.max(initial=0)) * reach + bias
        if bound > INT32_MAX:
            found[g.label(node)] = f"its sums could reach {bound}, beyond int32"
    return found


def raised_notices(codes: Mapping[ir.Node, WeightCodes]) -> list[str]:
    """Return a line for each layer whose weight scales were raised for the sake of its bias."""
    return [
        f"{g.label(node)}: the weight scale of {_channels(code.raised)} was raised to keep the "
        "bias within int32."
        for node, code in codes.items()
        if code.raised
    ]


def _channels(indices: tuple[int, ...], shown: int = 8) -> str:
    listed = ", ".join(map(str, indices[:shown]))
    if len(indices) <= shown:
        return f"channel {listed}" if len(indices) == 1 else f"channels {listed}"
    return f"{len(indices)} channels ({listed}, ...)"
