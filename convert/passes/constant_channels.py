"""What a channel holds that does not depend on the input, computed by the integer arithmetic.

A channel of a layer is constant when every input channel that it weighs is: in the plainest case
when all its weight codes are zero. Where padding comes in, each kind of border is computed; only a
channel with one code everywhere is constant.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.layout import image_shape
from midge.convert.lower_layers import pair
from midge.convert.lower_target import Target, limits_of
from midge.convert.passes.channel_layers import Layer, image_kernel, windows
from midge.convert.passes.channel_streams import UNKNOWN, Ints, Stream, moved
from midge.core.errors import UnsupportedError
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

ACCUMULATOR_LIMIT = 2**31


class ConstantChannels:
    """Finds constant channels of the values that a QuantizeLinear reads."""

    def __init__(self, streams: dict[ir.Value, Stream], layers: dict[ir.Value, Layer]) -> None:
        """Remember what is known of the graph so far.

        Args:
            streams: of the values in front of the one asked for.
            layers: by their output.
        """
        self._streams, self._layers = streams, layers

    def codes(self, value: ir.Value, target: Target) -> Ints:
        """Return the code of each channel of a real value once quantized, UNKNOWN if it varies.

        Args:
            value: one that has a stream.
            target: parameters and saturation limits of the codes.
        """
        stream, node = self._streams[value], value.producer()
        if stream.codes is not None and stream.params is not None:
            return self._map(stream.codes, stream.params, target)
        if value in self._layers:
            return self._layer(self._layers[value], target)
        assert node is not None
        source = node.inputs[0]
        assert source is not None
        bounds = limits_of(node)
        if bounds is not None:
            return self.codes(source, target.clipped(bounds))
        if g.is_op(node, "Add", "Sub"):
            return self._sum(node, target, len(stream.ids))
        if g.is_op(node, "AveragePool", "GlobalAveragePool"):
            return self._average(node, self._streams[source], target)
        shift = moved(node, self._streams[source])
        if shift is None:
            return np.full(len(stream.ids), UNKNOWN)
        return self.codes(source, target)[shift.index]

    def _map(self, codes: Ints, x: QuantParams, target: Target) -> Ints:
        """Requantize constant codes."""
        return _where_known(
            codes, target, lambda q: arithmetic.quantize(_real(q, x), target.params)
        )

    def _sum(self, node: ir.Node, target: Target, channels: int) -> Ints:
        a, b = (self._streams[v] for v in node.inputs if v is not None)
        if a.codes is None or b.codes is None or a.params is None or b.params is None:
            return np.full(channels, UNKNOWN)
        if not np.isfinite(arithmetic.add_coefficients(a.params, b.params, target.params)).all():
            return np.full(channels, UNKNOWN)
        both = (a.codes != UNKNOWN) & (b.codes != UNKNOWN)
        A, B = np.where(both, a.codes, 0), np.where(both, b.codes, 0)
        formula = arithmetic.sub if node.op_type == "Sub" else arithmetic.add
        y = formula(A, B, a.params, b.params, target.params).astype(np.int64)
        return np.where(both, np.clip(y, target.low, target.high), UNKNOWN)

    def _average(self, node: ir.Node, stream: Stream, target: Target) -> Ints:
        """Average constants: the borders of a padded image have counts of their own."""
        unknown = np.full(len(stream.ids), UNKNOWN)
        counts = _window_counts(node)
        x = stream.params
        if stream.codes is None or x is None or counts is None:
            return unknown
        inside, divisors = counts

        def average(q: Ints) -> Ints:
            acc = (q - x.zero_point)[:, None] * inside
            m = arithmetic.average_multiplier(x.scale, target.params.scale, divisors)
            return arithmetic.requantize(acc, m, target.params).astype(np.int64)

        return _where_known(stream.codes, target, average)

    def _layer(self, layer: Layer, target: Target) -> Ints:
        """Compute the output channels that weigh only constant input channels."""
        W = layer.columns()
        channels = W.shape[1] * layer.groups
        x = layer.node.inputs[0]
        stream = self._streams.get(x) if x is not None else None
        codes = np.full(channels, UNKNOWN)
        if stream is not None and stream.codes is not None and layer.sums_over(stream.axis):
            codes = stream.codes
        # The input channels that each row sees, [O, I / groups].
        seen = np.repeat(codes.reshape(layer.groups, -1), len(W) // layer.groups, axis=0)
        rows = np.flatnonzero(~(W.any(axis=2) & (seen == UNKNOWN)).any(axis=1))
        result = np.full(len(W), UNKNOWN)
        deltas = np.where(seen == UNKNOWN, 0, seen - layer.x.zero_point)[rows]
        sums = _border_sums(layer, (W[rows] * deltas[:, :, None]).sum(axis=1))
        if sums is None or not len(rows):
            return result
        acc = sums + layer.B[rows].astype(np.int64)[:, None]
        m = arithmetic.multiplier(layer.x.scale, layer.scale, target.params.scale)
        m = m[rows] if m.size > 1 else m
        y = arithmetic.requantize(acc, m.reshape(-1, 1), target.params).astype(np.int64)
        fits = (np.abs(acc) < ACCUMULATOR_LIMIT).all(axis=1)
        result[rows] = _uniform(y, fits, target)
        return result


def _border_sums(layer: Layer, taps: Ints) -> Ints | None:
    """Sum what the taps add, [rows, taps], for each kind of window, [rows, kinds]."""
    if layer.node.op_type != "Conv" or not taps.any():
        whole: Ints = taps.sum(axis=1, keepdims=True)
        return whole
    kernel = image_kernel(layer)
    found = windows(layer.node, kernel)
    if found is None:
        return None
    y, x = found.y.astype(np.int64), found.x.astype(np.int64)
    sums: Ints = np.matmul(np.matmul(y, taps.reshape(-1, *kernel)), x.T).reshape(len(taps), -1)
    return sums


def _window_counts(node: ir.Node) -> tuple[Ints, Ints] | None:
    """Return (elements inside, divisor) for each kind of window of an average pool, or None."""
    shape = g.dims(node.inputs[0])
    if shape is None or not 3 <= len(shape) <= 4 or g.attribute(node, "ceil_mode", 0):
        return None
    if node.op_type == "GlobalAveragePool":
        size = 1
        for d in shape[2:]:
            size *= d or 0
        return (np.array([size]), np.array([size])) if size else None
    kernel = image_shape((1, 1, *g.attribute(node, "kernel_shape")))[2:]
    try:
        found = windows(node, (kernel[0], kernel[1]))
    except UnsupportedError:
        return None
    if found is None or pair(node, "dilations", 1) != (1, 1):
        return None
    inside = found.counts()
    if g.attribute(node, "count_include_pad", 0):
        return inside, np.full_like(inside, kernel[0] * kernel[1])
    return inside, inside


def _where_known(codes: Ints, target: Target, function: Callable[[Ints], g.Array]) -> Ints:
    """Apply a function of codes, [channels] to [channels] or [channels, kinds], where known."""
    known = codes != UNKNOWN
    if not known.any():
        return codes
    filler = codes[known][0]
    y = function(np.where(known, codes, filler)).astype(np.int64)
    return _uniform(y.reshape(len(codes), -1), known, target)


def _uniform(y: Ints, known: g.Array, target: Target) -> Ints:
    """Saturate codes [channels, kinds] and keep the channels that have one code everywhere."""
    limited = np.clip(y, target.low, target.high)
    same = (limited == limited[:, :1]).all(axis=1)
    return np.where(known & same, limited[:, 0], UNKNOWN)


def _real(codes: Ints, x: QuantParams) -> g.Array:
    """Dequantize as a table of the executor does: exactly, then rounded to float32."""
    real: g.Array = (codes - x.zero_point) * np.float64(x.scale)
    return real.astype(np.float32)
