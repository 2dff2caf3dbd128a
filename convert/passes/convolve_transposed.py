"""Transposed convolutions, and depth to space, spelt with operators that have integer kernels.

1. ConvTranspose of stride s is a Conv that computes all s phases of the output side by side as
   channels, which are then laid between each other and cropped: with T = ceil(k / s) taps a phase,

       y[q s + r] = sum over t < T of x[q - t] W[r + s t]

   so phase r is a Conv with the weights W[r], W[r + s], ... in reverse and padding T - 1.
2. DepthToSpace and SpaceToDepth are Reshape, Transpose, Reshape.

The sizes other than the batch must be known, and the weight constant; others stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of


class ConvolveTransposed(Pass):
    """Rewrite ConvTranspose, DepthToSpace and SpaceToDepth."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 and 2."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, "ConvTranspose"):
            geometry = _geometry(node)
            if isinstance(geometry, str):
                result.kept(node, geometry)
                continue
            _convolve(model, node, geometry, names)
            result.modified = True
        for node in nodes_of(model, "DepthToSpace", "SpaceToDepth"):
            shape = g.dims(node.inputs[0])
            if shape is not None and None not in shape[1:]:
                _respell(model, node, names)
                result.modified = True
        return result


@dataclass(frozen=True, slots=True)
class Geometry:
    """Of one ConvTranspose, per spatial axis.

    Args:
        size: of the input.
        stride: phases.
        begin: output elements cut off at the start.
        output: size of the output.
        taps: of one phase.
        rows: of each phase, so that all of the output is covered.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    begin: tuple[int, ...]
    output: tuple[int, ...]
    taps: tuple[int, ...]
    rows: tuple[int, ...]


def _geometry(node: ir.Node) -> Geometry | str:
    """Return the sizes, or why the node stays."""
    W, B = g.constant(node.inputs[1]), g.operand(node, 2)
    shape = g.dims(node.inputs[0])
    if W is None or (B is not None and not g.is_constant(B)):
        return "its weight or bias is no constant"
    if shape is None or None in shape[1:]:
        return "the size of its input is unknown"
    wanted = g.attribute(node, "output_shape")
    if g.attribute(node, "auto_pad", "NOTSET") != "NOTSET" and wanted is None:
        return "its padding is not given in numbers"
    axes = range(W.ndim - 2)
    ones, zeros = (1,) * len(axes), (0,) * len(axes)
    dilation, stride = g.attribute(node, "dilations", ones), g.attribute(node, "strides", ones)
    pads, extra = g.attribute(node, "pads", zeros * 2), g.attribute(node, "output_padding", zeros)
    size = tuple(int(d) for d in shape[2:] if d is not None)
    reach = tuple((W.shape[2 + i] - 1) * dilation[i] + 1 for i in axes)
    if wanted is not None:
        pads = _pads_for(node, wanted[-len(axes) :], size, reach)
    output = tuple(
        (size[i] - 1) * stride[i] + reach[i] + extra[i] - pads[i] - pads[i + len(axes)]
        for i in axes
    )
    taps = tuple(-(-reach[i] // stride[i]) for i in axes)
    rows = tuple(max(size[i] + taps[i] - 1, -(-(pads[i] + output[i]) // stride[i])) for i in axes)
    return Geometry(size, stride, tuple(pads[: len(axes)]), output, taps, rows)


def _pads_for(
    node: ir.Node, wanted: Sequence[int], size: Sequence[int], reach: Sequence[int]
) -> tuple[int, ...]:
    """Return the pads that give an output_shape, as ONNX defines them.

    Where it is larger than what is computed, the end is padded with what sums of nothing give.
    """
    axes = range(len(size))
    ones, zeros = (1,) * len(size), (0,) * len(size)
    stride, extra = g.attribute(node, "strides", ones), g.attribute(node, "output_padding", zeros)
    total = [(size[i] - 1) * stride[i] + extra[i] + reach[i] - wanted[i] for i in axes]
    first = [t // 2 for t in total]
    if g.attribute(node, "auto_pad", "NOTSET") != "SAME_UPPER":
        first = [t - f for t, f in zip(total, first, strict=True)]
    first = [max(f, 0) for f in first]
    return (*first, *(t - f for t, f in zip(total, first, strict=True)))


def _convolve(model: ir.Model, node: ir.Node, shape: Geometry, names: g.Names) -> None:
    """Replace the node by Conv, Reshape, Transpose, Reshape, Slice."""
    old, name = node.outputs[0], g.label(node)
    W, bias = g.constant(node.inputs[1]), g.constant(g.operand(node, 2))
    assert W is not None
    groups = g.attribute(node, "group", 1)
    phases = int(np.prod(shape.stride))
    weight = _phase_weights(node, W, shape, groups)
    chain = Chain(model, names, name, node.inputs[0], (g.dims(old) or (None,))[0])
    operands = [g.add_constant(model.graph, names, f"{name}_W", weight)]
    if bias is not None:
        operands.append(g.add_constant(model.graph, names, f"{name}_B", np.repeat(bias, phases)))
    before = [t - 1 for t in shape.taps]
    after = [r - s for r, s in zip(shape.rows, shape.size, strict=True)]
    channels, axes = weight.shape[0] // phases, len(shape.size)
    chain.push(
        "Conv",
        (weight.shape[0], *shape.rows),
        operands,
        node_name=name,
        kernel_shape=shape.taps,
        pads=[*before, *after],
        group=groups,
    )
    if phases > 1:
        chain.reshape((channels, *shape.stride, *shape.rows))
        perm = [0, 1]
        for i in range(axes):
            perm += [2 + axes + i, 2 + i]
        mixed = [v for pair in zip(shape.rows, shape.stride, strict=True) for v in pair]
        chain.push("Transpose", (channels, *mixed), [], perm=perm)
        wide = tuple(r * s for r, s in zip(shape.rows, shape.stride, strict=True))
        chain.reshape((channels, *wide))
    chain.crop(shape.begin, shape.output)
    g.insert_before(node, *chain.nodes)
    g.take_over(old, chain.current)
    g.remove(node)


def _phase_weights(node: ir.Node, W: g.Array, shape: Geometry, groups: int) -> g.Array:
    """Return Conv weights [O * phases, C / groups, taps...], channels of one output together."""
    axes = W.ndim - 2
    dilation = g.attribute(node, "dilations", (1,) * axes)
    padded = [t * s for t, s in zip(shape.taps, shape.stride, strict=True)]
    dense = np.zeros((*W.shape[:2], *padded), np.float32)
    spread = [slice(0, (k - 1) * d + 1, d) for k, d in zip(W.shape[2:], dilation, strict=True)]
    dense[(slice(None), slice(None), *spread)] = W
    C, per_group = W.shape[:2]
    split = [v for pair in zip(shape.taps, shape.stride, strict=True) for v in pair]
    parts = dense.reshape(groups, C // groups, per_group, *split)
    # groups, outputs, phases..., inputs, taps...
    order = [0, 2, *(4 + 2 * i for i in range(axes)), 1, *(3 + 2 * i for i in range(axes))]
    parts = parts.transpose(order)
    outputs = groups * per_group * int(np.prod(shape.stride))
    flat: g.Array = parts.reshape(outputs, C // groups, *shape.taps)
    return np.flip(flat, axis=tuple(range(2, 2 + axes)))


class Chain:
    """Nodes in a row that are being written; shapes are known apart from the batch."""

    def __init__(
        self,
        model: ir.Model,
        names: g.Names,
        stem: str,
        source: ir.Value | None,
        batch: int | None,
    ) -> None:
        """Start behind `source`."""
        assert source is not None
        self.model, self.names, self.stem, self.batch = model, names, stem, batch
        self.current: ir.Value = source
        self.nodes: list[ir.Node] = []

    def push(
        self,
        op_type: str,
        shape: tuple[int, ...],
        operands: list[ir.Value],
        node_name: str | None = None,
        **attributes: object,
    ) -> None:
        """Add a node; `shape` is its output's without the batch."""
        output = self.names.fresh(f"{self.stem}_{op_type}")
        inputs: list[ir.Value | None] = [self.current, *operands]
        node = g.new_node(
            self.names, op_type, inputs, output, name=node_name, attributes=attributes
        )
        node.outputs[0].dtype = ir.DataType.FLOAT
        node.outputs[0].shape = ir.Shape([self.batch, *shape])
        self.nodes.append(node)
        self.current = node.outputs[0]

    def constant(self, what: str, array: g.Array) -> ir.Value:
        """Add an initializer that is named after the stem."""
        return g.add_constant(self.model.graph, self.names, f"{self.stem}_{what}", array)

    def reshape(self, shape: tuple[int, ...]) -> None:
        """Add a Reshape of everything but the batch."""
        target = np.array([self.batch or -1, *shape], np.int64)
        self.push("Reshape", shape, [self.constant("shape", target)])

    def crop(self, begin: tuple[int, ...], size: tuple[int, ...]) -> None:
        """Add a Slice of the last axes if it takes anything away."""
        shape = g.dims(self.current) or ()
        if all(b == 0 for b in begin) and tuple(shape[-len(size) :]) == size:
            return
        axes = range(len(shape) - len(size), len(shape))
        ends = [b + s for b, s in zip(begin, size, strict=True)]
        rows = {"starts": begin, "ends": ends, "axes": axes}
        values = [self.constant(k, np.array(v, np.int64)) for k, v in rows.items()]
        kept = tuple(d or 0 for d in shape[1 : -len(size)])
        self.push("Slice", (*kept, *size), values)


def _respell(model: ir.Model, node: ir.Node, names: g.Names) -> None:
    """Replace DepthToSpace or SpaceToDepth by Reshape, Transpose, Reshape."""
    old, b = node.outputs[0], g.attribute(node, "blocksize")
    batch, C, H, W = (g.dims(node.inputs[0]) or (None, 0, 0, 0))[:4]
    C, H, W = int(C or 0), int(H or 0), int(W or 0)
    chain = Chain(model, names, g.label(node), node.inputs[0], batch)
    block_first = g.attribute(node, "mode", "DCR") == "DCR"
    if node.op_type == "SpaceToDepth":
        chain.reshape((C, H // b, b, W // b, b))
        if block_first:
            chain.push("Transpose", (b, b, C, H // b, W // b), [], perm=[0, 3, 5, 1, 2, 4])
        else:  # since opset 28
            chain.push("Transpose", (C, b, b, H // b, W // b), [], perm=[0, 1, 3, 5, 2, 4])
        chain.reshape((C * b * b, H // b, W // b))
    elif block_first:
        chain.reshape((b, b, C // b**2, H, W))
        chain.push("Transpose", (C // b**2, H, b, W, b), [], perm=[0, 3, 4, 1, 5, 2])
        chain.reshape((C // b**2, H * b, W * b))
    else:
        chain.reshape((C // b**2, b, b, H, W))
        chain.push("Transpose", (C // b**2, H, b, W, b), [], perm=[0, 1, 4, 2, 5, 3])
        chain.reshape((C // b**2, H * b, W * b))
    g.insert_before(node, *chain.nodes)
    g.take_over(old, chain.current)
    g.remove(node)
