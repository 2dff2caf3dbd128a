"""What there is to say about a model without running it: layers, shapes, MACs, parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.lower_dynamic import PRODUCTS
from midge.convert.select import select
from midge.quant.rules import COMPARED

Q, DQ, DYNAMIC = "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"
CODES = (ir.DataType.INT8, ir.DataType.UINT8)
Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One node.

    Args:
        name: of the node.
        op_type: its operator.
        shape: of its first output, None for an unknown dimension, () where nothing is known.
        macs: multiply-accumulates of one sample, 0 for operators without any.
        parameters: elements of its constant operands.
        fate: "int8", "float" or "folded": of a quantized file what it is, of a float file what
            `midge quantize` would make of it.
        reason: why, empty when there is nothing to say.
        range: real values that its quantized output can hold, None in a float file.
    """

    name: str
    op_type: str
    shape: Dims
    macs: int
    parameters: int
    fate: str
    reason: str = ""
    range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """An input or output of the graph."""

    name: str
    shape: Dims
    dtype: str


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A whole model.

    Args:
        opset: of the standard operators.
        quantized: whether anything in it is quantized.
        inputs: of the graph.
        outputs: of the graph.
        nodes: in graph order; Quantize and DequantizeLinear are left out.
    """

    opset: int
    quantized: bool
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]
    nodes: tuple[NodeSummary, ...]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample."""
        return sum(node.macs for node in self.nodes)

    @property
    def parameters(self) -> int:
        """Elements of all constant operands."""
        return sum(node.parameters for node in self.nodes)


def summarize(model: ir.Model) -> ModelSummary:
    """Describe a model; the one given is left as it is.

    Args:
        model: as read by onnx_in.read_model.
    """
    quantized = any(g.is_op(node, Q, DQ, *PRODUCTS) for node in model.graph)
    fates = {} if quantized else _fates(model)
    nodes = []
    for node in model.graph:
        if g.is_op(node, Q, DQ):
            continue
        name = g.label(node)
        fate, reason = fates.get(name, ("int8" if _is_integer(node) else "float", ""))
        nodes.append(
            NodeSummary(
                name,
                g.operator(node),
                g.dims(node.outputs[0]) or (),
                macs(node),
                _parameters(node),
                fate,
                reason,
                _range(node.outputs[0]) if quantized else None,
            )
        )
    return ModelSummary(
        model.opset_imports.get("", 0),
        quantized,
        _tensors(model.graph.inputs),
        _tensors(model.graph.outputs),
        tuple(nodes),
    )


def macs(node: ir.Node) -> int:
    """Return the multiply-accumulates of one sample, 0 where there are none or a size is unknown.

    An unknown leading dimension counts as 1. Conv: outputs times weights of one filter.
    ConvTranspose: inputs times weights of one input channel. Gemm, MatMul: outputs times depth.
    """
    weight = g.dims(g.operand(node, 1))
    if weight is None or None in weight:
        return 0
    sizes = [d or 0 for d in weight]
    if g.is_op(node, "Conv", "ConvInteger"):
        return _count(node.outputs[0]) * prod(sizes[1:])
    if g.is_op(node, "ConvTranspose"):
        return _count(node.inputs[0]) * prod(sizes[1:])
    if g.is_op(node, "Gemm"):
        return _count(node.outputs[0]) * sizes[1 if g.attribute(node, "transB", 0) else 0]
    if g.is_op(node, "MatMul", "MatMulInteger"):
        return _count(node.outputs[0]) * (sizes[-2] if len(sizes) > 1 else sizes[0])
    return 0


def _count(value: ir.Value | None) -> int:
    """Elements of one sample."""
    shape = g.dims(value)
    if not shape or None in shape[1:]:
        return 0
    return prod(d or 1 for d in shape)


def _parameters(node: ir.Node) -> int:
    total = 0
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        source = producer.inputs[0] if producer is not None and g.is_op(producer, DQ) else value
        array = g.constant(source)
        if array is not None and array.dtype != np.int64:  # those are shapes, axes and indices
            total += array.size
    return total


def _is_integer(node: ir.Node) -> bool:
    """Say whether every activation comes from codes and every result becomes codes or sums."""
    if g.is_op(node, DYNAMIC, *PRODUCTS):
        return True
    inputs = [v for v in node.inputs if v is not None and not g.is_constant(v)]
    if g.is_op(node, *COMPARED):
        return all(_from_codes(value) for value in inputs)
    users = [use.node for output in node.outputs for use in output.uses()]
    return (
        bool(inputs)
        and all(_from_codes(value) for value in inputs)
        and (all(value.dtype in CODES for value in node.outputs) or bool(users))
        and all(_to_codes(user) for user in users)
    )


def _from_codes(value: ir.Value) -> bool:
    producer, follower = value.producer(), g.sole_consumer(value)
    if value.dtype in CODES or g.is_op(producer, DQ):
        return True
    return producer is not None and follower is not None and _is_epilogue(follower)


def _to_codes(user: ir.Node) -> bool:
    if g.is_op(user, Q, DQ) or user.outputs[0].dtype in CODES:
        return True
    follower = g.sole_consumer(user.outputs[0])
    return _is_epilogue(user) and follower is not None and _to_codes(follower)


def _is_epilogue(node: ir.Node) -> bool:
    """Say whether a node belongs to the layer before it: a saturation or a bias."""
    if g.is_op(node, "Relu", "Clip"):
        return True
    return g.is_op(node, "Add") and any(_is_bias(value) for value in node.inputs)


def _is_bias(value: ir.Value | None) -> bool:
    producer = value.producer() if value is not None else None
    source = producer.inputs[0] if producer is not None and g.is_op(producer, DQ) else value
    return g.is_constant(source)


def _range(value: ir.Value) -> tuple[float, float] | None:
    """Return the real values that the QuantizeLinear behind a tensor can express."""
    for use in value.uses():
        node = use.node
        if not g.is_op(node, Q):
            continue
        scale, zero = g.constant(g.operand(node, 1)), g.constant(g.operand(node, 2))
        if scale is None or scale.size != 1 or zero is None:
            return None
        low, high = (0, 255) if zero.dtype.name == "uint8" else (-128, 127)
        s, z = float(scale.item()), int(zero.item())
        return (low - z) * s, (high - z) * s
    return None


def _fates(model: ir.Model) -> dict[str, tuple[str, str]]:
    """Return what `midge quantize` would make of every node of a float model."""
    clone = model.clone()
    fates = {r.node: (r.state, r.reason) for r in canonicalize(clone) if r.state == "folded"}
    choice = select(clone, join_tables=True)
    fates |= {g.label(n): ("int8", rule.kind.value) for n, rule in choice.quantized.items()}
    fates |= {g.label(n): ("int8", f"saturation of {g.label(t)}") for n, t in choice.fused.items()}
    fates |= {g.label(n): ("int8", "compares codes") for n in choice.compared}
    fates |= {g.label(n): ("float", reason) for n, reason in choice.kept.items()}
    return fates


def _tensors(values: Sequence[ir.Value]) -> tuple[TensorSummary, ...]:
    return tuple(
        TensorSummary(
            g.name_of(v), g.dims(v) or (), v.dtype.numpy().name if v.dtype is not None else "?"
        )
        for v in values
    )
