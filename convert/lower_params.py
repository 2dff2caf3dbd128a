"""Reads scales, zero-points, weights and biases of a QDQ graph."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.convert import graph as g
from midge.core.errors import UnsupportedError
from midge.quant import scheme
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]

DOMAINS = ("", "ai.onnx", "com.microsoft")  # of QuantizeLinear and DequantizeLinear
ACTIVATIONS = ("int8", "uint8")
BIAS_TOLERANCE = (
    1e-3  # relative; exporters round s_x * s_w in several ways, codes count as they are
)
ACCUMULATOR_LIMIT = 2**31


def fail(node: ir.Node, why: str, remedy: str) -> UnsupportedError:
    """Return the error that names a node, what is wrong and what to do."""
    return UnsupportedError(f"{g.label(node)} ({g.operator(node)}): {why}; {remedy}.")


def is_quantize(node: ir.Node | None) -> bool:
    """Tell whether the node is a QuantizeLinear."""
    return node is not None and node.op_type == "QuantizeLinear" and node.domain in DOMAINS


def is_dequantize(node: ir.Node | None) -> bool:
    """Tell whether the node is a DequantizeLinear."""
    return node is not None and node.op_type == "DequantizeLinear" and node.domain in DOMAINS


def dequantizes_constant(value: ir.Value | None) -> ir.Node | None:
    """Return the DequantizeLinear of constant codes that makes a value, or None."""
    node = None if value is None else value.producer()
    if node is None or not is_dequantize(node):
        return None
    codes = node.inputs[0]
    source = None if codes is None else codes.producer()
    if source is not None and is_quantize(source):  # QAT exports quantize float weights in the file
        codes = source.inputs[0]
    return node if g.is_constant(codes) else None


def dequantizes_activation(value: ir.Value) -> bool:
    """Tell whether a value is what a DequantizeLinear makes of codes that are computed."""
    return is_dequantize(value.producer()) and dequantizes_constant(value) is None


def activation_params(node: ir.Node) -> QuantParams:
    """Return the parameters of an activation's QuantizeLinear or DequantizeLinear.

    Raises:
        UnsupportedError: they are not one 8-bit scale and zero-point known in advance.
    """
    remedy = "quantize the float model with `midge quantize`"
    scale, zero_point = _scale_and_zero_point(node)
    if scale.size != 1:
        raise fail(node, f"an activation has {scale.size} scales", remedy)
    if str(zero_point.dtype) not in ACTIVATIONS:
        raise fail(node, f"its codes are {zero_point.dtype}, not int8 or uint8", remedy)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise fail(node, f"its scale is {scale.item()}", "export positive finite scales")
    return QuantParams(
        np.float32(scale.reshape(-1)[0]), int(zero_point.reshape(-1)[0]), str(zero_point.dtype)
    )


def _scale_and_zero_point(node: ir.Node) -> tuple[Array, Array]:
    """Return (scale, zero-point in the dtype of the codes) of a Q or DQ node."""
    scale = g.constant(node.inputs[1])
    given = g.operand(node, 2)
    zero_point = g.constant(given)
    if scale is None or (given is not None and zero_point is None):
        raise fail(node, "its scale or zero-point is computed", "export constant scales")
    if scale.dtype != np.float32:
        raise fail(node, f"its scale is {scale.dtype}", "export float32 scales")
    if g.attribute(node, "block_size", 0):
        raise fail(node, "it has a block_size", "quantize per tensor or per channel")
    if zero_point is None:
        wanted = g.attribute(node, "output_dtype", 0) or ir.DataType.UINT8
        source = None if is_quantize(node) else node.inputs[0]
        kind = source.dtype if source is not None and source.dtype else ir.DataType(wanted)
        zero_point = np.zeros(scale.shape, kind.numpy())
    return scale, zero_point


@dataclass(frozen=True, slots=True)
class Weight:
    """Constant codes of one layer.

    Args:
        codes: int8, in the layout of the ONNX operand.
        scale: float32, [channels] or [1].
        zero_point: int8, 0 wherever the codes less their zero-point are int8 themselves.
    """

    codes: Array
    scale: Array
    zero_point: int = 0

    @property
    def centred(self) -> Array:
        """The codes less their zero-point, int16."""
        return self.codes.astype(np.int16) - np.int16(self.zero_point)


def weight(node: ir.Node, axis: int) -> Weight:
    """Return the codes of a layer's weight (operand 1), their zero-point 0.

    Args:
        node: Conv, Gemm or MatMul.
        axis: output-channel axis of the weight.

    Raises:
        UnsupportedError: it is no constant of 8-bit codes that are int8 less their zero-point.
    """
    w = any_weight(node, axis)
    if w.zero_point:
        raise _too_wide(node, w.centred)
    return w


def any_weight(node: ir.Node, axis: int) -> Weight:
    """Return the codes of a layer's weight, with a zero-point where int8 does not hold them else.

    Args:
        node: Conv, Gemm or MatMul.
        axis: output-channel axis of the weight.

    Raises:
        UnsupportedError: it is no constant of 8-bit codes with one zero-point.
    """
    dequantize = dequantizes_constant(node.inputs[1])
    if dequantize is None:
        raise fail(node, "its weight is no constant of 8-bit codes", "quantize the weight")
    scale, zero_point = _scale_and_zero_point(dequantize)
    codes = codes_in_file(dequantize)
    if codes.dtype == np.int32 or codes.ndim == 0:
        raise fail(node, f"its weight's codes are {codes.dtype}", "store int8 codes")
    if scale.size != 1 and g.attribute(dequantize, "axis", 1) % codes.ndim != axis:
        raise fail(
            node,
            f"its weight's scales lie along axis {g.attribute(dequantize, 'axis', 1)}, "
            f"not the output channels' axis {axis}",
            "quantize per output channel",
        )
    shape = [1] * codes.ndim
    shape[axis] = -1
    wide = codes.astype(np.int32) - zero_point.astype(np.int32).reshape(shape)
    if wide.min(initial=0) >= -128 and wide.max(initial=0) <= 127:
        return Weight(wide.astype(np.int8), scale.reshape(-1))
    if np.any(zero_point != zero_point.reshape(-1)[0]):
        raise _too_wide(node, wide)
    signed = QuantParams(np.float32(1), int(zero_point.reshape(-1)[0]), str(codes.dtype))
    zero = signed.as_dtype("int8").zero_point
    return Weight((wide + zero).astype(np.int8), scale.reshape(-1), zero)


def _too_wide(node: ir.Node, centred: Array) -> UnsupportedError:
    return fail(
        node,
        f"its weight's codes less their zero-point reach {int(centred.min())}.."
        f"{int(centred.max())}, outside int8",
        "quantize weights symmetrically, with zero-point 0",
    )


def codes_in_file(dequantize: ir.Node) -> Array:
    """Return the codes that a DequantizeLinear reads, quantizing a float constant as Q does."""
    codes = g.constant(dequantize.inputs[0])
    if codes is not None:
        return codes
    value = dequantize.inputs[0]
    quantize = None if value is None else value.producer()
    assert quantize is not None
    scale, zero_point = _scale_and_zero_point(quantize)
    W = g.constant(quantize.inputs[0])
    assert W is not None
    shape = [1] * W.ndim
    if scale.size != 1:
        shape[g.attribute(quantize, "axis", 1)] = -1
    limits = np.iinfo(zero_point.dtype)
    q = np.rint(W / scale.reshape(shape)) + zero_point.astype(np.float32).reshape(shape)
    return np.clip(q, limits.min, limits.max).astype(zero_point.dtype)


def real_constant(value: ir.Value | None) -> Array | None:
    """Return a float constant, also one that is stored as codes and dequantized, or None."""
    array = g.constant(value)
    if array is not None:
        return array if array.dtype == np.float32 else None
    node = dequantizes_constant(value)
    if node is None:
        return None
    scale, zero_point = _scale_and_zero_point(node)
    codes = codes_in_file(node)
    shape = [1] * codes.ndim
    if scale.size != 1:
        shape[g.attribute(node, "axis", 1)] = -1
    centred = codes.astype(np.int32) - zero_point.astype(np.int32).reshape(shape)
    real: Array = centred.astype(np.float32) * scale.reshape(shape)
    return real


@dataclass(frozen=True, slots=True)
class Codes:
    """A constant operand of an elementwise operator.

    Args:
        array: codes in the file's dtype.
        codes: their parameters.
    """

    array: Array
    codes: QuantParams

    @property
    def signed(self) -> Array:
        """The codes as int8."""
        shift = self.codes.as_dtype("int8").zero_point - self.codes.zero_point
        return (self.array.astype(np.int16) + shift).astype(np.int8)


def constant_codes(value: ir.Value | None) -> Codes | None:
    """Return a constant that is dequantized from 8-bit codes with one scale, or None."""
    node = dequantizes_constant(value)
    if node is None:
        return None
    codes, (scale, _) = codes_in_file(node), _scale_and_zero_point(node)
    if scale.size != 1 or str(codes.dtype) not in ACTIVATIONS:
        return None
    return Codes(codes, activation_params(node))


def bias(
    node: ir.Node, value: ir.Value | None, x_scale: np.float32, w: Weight, channels: int
) -> Array:
    """Return int32 [channels], zeros where there is no bias.

    A float bias is quantized with scale f32(s_x * s_w[c]), ties to even, as ONNX Runtime does.

    Raises:
        UnsupportedError: it is no constant of that scale, or of another shape.
    """
    if value is None:
        return np.zeros(channels, np.int32)
    scale = scheme.bias_scale(x_scale, w.scale)
    dequantize = dequantizes_constant(value)
    if dequantize is not None:
        codes, own = codes_in_file(dequantize), _scale_and_zero_point(dequantize)[0].reshape(-1)
        if codes.dtype != np.int32:
            raise fail(node, f"its bias has {codes.dtype} codes", "store int32 codes")
        if np.any(np.abs(own - scale) > BIAS_TOLERANCE * scale):
            raise fail(
                node,
                "the scale of its bias is not that of its input times that of its weight",
                "quantize the bias with scale s_x * s_w",
            )
    else:
        B = g.constant(value)
        if B is None:
            raise fail(node, "its bias is no constant", "make the bias an initializer")
        codes = np.rint(B.astype(np.float32).reshape(-1) / scale)
        if np.abs(codes).max(initial=0) >= ACCUMULATOR_LIMIT:
            raise fail(node, "its bias exceeds int32 codes", "raise the weight's scale")
        codes = codes.astype(np.int32)
    if codes.size not in (1, channels):
        raise fail(node, f"its bias has shape {list(codes.shape)}", f"use shape [{channels}]")
    return np.broadcast_to(codes.reshape(-1), (channels,)).copy()


def check_accumulator(node: ir.Node, codes: Array, B: Array, x_zero_point: int) -> None:
    """Refuse a layer of which some input could drive an int32 sum out of range.

    Args:
        node: for the message.
        codes: int8 [channels, ...].
        B: int32 [channels].
        x_zero_point: int8.
    """
    reach = max(127 - x_zero_point, x_zero_point + 128)
    total = np.abs(codes.astype(np.int64)).reshape(len(codes), -1).sum(axis=1)
    bound = np.abs(B.astype(np.int64)) + total * reach
    worst = int(bound.argmax())
    if bound[worst] >= ACCUMULATOR_LIMIT:
        raise fail(
            node,
            f"output channel {worst} can reach |sum| = {int(bound[worst])}, beyond int32",
            "raise that channel's weight scale",
        )
