"""Writing QuantizeLinear and DequantizeLinear into a graph, so that ONNX Runtime fuses it.

Every quantized activation is Q -> DQ behind its producer; weights are int8 with a DQ, biases int32
with a DQ of scale f32(s_x s_w[c]). Nothing stands between a DQ and the operator that reads it.
"""

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.layer_codes import channel_scales
from midge.convert.lower_params import activation_params as activation_params_of
from midge.convert.lower_params import dequantizes_activation, is_quantize
from midge.convert.passes.canonical_activations import limits
from midge.convert.select import Selection
from midge.quant.rules import rule_of
from midge.quant.scheme import QuantParams, WeightCodes, activation_params, bias_scale

IR_TYPES = {
    "uint8": ir.DataType.UINT8,
    "int8": ir.DataType.INT8,
    "int32": ir.DataType.INT32,
}


@dataclass(slots=True)
class Writer:
    """One graph being written.

    Args:
        model: a clone that may be changed.
        selection: made on that clone.
        params: of every quantized activation, by name.
        names: hands out unused names.
    """

    model: ir.Model
    selection: Selection
    params: dict[str, QuantParams]
    names: g.Names
    quantizers: dict[ir.Value, ir.Node] = field(default_factory=dict)

    def drop_bounds(self) -> None:
        """Remove each fused Relu and Clip that saturation makes redundant.

        One that is not stays as an operator on codes, with one set of parameters before and after.
        """
        for node, layer in self.selection.fused.items():
            y, source = node.outputs[0], layer.outputs[0]
            if is_redundant(node, self.params[g.name_of(y)]):
                g.take_over(y, source)
                g.remove(node)
            else:
                self.params[g.name_of(source)] = self.params[g.name_of(y)]
                self.selection.quantized[node] = rule_of(node.op_type)
        self.selection.fused.clear()

    def quantize(self, value: ir.Value) -> None:
        """Put Q -> DQ behind an activation; what reads codes then reads the DQ.

        What the file has in codes already is left as it is, and its QuantizeLinear serves the other
        readers too.
        """
        if dequantizes_activation(value):
            return
        p = self.params[g.name_of(value)]
        stem = g.name_of(value)
        computed = self.selection.is_quantized(value)
        given = _given_quantize(value, p)
        # ONNX Runtime cannot load a DequantizeLinear that the body of an If or Loop reads.
        readers = [
            u
            for u in value.uses()
            if u.node.graph is self.model.graph
            and u.node is not given
            and (computed or self.selection.reads_codes(u.node, value))
        ]
        if given is not None and not readers and not value.is_graph_output():
            return
        q = given or self._quantize_node(value, p)
        scale, zero = q.inputs[1:3]
        dq = g.new_node(
            self.names,
            "DequantizeLinear",
            [q.outputs[0], scale, zero],
            self.names.fresh(f"{stem}_dequantized"),
            like=value,
        )
        for use in readers:
            use.node.replace_input_with(use.idx, dq.outputs[0])
        producer = value.producer()
        if given is not None:  # the file may have it behind readers of other branches
            self.model.graph.remove(given)
        if producer is not None:
            g.insert_after(producer, q, dq)
        else:
            g.insert_before(self.model.graph[0], q, dq)
        self.quantizers[value] = q
        if computed and value.is_graph_output():
            _become_output(self.model.graph, value, dq.outputs[0], self.names)

    def _quantize_node(self, value: ir.Value, p: QuantParams) -> ir.Node:
        stem = g.name_of(value)
        scale, zero = self._parameters(stem, p.scale, np.array(p.zero_point, p.dtype))
        name = self.names.fresh(f"{stem}_quantized")
        q = g.new_node(self.names, "QuantizeLinear", [value, scale, zero], name, like=value)
        q.outputs[0].type = ir.TensorType(IR_TYPES[p.dtype])
        return q

    def write_layer(self, node: ir.Node, codes: WeightCodes) -> None:
        """Give a layer its integer weight and bias, each behind a DQ."""
        stem, x = g.label(node), node.inputs[0]
        dq = x.producer() if x is not None else None
        assert dq is not None
        x_scale = g.constant(dq.inputs[1])
        assert x_scale is not None
        per_channel = codes.scale.size > 1
        axis = g.channel_axis(node, codes.weight.ndim) if per_channel else None
        self._constant(node, 1, f"{stem}_W", codes.weight, codes.scale, axis)
        if codes.bias is not None:
            if len(node.inputs) < 3:
                node.resize_inputs(3)
            scale = bias_scale(np.float32(x_scale), channel_scales(node, codes))
            axis = 0 if scale.size > 1 else None
            self._constant(node, 2, f"{stem}_B", codes.bias, scale, axis)

    def write_operand(self, node: ir.Node, index: int, p: QuantParams, array: g.Array) -> None:
        """Give an elementwise operator a constant operand in codes behind a DQ."""
        codes = np.clip(np.rint(array / p.scale) + p.zero_point, p.qmin, p.qmax).astype(p.dtype)
        stem = f"{g.label(node)}_{'AB'[index] if index < 2 else index}"
        self._constant(node, index, stem, codes, np.array(p.scale), None, p.zero_point)

    def _constant(
        self,
        node: ir.Node,
        index: int,
        stem: str,
        codes: g.Array,
        scale: g.Array,
        axis: int | None,
        zero_point: int = 0,
    ) -> None:
        scale = scale if axis is not None else scale.reshape(())
        q = g.add_constant(self.model.graph, self.names, f"{stem}_quantized", codes)
        zero = np.full(scale.shape, zero_point, codes.dtype)
        operands = [q, *self._parameters(stem, scale, zero)]
        attributes = {} if axis is None else {"axis": axis}
        dq = g.new_node(
            self.names,
            "DequantizeLinear",
            [*operands],
            self.names.fresh(f"{stem}_dequantized"),
            attributes=attributes,
        )
        dq.outputs[0].type, dq.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), q.shape
        g.insert_before(node, dq)
        node.replace_input_with(index, dq.outputs[0])

    def _parameters(self, stem: str, scale: object, zero: g.Array) -> tuple[ir.Value, ir.Value]:
        graph = self.model.graph
        scale_value = g.add_constant(
            graph, self.names, f"{stem}_scale", np.array(scale, np.float32)
        )
        return scale_value, g.add_constant(graph, self.names, f"{stem}_zero_point", zero)


def _given_quantize(value: ir.Value, p: QuantParams) -> ir.Node | None:
    """Return the QuantizeLinear of these parameters that the file has behind a value, or None."""
    nodes = (use.node for use in value.uses() if is_quantize(use.node) and use.idx == 0)
    return next((n for n in nodes if len(n.inputs) > 2 and activation_params_of(n) == p), None)


def constant_params(array: g.Array, dtype: str) -> QuantParams:
    """Return parameters for a constant operand of an elementwise operator."""
    return activation_params(float(array.min()), float(array.max()), dtype)


def is_redundant(node: ir.Node, y: QuantParams) -> bool:
    """Tell whether saturation to y's codes does what a Relu or Clip does.

    Each limit must lie outside what the codes can say, or within half a step of their end.
    """
    found = limits(node)
    assert found is not None
    low = (y.qmin - y.zero_point) * float(y.scale)
    high = (y.qmax - y.zero_point) * float(y.scale)
    half = float(y.scale) / 2 * (1 + 2.0**-12)  # the scale's rounding, times up to 255 steps
    return low >= found[0] - half and high <= found[1] + half


def _become_output(graph: ir.Graph, old: ir.Value, new: ir.Value, names: g.Names) -> None:
    """Make `new` the graph output that `old` was; the name goes with it."""
    name = g.name_of(old)
    for index, output in enumerate(graph.outputs):
        if output is old:
            graph.outputs[index] = new
    old.name = names.fresh(f"{name}_float")
    new.name = name
