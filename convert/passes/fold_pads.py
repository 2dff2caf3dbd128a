"""Pad into the Conv or pool behind it, where the pad value is what that operator pads with.

1. Pad of 0 before Conv adds to its pads.
2. Pad of -inf, or of the smallest float32, before MaxPool adds to its pads; so does a Pad of 0
   where no value is negative (behind Relu, Sigmoid or Softmax), as every window holds at least one
   real element.
3. Pad of 0 before AveragePool adds to its pads and sets count_include_pad, unless it has pads that
   it does not count.

Only spatial axes, no negative pads, explicit `pads` (no auto_pad), no ceil_mode; a window must
reach beyond its padding. A Pad with other consumers stays for them.
"""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of

NOT_NEGATIVE = ("Relu", "Sigmoid", "Softmax", "HardSigmoid", "Exp", "Abs")
LOWEST = float(np.finfo(np.float32).min)


class FoldPads(Pass):
    """Move constant padding into convolutions and pools."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 to 3."""
        result = PassResult()
        for node in nodes_of(model, "Pad"):
            pads, value = spatial_pads(node), pad_value(node)
            if pads is None or value is None or g.attribute(node, "mode", "constant") != "constant":
                continue
            padded = node.outputs[0]
            for use in padded.uses():
                if use.idx == 0 and _fold(node, use.node, pads, value):
                    use.node.replace_input_with(0, node.inputs[0])
                    result.folded(node, f"into {g.label(use.node)}")
            if not padded.uses() and not padded.is_graph_output():
                g.remove(node)
        return result


def pad_value(node: ir.Node) -> float | None:
    """Return the number that a Pad pads with, or None where it is computed."""
    value = g.operand(node, 2)
    return 0.0 if value is None else g.scalar(value)


def spatial_pads(node: ir.Node) -> list[int] | None:
    """Return [begins..., ends...] of the spatial axes if nothing else is padded, else None."""
    pads, size = g.constant(g.operand(node, 1)), g.rank(node.inputs[0])
    if pads is None or size is None or size < 3 or bool(np.any(pads < 0)):
        return None
    axes = g.constant(g.operand(node, 3))
    if axes is None and g.operand(node, 3) is not None:
        return None
    where = list(range(size)) if axes is None else [int(a) % size for a in axes]
    full = np.zeros((2, size), np.int64)
    full[:, where] = pads.reshape(2, -1)
    return None if full[:, :2].any() else [int(p) for p in full[:, 2:].reshape(-1)]


def _fold(pad: ir.Node, node: ir.Node, pads: list[int], value: float) -> bool:
    """Add to the node's pads if that gives the same result."""
    if not g.is_op(node, "Conv", "MaxPool", "AveragePool"):
        return False
    if g.attribute(node, "auto_pad", "NOTSET") != "NOTSET" or g.attribute(node, "ceil_mode", 0):
        return False
    own = list(g.attribute(node, "pads", (0,) * len(pads)))
    total = [a + b for a, b in zip(own, pads, strict=True)]
    if node.op_type == "Conv":
        fits = value == 0
    elif any(p >= k for p, k in zip(total, g.attribute(node, "kernel_shape") * 2, strict=True)):
        return False
    elif node.op_type == "MaxPool":
        fits = value <= LOWEST or (value == 0 and _not_negative(pad.inputs[0]))
        fits = fits and len(node.outputs) == 1
    else:
        fits = value == 0 and (not any(own) or bool(g.attribute(node, "count_include_pad", 0)))
        if fits:
            node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
    if fits:
        node.attributes["pads"] = ir.AttrInt64s("pads", total)
    return fits


def _not_negative(value: ir.Value | None) -> bool:
    node = value.producer() if value is not None else None
    if node is None:
        return False
    if g.is_op(node, "Clip"):
        low = g.scalar(g.operand(node, 1))
        return low is not None and low >= 0
    return g.is_op(node, *NOT_NEGATIVE)
