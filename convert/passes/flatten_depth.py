"""Operators on volumes, [N, C, D, H, W], spelt with those on images.

1. MaxPool, AveragePool and LpPool are two pools: of each plane of [N, C * D, H, W], then along the
   depth of [N, C, D, H * W].
2. GlobalAveragePool and GlobalMaxPool are those of [N, C, D * H, W].
3. Conv of kd taps in depth is one Conv of images with kd planes for channels: image d holds the
   planes that the window of output plane d sees, [N * D, kd * C, H, W].

The sizes other than the batch must be known, the pads given in numbers and a Conv's weight a
constant; others stay, and so does a MaxPool whose indices are wanted.
"""

from typing import Any

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of
from midge.convert.passes.convolve_transposed import Chain

Sizes = tuple[int, ...]
Attributes = dict[str, Any]
POOLS = ("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool")
OPERATORS = (*POOLS, "Conv")


class FlattenDepth(Pass):
    """Rewrite pools and convolutions of volumes."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 to 3."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, *OPERATORS):
            sizes = _sizes(node)
            if sizes is None:
                continue
            x, y = sizes
            old = node.outputs[0]
            chain = Chain(model, names, g.label(node), node.inputs[0], (g.dims(old) or (None,))[0])
            if node.op_type == "Conv":
                _convolve(node, chain, x, y)
            elif node.op_type.startswith("Global"):
                chain.reshape((x[0], x[1] * x[2], x[3]))
                chain.push(node.op_type, (x[0], 1, 1), [], node_name=g.label(node))
                chain.reshape(y)
            else:
                _pool(node, chain, x, y)
            g.insert_before(node, *chain.nodes)
            g.take_over(old, chain.current)
            g.remove(node)
            result.modified = True
        return result


def _sizes(node: ir.Node) -> tuple[Sizes, Sizes] | None:
    """Return the shapes of input and output without the batch, None for a node that stays."""
    shapes = [g.dims(v) for v in (node.inputs[0], node.outputs[0])]
    if any(s is None or len(s) != 5 or None in s[1:] for s in shapes):
        return None
    if len(node.outputs) > 1 or g.attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    if node.op_type == "Conv" and g.constant(node.inputs[1]) is None:
        return None
    x, y = (tuple(int(d or 0) for d in s[1:]) for s in shapes if s is not None)
    return x, y


def _windows(node: ir.Node, kernel: Sizes) -> tuple[Attributes, Attributes]:
    """Return what a node slides along depth alone, and over planes, as attributes."""
    ones = (1,) * 3
    pads = g.attribute(node, "pads", (0,) * 6)
    strides, dilations = (g.attribute(node, k, ones) for k in ("strides", "dilations"))
    parts: list[Attributes] = [
        {
            "kernel_shape": kernel[part],
            "strides": strides[part],
            "dilations": dilations[part],
            "pads": (*pads[:3][part], *pads[3:][part]),
        }
        for part in (slice(0, 1), slice(1, 3))
    ]
    return parts[0], parts[1]


def _pool(node: ir.Node, chain: Chain, x: Sizes, y: Sizes) -> None:
    """Pool the planes, then along depth."""
    C, D, H, W = x
    depth, plane = _windows(node, g.attribute(node, "kernel_shape"))
    same = {k: g.attribute(node, k) for k in ("ceil_mode", "count_include_pad", "p")}
    same = {k: v for k, v in same.items() if v is not None}
    if "dilations" not in node.attributes:  # AveragePool has none before opset 19
        del depth["dilations"], plane["dilations"]
    chain.reshape((C * D, H, W))
    chain.push(node.op_type, (C * D, *y[2:]), [], node_name=g.label(node), **plane, **same)
    chain.reshape((C, D, y[2] * y[3]))
    # Along one of two axes: the other's window is one element.
    column: Attributes = {k: (*v, 1) for k, v in depth.items() if k != "pads"}
    column["pads"] = (depth["pads"][0], 0, depth["pads"][1], 0)
    chain.push(node.op_type, (C, y[1], y[2] * y[3]), [], **column, **same)
    chain.reshape(y)


def _convolve(node: ir.Node, chain: Chain, x: Sizes, y: Sizes) -> None:
    """Gather the planes of every window, convolve them, and lay the results into volumes."""
    W = g.constant(node.inputs[1])
    assert W is not None
    depth, plane = _windows(node, W.shape[2:])
    groups, batch = g.attribute(node, "group", 1), chain.batch
    channels = _gather(chain, depth, x, y[1], groups)
    chain.push("Transpose", (y[1], channels, *x[2:]), [], perm=[0, 2, 1, 3, 4])
    chain.batch = None if batch is None else batch * y[1]
    chain.reshape((channels, *x[2:]))
    kernel = W.transpose(0, 2, 1, 3, 4).reshape(len(W), channels // groups, *W.shape[3:])
    operands = [chain.constant("W", kernel), *(v for v in node.inputs[2:] if v is not None)]
    name = g.label(node)
    chain.push("Conv", (len(W), *y[2:]), operands, node_name=name, group=groups, **plane)
    chain.batch = batch
    chain.reshape((y[1], len(W), *y[2:]))
    chain.push("Transpose", y, [], perm=[0, 2, 1, 3, 4])


def _gather(chain: Chain, depth: Attributes, x: Sizes, count: int, groups: int) -> int:
    """Put the planes of window d side by side as channels of plane d; return how many there are."""
    C, D, H, W = x
    taps, step, spacing = (depth[k][0] for k in ("kernel_shape", "strides", "dilations"))
    if any(depth["pads"]):
        first, last = depth["pads"]
        D += first + last
        pads = chain.constant("pads", np.array([0, 0, first, 0, 0, 0, 0, last, 0, 0]))
        chain.push("Pad", (C, D, H, W), [pads])
    volume, parts = chain.current, []
    for tap in range(taps):
        chain.current = volume
        last = tap * spacing + (count - 1) * step + 1
        bounds = (("starts", tap * spacing), ("ends", last), ("axes", 2), ("steps", step))
        if (tap * spacing, last, step) != (0, D, 1):
            values = [chain.constant(k, np.array([v])) for k, v in bounds]
            chain.push("Slice", (C, count, H, W), values)
        if groups > 1:  # each group's channels stay together
            chain.reshape((groups, C // groups, count * H * W))
        parts.append(chain.current)
    chain.current = parts[0]
    if taps > 1:
        inner = (groups, taps * C // groups, count * H * W)
        shape = inner if groups > 1 else (taps * C, count, H, W)
        chain.push("Concat", shape, parts[1:], axis=2 if groups > 1 else 1)
    if groups > 1:
        chain.reshape((taps * C, count, H, W))
    return int(taps * C)
