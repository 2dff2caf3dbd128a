"""Layers of a quantized graph as integers: read through DequantizeLinear, and written back."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_layers import pads_of, pair
from midge.convert.lower_params import (
    Array,
    activation_params,
    bias,
    dequantizes_constant,
    is_dequantize,
    real_constant,
    weight,
)
from midge.core.errors import UnsupportedError
from midge.quant.scheme import QuantParams, bias_scale

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layer:
    """One Conv, Gemm or MatMul of dequantized codes.

    Args:
        node: of the product.
        tail: the Add that gives a MatMul its bias, else `node`; it makes the output.
        x: parameters of the input.
        axis: of the weight operand, over output channels.
        groups: of a Conv, else 1.
        W: int8 [O, I / groups, *kernel], zero-point 0.
        scale: float32 [O] or [1].
        B: int32 [O], zeros where there is none.
    """

    node: ir.Node
    tail: ir.Node
    x: QuantParams
    axis: int
    groups: int
    W: Array
    scale: Array
    B: Array

    @property
    def output(self) -> ir.Value:
        """What the layer makes."""
        return self.tail.outputs[0]

    @property
    def has_bias(self) -> bool:
        """Whether the graph holds a bias."""
        return self.tail is not self.node or g.operand(self.node, 2) is not None

    @property
    def may_have_bias(self) -> bool:
        """Whether a bias can be written."""
        return self.has_bias or self.node.op_type != "MatMul"

    @property
    def padded(self) -> bool:
        """Whether some output reads padding."""
        return self.node.op_type == "Conv" and any(pads_of(self.node))

    def sums_over(self, axis: int) -> bool:
        """Tell whether the layer sums over this axis of its input."""
        rank = g.rank(self.node.inputs[0]) or 0
        return axis == (1 if self.node.op_type == "Conv" else rank - 1)

    def output_axis(self) -> int:
        """Axis of the output that holds output channels."""
        return 1 if self.node.op_type == "Conv" else (g.rank(self.output) or 0) - 1

    def columns(self) -> Array:
        """Return the weights as [O, I / groups, taps]."""
        return self.W.reshape(*self.W.shape[:2], -1)

    def keep(self, rows: Bools, columns: Bools, B: Array) -> "Layer":
        """Return the layer with only some channels.

        Args:
            rows: output channels to keep.
            columns: input channels to keep; with groups, whole groups.
            B: the bias of every output channel, integers.
        """
        scale = self.scale[rows] if self.scale.size > 1 else self.scale
        bias = B[rows].astype(np.int32)
        if self.groups > 1:
            left = int(columns.sum()) // self.W.shape[1]
            return replace(self, groups=left, W=self.W[rows], scale=scale, B=bias)
        return replace(self, W=self.W[rows][:, columns], scale=scale, B=bias)


def read_layer(node: ir.Node) -> Layer | None:
    """Return a layer whose every operand is known as integers, or None."""
    if g.attribute(node, "alpha", 1.0) != 1 or g.attribute(node, "beta", 1.0) != 1:
        return None
    if g.attribute(node, "transA", 0) or g.rank(node.inputs[1]) is None:
        return None
    try:
        return _read(node)
    except UnsupportedError:  # whoever lowers the graph says so, with a remedy
        return None


def _read(node: ir.Node) -> Layer | None:
    x, rank = input_params(node.inputs[0]), g.rank(node.inputs[1])
    assert rank is not None
    if x is None or (rank != 2 and node.op_type != "Conv") or not 2 <= rank <= 4:
        return None
    tail, B = node, g.operand(node, 2)
    if node.op_type == "MatMul":
        adds = [u for u in node.outputs[0].uses() if g.is_op(u.node, "Add")]
        found = [u for u in adds if real_constant(u.node.inputs[1 - u.idx]) is not None]
        if found and (len(node.outputs[0].uses()) > 1 or node.outputs[0].is_graph_output()):
            return None
        if found:
            tail, B = found[0].node, found[0].node.inputs[1 - found[0].idx]
    if node.op_type == "Conv":
        pads_of(node)  # raises where they are not explicit
    axis = g.channel_axis(node, rank)
    w = weight(node, axis)
    W = np.moveaxis(w.codes, axis, 0)
    codes = bias(node, B, x.scale, w, len(W))
    return Layer(node, tail, x, axis, g.attribute(node, "group", 1), W, w.scale, codes)


def input_params(value: ir.Value | None) -> QuantParams | None:
    """Return the parameters of dequantized codes, also behind operators that move them."""
    node = None if value is None else value.producer()
    while node is not None and not is_dequantize(node):
        moves = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "MaxPool", "Slice")
        source = node.inputs[0] if g.is_op(node, *moves) else None
        node = None if source is None else source.producer()
    if node is None or dequantizes_constant(node.outputs[0]) is not None:
        return None
    return activation_params(node)


def write_layer(graph: ir.Graph, names: g.Names, layer: Layer) -> None:
    """Put a layer's integers into the graph, each behind a DequantizeLinear of its own."""
    node, stem = layer.node, g.label(layer.node)
    W = np.ascontiguousarray(np.moveaxis(layer.W, 0, layer.axis))
    _constant(graph, names, (node, 1), f"{stem}_W", W, layer.scale, layer.axis)
    if layer.groups != g.attribute(node, "group", 1):
        node.attributes["group"] = ir.AttrInt64("group", layer.groups)
    if not layer.has_bias and not layer.B.any():
        return
    scale = bias_scale(layer.x.scale, layer.scale)
    if layer.tail is node:
        if len(node.inputs) < 3:
            node.resize_inputs(3)
        _constant(graph, names, (node, 2), f"{stem}_B", layer.B, scale, 0)
    else:
        index = 1 if layer.tail.inputs[0] is node.outputs[0] else 0
        _constant(graph, names, (layer.tail, index), f"{stem}_B", layer.B, scale, 0)


def _constant(
    graph: ir.Graph,
    names: g.Names,
    use: tuple[ir.Node, int],
    stem: str,
    codes: Array,
    scale: Array,
    axis: int,
) -> None:
    """Let an operand be constant codes behind a DequantizeLinear."""
    per_channel = scale.size > 1
    scale = scale if per_channel else scale.reshape(())
    zero = np.zeros(scale.shape, codes.dtype)
    parts = {"quantized": codes, "scale": scale, "zero_point": zero}
    operands = [g.add_constant(graph, names, f"{stem}_{k}", a) for k, a in parts.items()]
    attributes = {"axis": axis} if per_channel else {}
    name = names.fresh(f"{stem}_dequantized")
    dq = g.new_node(names, "DequantizeLinear", [*operands], name, attributes=attributes)
    dq.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    dq.outputs[0].shape = ir.Shape(codes.shape)
    g.insert_before(use[0], dq)
    use[0].replace_input_with(use[1], dq.outputs[0])


@dataclass(frozen=True, slots=True)
class Windows:
    """Which taps of a sliding window lie inside the image, once per kind of border.

    Args:
        y: bool [kinds of rows, kernel rows].
        x: bool [kinds of columns, kernel columns].
    """

    y: Bools
    x: Bools

    def counts(self) -> Ints:
        """Return how many taps are inside, one number per kind of window."""
        return np.outer(self.y.sum(axis=1), self.x.sum(axis=1)).reshape(-1).astype(np.int64)


def windows(node: ir.Node, kernel: tuple[int, int]) -> Windows | None:
    """Return the windows of a Conv or pool, or None where they depend on unknown sizes."""
    pads = pads_of(node)
    if not any(pads):
        return Windows(np.ones((1, kernel[0]), np.bool_), np.ones((1, kernel[1]), np.bool_))
    sizes = [_image(node.inputs[0]), _image(node.outputs[0])]
    if None in (*sizes[0], *sizes[1]):
        return None
    stride, dilation = pair(node, "strides", 1), pair(node, "dilations", 1)
    found = []
    for a in (0, 1):
        start = np.arange(sizes[1][a] or 0) * stride[a] - pads[a]
        taps = start[:, None] + np.arange(kernel[a]) * dilation[a]
        found.append(np.unique((taps >= 0) & (taps < (sizes[0][a] or 0)), axis=0))
    return Windows(found[0], found[1])


def _image(value: ir.Value | None) -> tuple[int | None, int | None]:
    """Return (height, width); that of a line is (1, width)."""
    shape = g.dims(value)
    if shape is None or not 3 <= len(shape) <= 4:
        return None, None
    return (shape[-2] if len(shape) == 4 else 1), shape[-1]


def image_kernel(layer: Layer) -> tuple[int, int]:
    """Return the (y, x) of a Conv's kernel."""
    shape = lay.image_shape(layer.W.shape)
    return shape[2], shape[3]
