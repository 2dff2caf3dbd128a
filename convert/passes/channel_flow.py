"""The channels of a whole quantized graph: which go together, which are constant, which must stay.

Every value that a layer makes gets a stream (channel_streams.py), and so does what follows from it
without mixing channels. An operator that is not known here pins every channel that it reads.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_params import activation_params, is_dequantize, is_quantize
from midge.convert.lower_target import Target
from midge.convert.passes.channel_layers import Layer, read_layer
from midge.convert.passes.channel_streams import Ints, Stream, Ties, moved
from midge.convert.passes.constant_channels import ConstantChannels
from midge.core.errors import UnsupportedError
from midge.quant.scheme import QuantParams

LAYERS = ("Conv", "Gemm", "MatMul")
BOUNDS = ("Relu", "Clip")
AVERAGES = ("AveragePool", "GlobalAveragePool")
MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "MaxPool", "Slice")


@dataclass(slots=True)
class Flow:
    """What is known of the channels of one graph.

    Args:
        graph: it.
        ties: which channels go together.
        streams: by value.
        layers: by the value that they make.
        reads: dense layers whose input has a stream that they sum over.
        pinned: numbers of channels that must stay.
    """

    graph: ir.Graph
    ties: Ties = field(default_factory=Ties)
    streams: dict[ir.Value, Stream] = field(default_factory=dict)
    layers: dict[ir.Value, Layer] = field(default_factory=dict)
    reads: list[Layer] = field(default_factory=list)
    pinned: list[Ints] = field(default_factory=list)

    @classmethod
    def of(cls, graph: ir.Graph) -> "Flow":
        """Follow every channel of a graph."""
        flow = cls(graph)
        constants = ConstantChannels(flow.streams, flow.layers)
        for node in graph:
            stream = flow._follow(node, constants)
            if stream is None:
                flow._pin(*node.inputs)
            else:
                flow.streams[node.outputs[0]] = stream
        for value in flow.streams:
            outside = any(use.node.graph is not graph for use in value.uses())
            if value.is_graph_output() or outside:
                flow._pin(value)
        return flow

    def _pin(self, *values: ir.Value | None) -> None:
        self.pinned += [self.streams[v].ids for v in values if v in self.streams]

    def _follow(self, node: ir.Node, constants: ConstantChannels) -> Stream | None:
        """Return the stream of a node's output, or None where its inputs must stay whole."""
        source = node.inputs[0] if node.inputs else None
        stream = self.streams.get(source) if source is not None else None
        if g.is_op(node, *LAYERS):
            return self._layer(node)
        if g.is_op(node, "Add", "Sub"):
            return self._sum(node)
        if stream is None or source is None:
            return None
        if is_quantize(node) or is_dequantize(node):
            return _between(node, source, stream, constants)
        if g.is_op(node, *BOUNDS) and g.is_float(source):
            return replace(stream, codes=None, params=None)
        if g.is_op(node, *AVERAGES):
            return Stream(1, stream.ids) if stream.axis == 1 else None
        shift = moved(node, stream)
        if shift is None or (g.is_op(node, "MaxPool", "GlobalMaxPool") and stream.axis != 1):
            return None
        codes = None if stream.codes is None else stream.codes[shift.index]
        return Stream(shift.axis, stream.ids[shift.index], codes, stream.params)

    def _sum(self, node: ir.Node) -> Stream | None:
        """Follow an Add of a MatMul and its bias, or an Add or Sub of activations of one shape."""
        if node.outputs[0] in self.layers:
            layer = self.layers[node.outputs[0]]
            return self.streams.get(layer.node.outputs[0])
        a, b = (self.streams.get(v) if v is not None else None for v in node.inputs)
        shapes = [g.dims(v) for v in node.inputs]
        if a is None or b is None or a.axis != b.axis or shapes[0] != shapes[1] or not shapes[0]:
            return None
        self.ties.tie(a.ids, b.ids)
        return Stream(a.axis, a.ids)

    def _layer(self, node: ir.Node) -> Stream | None:
        """Follow a layer that computes in integers; others must keep every channel."""
        layer = read_layer(node)
        if layer is None or not _ends_in_codes(layer.output):
            return None
        self.layers[layer.output] = layer
        ids = self.ties.fresh(len(layer.W))
        x = node.inputs[0]
        stream = self.streams.get(x) if x is not None else None
        if stream is None or not layer.sums_over(stream.axis):
            self._pin(x)
            if layer.groups > 1:
                self.pinned.append(ids)  # a group goes with its inputs, and they stay
        elif layer.groups > 1:
            self._tie_groups(layer, stream.ids, ids)
        else:
            self.reads.append(layer)
        return Stream(layer.output_axis(), ids)

    def _tie_groups(self, layer: Layer, inputs: Ints, outputs: Ints) -> None:
        """Tie all that goes into a group and comes out of it: it stays or goes as a whole."""
        for ins, outs in zip(
            inputs.reshape(layer.groups, -1), outputs.reshape(layer.groups, -1), strict=True
        ):
            both = np.concatenate([ins, outs])
            self.ties.tie(both[:-1], both[1:])


def _between(
    node: ir.Node, source: ir.Value, stream: Stream, constants: ConstantChannels
) -> Stream | None:
    """Follow QuantizeLinear or DequantizeLinear."""
    params = _params(node)
    if params is None:
        return None
    if is_quantize(node):
        return replace(stream, codes=constants.codes(source, Target.of("", params)), params=params)
    return replace(stream, params=params)


def _params(node: ir.Node) -> QuantParams | None:
    try:
        return activation_params(node)
    except UnsupportedError:
        return None


def _ends_in_codes(value: ir.Value) -> bool:
    """Tell whether a layer's result is only ever quantized: then its bits are those of integers."""
    if value.is_graph_output() or not value.uses():
        return False
    return all(
        is_quantize(use.node)
        or (g.is_op(use.node, *BOUNDS, *MOVES) and _ends_in_codes(use.node.outputs[0]))
        for use in value.uses()
    )
