"""Batch norms, and any constant scale and shift, become part of a neighbouring layer.

A chain of affine nodes (see affine.py) with one consumer each is one y = a x + b. It goes, in
this order of preference:

1. Backward into the Conv, ConvTranspose, Gemm or MatMul that makes x, if nothing else reads x:
   W[c] = W[c] a[c], bias[c] = bias[c] a[c] + b[c]. (MatMul has no bias: only where b = 0.)
   Through a Concat along the channels it goes into all the layers that make its operands, or none.
2. Forward into every Conv, Gemm or MatMul that reads y, if each takes it exactly:
   W[o, c] = W[o, c] a[c], bias[o] += sum over c of W[o, c] b[c]. A padded Conv or a ConvTranspose
   takes a scale only: padding with 0 behind a shift is not padding with 0 before it.
3. Else, where it varies along the channels, it becomes a 1x1 depthwise Conv and says why.

A chain that is one number (x * 0.125) and fits nowhere stays, its Div spelt as Mul and its Sub as
Add. Weights are computed in float64 and written as new constants, so that a shared weight is never
scaled twice.
"""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.affine import Affine, read_affine
from midge.convert.passes.base import Pass, PassResult, nodes_of
from midge.convert.passes.layer_weights import add_bias, scale_inputs, scale_outputs
from midge.quant.rules import Kind, rule_of

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
AFFINE = ("BatchNormalization", "Mul", "Add", "Sub", "Div", "Neg")


@dataclass(frozen=True, slots=True)
class Chain:
    """Affine nodes in a row.

    Args:
        nodes: in order; all but the last have one consumer, the next.
        affine: what they compute together.
    """

    nodes: list[ir.Node]
    affine: Affine

    @property
    def output(self) -> ir.Value:
        """What the last of them makes."""
        return self.nodes[-1].outputs[0]


class FoldBatchNorm(Pass):
    """Fold constant scales and shifts into layers."""

    after = ("Constant",)
    removes = ("BatchNormalization",)
    affine: tuple[str, ...] = AFFINE  # operators that are folded

    def ensures(self, model: ir.Model) -> None:
        """No BatchNormalization is left that has constant parameters and a foldable shape."""
        for node in nodes_of(model, *self.removes):
            foldable = read_affine(node) is not None and g.rank(node.inputs[0]) in (2, 3, 4)
            assert not foldable, f"{g.label(node)} is left."

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 to 3 to every chain."""
        result, names = PassResult(), g.Names(model.graph)
        seen: set[ir.Node] = set()
        for node in nodes_of(model, *self.affine):
            if node in seen or node.graph is None:
                continue
            chain = _chain(node, self.affine)
            if chain is None:
                continue
            seen |= set(chain.nodes)
            _place(model, chain, names, result)
        return result


class FoldNormsAlone(FoldBatchNorm):
    """Fold batch norms alone: training computes other scales and shifts in codes of their own."""

    affine = ("BatchNormalization",)


def _chain(node: ir.Node, operators: tuple[str, ...]) -> Chain | None:
    """Return the longest chain that starts at the node."""
    affine = read_affine(node)
    if affine is None:
        return None
    nodes = [node]
    while True:
        after = g.sole_consumer(nodes[-1].outputs[0])
        taken = after is not None and g.is_op(after, *operators)
        step = read_affine(after) if after is not None and taken else None
        joined = affine.then(step) if step is not None else None
        if joined is None or after is None:
            return Chain(nodes, affine)
        nodes.append(after)
        affine = joined


def _place(model: ir.Model, chain: Chain, names: g.Names, result: PassResult) -> None:
    affine = chain.affine
    layer = affine.source.producer()
    parts = _parts(affine)
    reader = layer if len(parts) > 1 else chain.nodes[0]
    reasons = [why for part in parts if (why := _not_backward(part, reader))]
    if len(parts) > 1 and g.sole_consumer(affine.source) is not chain.nodes[0]:
        reasons.append("the Concat has another consumer")
    if not reasons:
        makers = [maker for part in parts if (maker := part.source.producer()) is not None]
        for part, maker in zip(parts, makers, strict=True):
            scale_outputs(model, maker, part.a, names)
            add_bias(model, maker, part.b, names)
        _finish(chain, affine.source, result, f"into {', '.join(map(g.label, makers))}")
        return
    why = reasons[0]
    readers = [u.node for u in chain.output.uses()]
    why_forward = _not_forward(chain)
    if not why_forward:
        into = ", ".join(g.label(r) for r in readers)
        for reader in readers:
            add_bias(model, reader, scale_inputs(model, reader, affine.a, affine.b, names), names)
        g.replace(chain.output, affine.source)
        for node in reversed(chain.nodes):
            g.remove(node)
            result.folded(node, f"into {into}")
        return
    reason = f"{why}; {why_forward}"
    if _wants_conv(chain, layer, readers):
        _depthwise(model, chain, names)
        _finish(chain, None, result, f"a 1x1 depthwise Conv: {reason}")
    else:
        for node in chain.nodes:
            _respell(model, node, names, result)
            result.kept(node, reason)


def _parts(affine: Affine) -> list[Affine]:
    """Return what each operand of a Concat along the channels gets, else the affine alone."""
    concat = affine.source.producer()
    if concat is None or not g.is_op(concat, "Concat"):
        return [affine]
    sizes = [g.dims(value) for value in concat.inputs]
    axis = g.attribute(concat, "axis") % (g.rank(affine.source) or 1)
    if axis != 1 or any(size is None or size[1] is None for size in sizes):
        return [affine]
    cuts = np.cumsum([size[1] for size in sizes if size is not None and size[1] is not None])
    channels = (int(cuts[-1]),)
    a, b = (np.broadcast_to(v, channels) for v in (affine.a, affine.b))
    pieces = zip(concat.inputs, np.split(a, cuts[:-1]), np.split(b, cuts[:-1]), strict=True)
    return [Affine(value, 1, *part) for value, *part in pieces if value is not None]


def _respell(model: ir.Model, node: ir.Node, names: g.Names, result: PassResult) -> None:
    """Turn x / c into x * (1 / c), and x - c into x + (-c)."""
    c = g.constant(node.inputs[1]) if g.is_op(node, "Div", "Sub") else None
    if c is None:
        return
    wide = c.astype(np.float64)
    new = 1 / wide if node.op_type == "Div" else -wide
    node.op_type = "Mul" if node.op_type == "Div" else "Add"
    stem = f"{g.label(node)}_B"
    value = g.add_constant(model.graph, names, stem, new.astype(np.float32))
    node.replace_input_with(1, value)
    result.modified = True


def _wants_conv(chain: Chain, layer: ir.Node | None, readers: list[ir.Node]) -> bool:
    """Tell whether the chain should become a Conv.

    A batch norm should if its shape allows; other chains where they stand among operators that are
    quantized, so that a LayerNorm spelt out stays in float as a whole.
    """
    is_norm = any(g.is_op(n, "BatchNormalization") for n in chain.nodes)
    size = g.rank(chain.affine.source)
    behind = chain.affine.source.is_graph_input() or (
        layer is not None and rule_of(layer.op_type).kind != Kind.FLOAT
    )
    near = behind or any(g.is_op(r, *LAYERS) for r in readers)
    return size in (2, 3, 4) if is_norm else chain.affine.axis == 1 and size in (3, 4) and near


def _not_backward(affine: Affine, reader: ir.Node | None) -> str:
    """Return why an affine cannot go into the node that makes its source, or nothing.

    Args:
        affine: of the source.
        reader: the one node that may read the source.
    """
    source = affine.source
    layer = source.producer()
    if layer is None or not g.is_op(layer, *LAYERS):
        return "no layer comes right before"
    name = g.label(layer)
    if g.sole_consumer(source) is not reader:
        return f"{name} has another consumer"
    if not g.is_constant(layer.inputs[1]):
        return f"the weight of {name} is no constant"
    if g.operand(layer, 2) is not None and not g.is_constant(layer.inputs[2]):
        return f"the bias of {name} is no constant"
    size = g.rank(source)
    channels = 1 if layer.op_type != "MatMul" else (size or 0) - 1
    if affine.axis not in (None, channels):
        return f"it varies along another axis than the channels of {name}"
    if layer.op_type == "MatMul" and affine.b.any():
        return f"{name} (MatMul) has no bias"
    return ""


def _not_forward(chain: Chain) -> str:
    """Return why the chain cannot go into the nodes that read its output, or nothing."""
    if chain.output.is_graph_output():
        return "its output is an output of the model"
    uses = list(chain.output.uses())
    if not uses:
        return "nothing reads it"
    for use in uses:
        layer, name = use.node, g.label(use.node)
        if use.idx != 0 or not g.is_op(layer, *LAYERS):
            return f"{name} ({g.operator(layer)}) reads it"
        weight, bias = g.operand(layer, 1), g.operand(layer, 2)
        if not g.is_constant(weight) or (bias is not None and not g.is_constant(bias)):
            return f"the weight or bias of {name} is no constant"
        size = g.rank(chain.output) or 0
        if chain.affine.axis not in (None, 1 if layer.op_type != "MatMul" else size - 1):
            return f"{name} sums over another axis"
        if not chain.affine.b.any():
            continue
        padded = any(g.attribute(layer, "pads", (0,)))
        if layer.op_type in ("ConvTranspose", "MatMul"):
            return f"{name} ({layer.op_type}) takes no shift"
        if padded or g.attribute(layer, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return f"{name} pads with 0, which a shift would change at the borders"
    return ""


def _finish(chain: Chain, new: ir.Value | None, result: PassResult, reason: str) -> None:
    """Let `new` stand for the chain's output, under its name, and remove the chain."""
    if new is not None:
        g.take_over(chain.output, new)
    for node in reversed(chain.nodes):
        g.remove(node)
        result.folded(node, reason)


def _depthwise(model: ir.Model, chain: Chain, names: g.Names) -> None:
    """Put a 1x1 depthwise Conv in the chain's place."""
    affine, old = chain.affine, chain.output
    channels = affine.a.size
    size = g.rank(affine.source) or 4
    spatial = 1 if size == 3 else 2
    stem = g.label(chain.nodes[-1])
    W = affine.a.astype(np.float32).reshape(channels, 1, *[1] * spatial)
    operands = [
        affine.source,
        g.add_constant(model.graph, names, f"{stem}_W", W),
        g.add_constant(model.graph, names, f"{stem}_B", affine.b.astype(np.float32)),
    ]
    settings = {"group": channels, "kernel_shape": [1] * spatial}
    conv = g.new_node(names, "Conv", [*operands], names.fresh(f"{stem}_Y"), attributes=settings)
    conv.outputs[0].dtype, conv.outputs[0].shape = ir.DataType.FLOAT, old.shape
    made = [conv]
    if size == 2:
        batch = (g.dims(affine.source) or (None,))[0]
        axes = g.add_constant(model.graph, names, f"{stem}_axes", np.array([2, 3]))
        up = g.new_node(names, "Unsqueeze", [affine.source, axes], names.fresh(f"{stem}_X"))
        down = g.new_node(
            names, "Flatten", [conv.outputs[0]], names.fresh(f"{stem}_flat"), like=old
        )
        for value in (up.outputs[0], conv.outputs[0]):
            value.dtype = ir.DataType.FLOAT
            value.shape = ir.Shape([batch, channels, 1, 1])
        conv.replace_input_with(0, up.outputs[0])
        made = [up, conv, down]
    g.insert_before(chain.nodes[-1], *made)
    g.take_over(old, made[-1].outputs[0])
