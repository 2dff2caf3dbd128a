"""INT8 without calibration data: dynamic quantization, and int8 weights under float arithmetic.

Dynamic: the activation of each layer is quantized at run time by its own range, the products are
integers, and the result is real again:

    q, s_x, z_x = DynamicQuantizeLinear(x)
    y = Cast(MatMulInteger(q, W, z_x)) * (s_x * s_w) + B        (ConvInteger for a Conv)

Weight-only: the weight is stored as int8 codes behind a DequantizeLinear; nothing else changes.
Only layers are touched; every other operator stays in float.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.coverage import Coverage
from midge.convert.passes.remove_dead import RemoveDead
from midge.quant import scheme

LAYERS = ("Conv", "Gemm", "MatMul")
DYNAMIC, WEIGHT_ONLY = "dynamic", "weight-only"
_CONV_ATTRIBUTES = ("dilations", "group", "kernel_shape", "pads", "strides")


@dataclass(frozen=True, slots=True)
class WeightQuantizedGraph:
    """A graph with int8 weights and what became of every node.

    Args:
        model: the graph.
        coverage: one record per node of the float graph.
        scales: float32 scales of each layer's weight, by layer name.
    """

    model: ir.Model
    coverage: list[Coverage]
    scales: dict[str, g.Array]


def quantize_weights(
    model: ir.Model,
    mode: str,
    *,
    per_channel: bool = True,
    reduce_range: bool = False,
    refused: Mapping[str, str] | None = None,
) -> WeightQuantizedGraph:
    """Give every layer int8 weights; the graph given is left as it is.

    Args:
        model: canonical float graph (canonical.canonicalize).
        mode: DYNAMIC or WEIGHT_ONLY.
        per_channel: one weight scale per output channel.
        reduce_range: 7-bit weights, with which no sum of two products leaves 16 bits.
        refused: nodes that stay in float -> why.
    """
    clone = model.clone()
    writer = _Writer(clone, g.Names(clone.graph), per_channel, reduce_range)
    coverage, no = [], refused or {}
    reason = "integer products, activations quantized at run time"
    for node in list(clone.graph):
        why = no.get(g.label(node)) or _obstacle(node, mode)
        if why:
            coverage.append(Coverage(g.label(node), g.operator(node), "float", why))
            continue
        writer.dynamic(node) if mode == DYNAMIC else writer.weight_only(node)
        said = reason if mode == DYNAMIC else "int8 weight, float arithmetic"
        said += ", per channel" if per_channel else ", per tensor"
        coverage.append(Coverage(g.label(node), g.operator(node), "quantized", said))
    RemoveDead()(clone)
    return WeightQuantizedGraph(clone, coverage, writer.scales)


def _obstacle(node: ir.Node, mode: str) -> str:
    """Return why a node keeps its float weight, or nothing."""
    if not g.is_op(node, *LAYERS):
        return "only Conv, Gemm and MatMul have weights to quantize"
    W, B = g.constant(node.inputs[1]), g.operand(node, 2)
    if W is None:
        return "its weight is no constant"
    if W.dtype != np.float32 or not np.all(np.isfinite(W)):
        return "its weight is not finite float32"
    if g.is_constant(node.inputs[0]):
        return "its first operand is a constant"
    if g.is_op(node, "MatMul") and W.ndim != 2:
        return "its weight is no matrix"
    if mode == DYNAMIC and B is not None and not g.is_constant(B):
        return "its bias is no constant"
    if g.attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return "its padding depends on an unknown size"
    return ""


@dataclass(slots=True)
class _Writer:
    """One graph being written.

    Args:
        model: a clone that may be changed.
        names: hands out unused names.
        per_channel: one weight scale per output channel.
        reduce_range: 7-bit weights.
    """

    model: ir.Model
    names: g.Names
    per_channel: bool
    reduce_range: bool
    scales: dict[str, g.Array] = field(default_factory=dict)
    _quantizers: dict[ir.Value, ir.Node] = field(default_factory=dict)

    def weight_only(self, node: ir.Node) -> None:
        """Put int8 codes and a DequantizeLinear in place of a layer's weight."""
        W = g.constant(node.inputs[1])
        assert W is not None
        axis = g.channel_axis(node, W.ndim)
        codes, scale = self._codes(node, W, axis)
        stem = f"{g.label(node)}_W"
        scale = scale if self.per_channel else scale.reshape(())
        operands = [
            self._constant(f"{stem}_quantized", codes),
            self._constant(f"{stem}_scale", scale),
            # Not left out: ONNX Runtime's rewriting to uint8 weights wants it.
            self._constant(f"{stem}_zero_point", np.zeros(scale.shape, np.int8)),
        ]
        dq = g.new_node(
            self.names,
            "DequantizeLinear",
            [*operands],
            self.names.fresh(f"{stem}_dequantized"),
            attributes={"axis": axis} if self.per_channel else {},
        )
        dq.outputs[0].type, dq.outputs[0].shape = (
            ir.TensorType(ir.DataType.FLOAT),
            ir.Shape(W.shape),
        )
        g.insert_before(node, dq)
        node.replace_input_with(1, dq.outputs[0])

    def dynamic(self, node: ir.Node) -> None:
        """Replace a layer by integer products of its dynamically quantized input."""
        x, W, y = node.inputs[0], g.constant(node.inputs[1]), node.outputs[0]
        assert x is not None
        assert W is not None
        codes, scale = self._codes(node, W, g.channel_axis(node, W.ndim))
        conv, stem = node.op_type == "Conv", g.label(node)
        if g.attribute(node, "transB", 0):
            codes = np.ascontiguousarray(codes.T)
        rows = (1, -1, *[1] * (W.ndim - 2)) if conv else (-1,)
        quantizer = self._quantizer(x, node)
        factor = self._constant(f"{stem}_W_scale", scale.reshape(rows))
        q, x_scale, zero_point = quantizer.outputs
        product = g.new_node(
            self.names,
            "ConvInteger" if conv else "MatMulInteger",
            [q, self._constant(f"{stem}_W_quantized", codes), zero_point],
            self.names.fresh(f"{stem}_products"),
            name=stem,
            attributes={
                key: list(value) if isinstance(value, tuple) else value
                for key in _CONV_ATTRIBUTES
                if conv and (value := g.attribute(node, key)) is not None
            },
        )
        product.outputs[0].type, product.outputs[0].shape = (
            ir.TensorType(ir.DataType.INT32),
            y.shape,
        )
        cast = self._step("Cast", [product.outputs[0]], f"{stem}_sums", y)
        cast.attributes["to"] = ir.AttrInt64("to", int(ir.DataType.FLOAT))
        both = self._step("Mul", [x_scale, factor], f"{stem}_scale", None)
        last = self._step("Mul", [cast.outputs[0], both.outputs[0]], f"{stem}_scaled", y)
        nodes = [product, cast, both, last]
        B = g.constant(g.operand(node, 2))
        if B is not None:
            bias = self._constant(f"{stem}_B", B.reshape(rows))
            nodes.append(self._step("Add", [last.outputs[0], bias], f"{stem}_biased", y))
        g.insert_before(node, *nodes)
        g.take_over(y, nodes[-1].outputs[0])
        g.remove(node)

    def _codes(self, node: ir.Node, W: g.Array, axis: int) -> tuple[g.Array, g.Array]:
        limit = scheme.REDUCED_WEIGHT_MAX if self.reduce_range else scheme.WEIGHT_MAX
        scale = scheme.weight_scales(W, axis, self.per_channel, limit)
        self.scales[g.label(node)] = scale
        return scheme.weight_codes(W, scale, axis, limit), scale

    def _quantizer(self, x: ir.Value, reader: ir.Node) -> ir.Node:
        """Return the DynamicQuantizeLinear of a value, made before its first reader."""
        if x not in self._quantizers:
            stem = g.name_of(x)
            parts = ("quantized", "scale", "zero_point")
            outputs = [ir.val(self.names.fresh(f"{stem}_{part}")) for part in parts]
            types = (ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8)
            for output, dtype in zip(outputs, types, strict=True):
                output.type, output.shape = ir.TensorType(dtype), ir.Shape(())
            outputs[0].shape = x.shape
            label = self.names.fresh(f"{stem}_DynamicQuantizeLinear")
            made = ir.node("DynamicQuantizeLinear", [x], outputs=outputs, name=label)
            g.insert_before(reader, made)
            self._quantizers[x] = made
        return self._quantizers[x]

    def _step(
        self, op_type: str, operands: list[ir.Value], stem: str, like: ir.Value | None
    ) -> ir.Node:
        node = g.new_node(self.names, op_type, [*operands], self.names.fresh(stem), like=like)
        if like is None:
            node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        return node

    def _constant(self, stem: str, array: g.Array) -> ir.Value:
        return g.add_constant(self.model.graph, self.names, stem, array)
