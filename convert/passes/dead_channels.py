"""Takes channels out of a quantized graph that change no bit of its outputs.

A channel can go when no layer needs it. A layer does not need an input channel whose weight codes
are all zero, nor one that is constant: what it adds to every sum is a number, which goes into the
bias. With padding that holds only for a channel of zeros (of the zero-point), because the borders
see fewer taps. Channels that are constant and needed stay, with their codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassRecord, PassResult
from midge.convert.passes.channel_flow import Flow
from midge.convert.passes.channel_layers import Bools, Layer, write_layer
from midge.convert.passes.channel_streams import UNKNOWN, Ints, Stream
from midge.convert.passes.remove_dead import RemoveDead
from midge.convert.summary import macs
from midge.quant.scheme import BIAS_LIMIT, WeightCodes

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, slots=True)
class Cost:
    """What the layers of a graph take.

    Args:
        channels: output channels.
        macs: multiply-accumulates of one sample.
        weights: elements of all weights.
        conv_weights: elements of the weights of convolutions.
    """

    channels: int
    macs: int
    weights: int
    conv_weights: int


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A layer that lost channels.

    Args:
        layer: what is left.
        rows: which output channels that is, bool, one per channel there was.
    """

    layer: Layer
    rows: Bools

    def codes(self, before: WeightCodes) -> WeightCodes:
        """Return the layer's codes, given what they were."""
        numbers = np.cumsum(self.rows) - 1
        raised = tuple(int(numbers[c]) for c in before.raised if self.rows[c])
        W = np.moveaxis(self.layer.W, 0, self.layer.axis)
        bias = self.layer.B if self.layer.has_bias else None
        return WeightCodes(W, self.layer.scale, bias, raised)


@dataclass(frozen=True, slots=True)
class Reduction:
    """What went, and what that saved.

    Args:
        before: cost of the graph as it was.
        after: cost of what is left.
        records: one per layer that lost output channels.
        shrunk: what changed, by the layer's label.
    """

    before: Cost
    after: Cost
    records: tuple[PassRecord, ...]
    shrunk: Mapping[str, Shrunk]

    def notices(self) -> list[str]:
        """Return the line that the user must see, if anything went."""
        a, b = self.before, self.after
        if a == b:
            return []
        return [
            f"dead channels: {a.channels - b.channels} of {a.channels} output channels are gone; "
            f"{_change('multiply-accumulates', a.macs, b.macs)}, "
            f"{_change('weights', a.weights, b.weights)}; the outputs keep their bits."
        ]


def _change(what: str, before: int, after: int) -> str:
    share = f" ({after / before:.1%})" if before else ""
    return f"{what} {before:,} -> {after:,}{share}"


def remove_dead_channels(model: ir.Model) -> Reduction:
    """Take every channel out of a quantized graph that no output depends on, in place.

    Args:
        model: any QDQ graph; float parts are left as they are.
    """
    before, remove = cost(model), DeadChannels()
    result = remove(model)
    return Reduction(before, cost(model), tuple(result.records), remove.shrunk)


def cost(model: ir.Model) -> Cost:
    """Add up the layers of a graph; an unknown leading dimension counts as 1."""
    channels = work = weights = conv = 0
    for node in model.graph:
        shape = g.static_dims(g.operand(node, 1)) if g.is_op(node, *WEIGHTED) else None
        if not shape:
            continue
        size = int(np.prod(shape))
        work, weights = work + macs(node), weights + size
        conv += size if node.op_type == "Conv" else 0
        channels += shape[g.channel_axis(node, len(shape))]
    return Cost(channels, work, weights, conv)


class DeadChannels(Pass):
    """Remove channels that change no bit of any output; every layer keeps at least one.

    Attributes:
        shrunk: what changed, by the layer's label.
    """

    def __init__(self) -> None:
        """Begin with nothing found."""
        self.shrunk: dict[str, Shrunk] = {}

    def call(self, model: ir.Model) -> PassResult:
        """Find them and shrink every tensor and constant that holds them."""
        result, graph, flow = PassResult(), model.graph, Flow.of(model.graph)
        kept = needed_channels(flow)
        if kept.all():
            return result
        names = g.Names(graph)
        for layer in flow.layers.values():
            rows = kept[flow.streams[layer.output].ids]
            left = _shrunk_layer(flow, layer, kept, rows)
            if left is None:
                continue
            write_layer(graph, names, left)
            self.shrunk[g.label(layer.node)] = Shrunk(left, rows)
            if not rows.all():
                gone = f"{int((~rows).sum())} of {len(rows)} output channels are dead and gone"
                result.kept(layer.node, gone)
        for value, stream in flow.streams.items():
            _shrink_shape(graph, names, value, stream.axis, kept[stream.ids])
        RemoveDead()(model)
        result.modified = True
        return result


def needed_channels(flow: Flow) -> Bools:
    """Return which channels must stay, by number: the fewest that the outputs' bits depend on."""
    kept = np.zeros(len(flow.ties), np.bool_)
    for ids in flow.pinned:
        kept[flow.ties.roots(ids)] = True
    columns = {id(layer): _columns(flow, layer) for layer in flow.reads}
    while True:
        before = kept.sum()
        for layer in flow.reads:
            ids, used = columns[id(layer)]
            rows = kept[flow.ties.roots(flow.streams[layer.output].ids)]
            kept[ids[used[rows].any(axis=0)]] = True
        if kept.sum() > before:
            continue
        for stream in flow.streams.values():  # a tensor without channels is none
            roots = flow.ties.roots(stream.ids)
            if not kept[roots].any():
                kept[roots[0]] = True
        if kept.sum() == before:
            return kept[flow.ties.roots(np.arange(len(kept)))]


def _columns(flow: Flow, layer: Layer) -> tuple[Ints, Bools]:
    """Return the roots of a layer's input channels and, [O, I], which rows need which of them."""
    x = layer.node.inputs[0]
    assert x is not None
    stream = flow.streams[x]
    used: Bools = np.any(layer.columns(), axis=2)
    roots = flow.ties.roots(stream.ids)
    constant, offsets = _offsets(layer, stream)
    if constant.any():
        reach = np.abs(layer.B.astype(np.int64)) + np.abs(offsets).sum(axis=1)
        fits = (reach < BIAS_LIMIT) & layer.may_have_bias
        used[:, constant] &= ~(fits[:, None] | (offsets == 0))
    return roots, used


def _offsets(layer: Layer, stream: Stream) -> tuple[Bools, Ints]:
    """Return which input channels add a constant, [I], and what, [O, constant ones]."""
    if stream.codes is None:
        return np.zeros(len(stream.ids), np.bool_), np.zeros((len(layer.W), 0), np.int64)
    deltas = stream.codes - layer.x.zero_point
    constant = (stream.codes != UNKNOWN) & ((deltas == 0) | (not layer.padded))
    taps = layer.columns()[:, constant].sum(axis=2, dtype=np.int64)
    return constant, taps * deltas[constant]


def _shrunk_layer(flow: Flow, layer: Layer, kept: Bools, rows: Bools) -> Layer | None:
    """Return a layer without the channels that go, or None where it loses none.

    What those input channels added to the sums goes into the bias.
    """
    columns, B = np.ones(layer.W.shape[1] * layer.groups, np.bool_), layer.B
    x = layer.node.inputs[0]
    stream = flow.streams.get(x) if x is not None else None
    if stream is not None and layer.sums_over(stream.axis):
        columns = kept[stream.ids]
        if layer.groups == 1:
            constant, offsets = _offsets(layer, stream)
            B = B + offsets[:, ~columns[constant]].sum(axis=1)
    return None if rows.all() and columns.all() else layer.keep(rows, columns, B)


def _shrink_shape(graph: ir.Graph, names: g.Names, value: ir.Value, axis: int, kept: Bools) -> None:
    """Let a tensor, and the Reshape that makes it, have only the channels that stay."""
    if kept.all() or value.shape is None:
        return
    size = int(kept.sum())
    value.shape = ir.Shape([size if a == axis else d for a, d in enumerate(value.shape)])
    node = value.producer()
    if node is None or not g.is_op(node, "Reshape"):
        return
    target = g.constant(node.inputs[1])
    assert target is not None
    if target[axis] > 0:
        wanted = np.where(np.arange(len(target)) == axis, size, target)
        stem = f"{g.label(node)}_shape"
        node.replace_input_with(1, g.add_constant(graph, names, stem, wanted.astype(np.int64)))
