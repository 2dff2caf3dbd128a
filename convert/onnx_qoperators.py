"""Spells operators on codes (QLinearConv, QGemm and their kin) as DequantizeLinear, op, Quantize.

The scales and zero-points of the file stay bit for bit; ONNX Runtime joins the three nodes to the
operator that they came from.

Source: ONNX, operators QLinearConv and QLinearMatMul; ONNX Runtime, contrib operators (the domain
com.microsoft).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.defs
from onnx import helper, numpy_helper

from midge.core.errors import UnsupportedError

OPSET = 13  # of the attributes that are kept

# Operators that move codes and change none; the first input is the one that moves.
MOVES = frozenset(
    {"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather"}
    | {"Tile", "Expand", "Identity", "DepthToSpace", "SpaceToDepth"}
)
_ACTIVATIONS = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}
_PAIRS = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
LEAST_INPUTS = {  # with every scale and zero-point; those left out have 5
    **{"QLinearConv": 8, "QLinearMatMul": 8, "QLinearAdd": 8, "QLinearMul": 8},
    **{"QGemm": 6, "QLinearConcat": 5},
}
OPERATORS = frozenset(
    {"QLinearConv", "QLinearMatMul", "QGemm", "QLinearConcat", *_ACTIVATIONS, *_PAIRS}
)


def spell_out(graph: onnx.GraphProto, where: str) -> None:
    """Replace every operator on codes in place; other nodes stay as they are.

    Args:
        graph: of opset 13 or newer, its nodes in order.
        where: the file, for messages.

    Raises:
        UnsupportedError: a node has a form that has no such spelling, named.
    """
    if not any(node.op_type in OPERATORS for node in graph.node):
        return
    speller = _Speller(graph, where)
    nodes = [made for node in graph.node for made in speller.spell(node)]
    del graph.node[:]
    graph.node.extend(nodes)


@dataclass(frozen=True, slots=True)
class _Codes:
    """Names of the scale and the zero-point of a tensor of codes."""

    scale: str
    zero_point: str


@dataclass(slots=True)
class _Speller:
    """What is known of one graph so far."""

    graph: onnx.GraphProto
    where: str
    constants: dict[str, onnx.TensorProto] = field(init=False)
    taken: set[str] = field(init=False)
    codes: dict[str, _Codes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.constants = {t.name: t for t in self.graph.initializer}
        self.taken = {name for node in self.graph.node for name in (*node.input, *node.output)}
        self.taken |= {v.name for v in (*self.graph.input, *self.graph.output)}
        self.taken |= set(self.constants)

    def spell(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that stand for one."""
        if node.op_type in OPERATORS:
            yield from self._operator(node)
            return
        if node.op_type == "QuantizeLinear" and len(node.input) > 2:
            self.codes[node.output[0]] = _Codes(node.input[1], node.input[2])
        known = self.codes.get(node.input[0]) if node.input else None
        if known is None or node.op_type not in MOVES or len(node.output) != 1:
            yield node
            return
        yield from self._wrapped(node, [(0, known, None)], node.op_type, known)

    def _operator(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        names = list(node.input)
        kind = node.op_type
        least = LEAST_INPUTS.get(kind, 5)
        uneven = kind == "QLinearConcat" and len(names) % 3 != 2
        if len(names) < least or uneven or not all(names[:least]):
            raise self._fail(
                node, f"it has {len(names)} inputs, some are missing", "export the model again"
            )
        if kind == "QLinearConv":
            yield from self._layer(node, "Conv", names[:6], names[6:8], names[8:9], 0)
        elif kind == "QLinearMatMul":
            axis = len(self._constant(node, names[3]).dims) - 1 if names[3] in self.constants else 0
            yield from self._layer(node, "MatMul", names[:6], names[6:8], [], axis)
        elif kind == "QGemm":
            if len([n for n in names[7:9] if n]) != 2:
                raise self._fail(node, "its output is float", "give it y_scale and y_zero_point")
            transposed = _attribute(node, "transB", 0)
            yield from self._layer(
                node, "Gemm", names[:6], names[7:9], names[6:7], 0 if transposed else 1
            )
        elif kind == "QLinearConcat":
            groups = range(2, len(names), 3)
            parts = [(i, _Codes(names[i + 1], names[i + 2]), None) for i in groups]
            yield from self._wrapped(node, parts, "Concat", _Codes(names[0], names[1]))
        elif kind in _PAIRS:
            parts = [(i, _Codes(names[i + 1], names[i + 2]), None) for i in (0, 3)]
            yield from self._wrapped(node, parts, _PAIRS[kind], _Codes(names[6], names[7]))
        else:
            if _attribute(node, "channels_last", 0):
                raise self._fail(node, "its channels come last", "export it with channels first")
            parts = [(0, _Codes(names[1], names[2]), None)]
            yield from self._wrapped(node, parts, _ACTIVATIONS[kind], _Codes(names[3], names[4]))

    def _layer(
        self,
        node: onnx.NodeProto,
        op_type: str,
        operands: Sequence[str],
        y: Sequence[str],
        bias: Sequence[str],
        axis: int,
    ) -> Iterator[onnx.NodeProto]:
        """Yield a layer: x and w with their parameters, an int32 bias in steps of s_x * s_w."""
        parts: list[_Part] = [(0, _Codes(operands[1], operands[2]), None)]
        parts.append((3, _Codes(operands[4], operands[5]), axis))
        if bias and bias[0]:
            place = list(node.input).index(bias[0], 6)
            steps = self._bias_scale(node, operands[1], operands[4])
            parts.append((place, _Codes(steps, ""), 0))
        yield from self._wrapped(node, parts, op_type, _Codes(y[0], y[1]))

    def _bias_scale(self, node: onnx.NodeProto, x: str, w: str) -> str:
        """Add f32(alpha * s_x * s_w) as a constant and return its name."""
        scales = [numpy_helper.to_array(self._constant(node, name)) for name in (x, w)]
        product = scales[0].astype(np.float32) * scales[1].astype(np.float32)
        product = product * np.float32(_attribute(node, "alpha", 1.0))
        name = self._fresh(f"{node.output[0]}_bias_scale")
        made = product.reshape(()) if product.size == 1 else product.reshape(-1)
        self.constants[name] = numpy_helper.from_array(made, name)
        self.graph.initializer.append(self.constants[name])
        return name

    def _wrapped(
        self, node: onnx.NodeProto, parts: Sequence["_Part"], op_type: str, y: _Codes
    ) -> Iterator[onnx.NodeProto]:
        """Yield DequantizeLinear for each part, the operator on them, and QuantizeLinear."""
        inputs = []
        for index, codes, axis in parts:
            name = node.input[index]
            real = self._fresh(f"{name}_dequantized")
            given = [name, codes.scale, *([codes.zero_point] if codes.zero_point else [])]
            scale = self.constants.get(codes.scale)
            many = scale is not None and bool(scale.dims) and int(np.prod(scale.dims)) > 1
            label = self._fresh(f"{node.name or node.output[0]}_dequantize")
            dequantize = helper.make_node("DequantizeLinear", given, [real], label)
            if many and axis is not None:
                dequantize.attribute.append(helper.make_attribute("axis", axis))
            yield dequantize
            inputs.append(real)
        if op_type in MOVES:
            inputs += node.input[1:]
        result = self._fresh(f"{node.output[0]}_real")
        made = helper.make_node(op_type, inputs, [result], node.name)
        # ONNX Runtime's operators have attributes beside those of ONNX.
        known = onnx.defs.get_schema(op_type, OPSET).attributes
        made.attribute.extend(a for a in node.attribute if a.name in known)
        yield made
        self.codes[node.output[0]] = y
        label = self._fresh(f"{node.name or node.output[0]}_quantize")
        yield helper.make_node(
            "QuantizeLinear", [result, y.scale, y.zero_point], [node.output[0]], label
        )

    def _constant(self, node: onnx.NodeProto, name: str) -> onnx.TensorProto:
        if name not in self.constants:
            raise self._fail(node, f"{name!r} is no constant", "make it an initializer")
        return self.constants[name]

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _fail(self, node: onnx.NodeProto, why: str, remedy: str) -> UnsupportedError:
        label = node.name or node.output[0]
        return UnsupportedError(f"{self.where}: {label} ({node.op_type}): {why}; {remedy}.")


_Part = tuple[int, _Codes, int | None]  # input of the node, its parameters, axis of channels


def _attribute(node: onnx.NodeProto, name: str, default: int | float) -> int | float:
    found = [a for a in node.attribute if a.name == name]
    value: int | float = helper.get_attribute_value(found[0]) if found else default
    return value
