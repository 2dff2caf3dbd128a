"""Which nodes are quantized, which stay in float, and why.

1. A node is quantized by its rule (quant/rules.py) unless the user excludes it or an operand
   forbids it.
2. Convolutions and products are quantized wherever they stand.
3. Elementwise operators, pools and the like are quantized where an input is: between two operators
   that stay in float, two conversions would only cost accuracy.
4. Operators that move codes are quantized where their input is, which changes no value, or where
   what they feed is.
5. A function of one tensor in several nodes is one table (one_table.py).
6. Relu or Clip behind a quantized layer that nothing else reads becomes that layer's saturation.
7. ArgMax and ArgMin of a quantized value compare its codes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_params import dequantizes_activation
from midge.convert.lower_prelu import channel_slopes
from midge.convert.normalizations import normalizing
from midge.convert.one_table import OneTable, find_tables, tables_of_nodes
from midge.convert.passes.canonical_activations import limits
from midge.convert.passes.fold_pads import pad_value
from midge.core.errors import InputError, did_you_mean
from midge.quant.rules import COMPARED, Kind, Rule, rule_of

FUSABLE = (Kind.ACCUMULATE, Kind.ADD, Kind.MULTIPLY, Kind.AVERAGE, Kind.SUM)
NORMALIZES = "it normalizes in float"
TABLE = Rule(Kind.TABLE)  # of the nodes of a function of one tensor


@dataclass(slots=True)
class Selection:
    """The choice for one graph.

    Args:
        quantized: node -> its rule, in graph order; fused nodes are not among them.
        fused: Relu or Clip -> the quantized node whose saturation it becomes.
        kept: node -> why it stays in float.
        tables: last node of a function of one tensor -> the function; it is among `quantized`.
        inner: node within such a function -> its last node.
        compared: nodes that only ask for the order of codes: no real value is computed for them.
    """

    quantized: dict[ir.Node, Rule] = field(default_factory=dict)
    fused: dict[ir.Node, ir.Node] = field(default_factory=dict)
    kept: dict[ir.Node, str] = field(default_factory=dict)
    compared: list[ir.Node] = field(default_factory=list)
    tables: dict[ir.Node, OneTable] = field(default_factory=dict)
    inner: dict[ir.Node, ir.Node] = field(default_factory=dict)

    def add(self, node: ir.Node, rule: Rule, table: OneTable | None = None) -> None:
        """Quantize a node by a rule, or as part of a table."""
        end = node if table is None else table.nodes[-1]
        if node is not end:
            self.inner[node] = end
            return
        self.quantized[node] = rule
        if table is not None:
            self.tables[node] = table

    def carrier(self, node: ir.Node) -> ir.Value:
        """Return the tensor that holds a node's quantized result: its Relu's where it has one."""
        follower = g.sole_consumer(node.outputs[0])
        return follower.outputs[0] if follower in self.fused else node.outputs[0]

    def operands(self, node: ir.Node) -> list[ir.Value]:
        """Return the activations that a quantized node reads as codes, constants among them."""
        if node in self.tables:
            return [self.tables[node].source]
        return operands_of(node, self.quantized[node])

    def reads_codes(self, node: ir.Node, value: ir.Value) -> bool:
        """Tell whether a node reads an activation as codes."""
        end = self.inner.get(node, node)
        return end in self.quantized and value in self.operands(end)

    def is_quantized(self, value: ir.Value) -> bool:
        """Tell whether the value is computed in codes, here or in the file as it was given."""
        producer = value.producer()
        here = producer in self.quantized or producer in self.fused
        return here or dequantizes_activation(value)

    def values(self) -> list[ir.Value]:
        """Return every tensor that gets a QuantizeLinear, in graph order, constants left out."""
        found: dict[ir.Value, None] = {}
        for node in self.quantized:
            for value in self.operands(node):
                if not g.is_constant(value):
                    found[value] = None
            for value in [self.carrier(node)] if len(node.outputs) == 1 else node.outputs:
                found[value] = None
        return list(found)


def operands_of(node: ir.Node, rule: Rule) -> list[ir.Value]:
    """Return the inputs that are activations by the rule."""
    given = node.inputs if rule.operands is None else [g.operand(node, i) for i in rule.operands]
    values = [v for v in given if v is not None]
    if node.op_type == "MatMul" and not g.is_constant(node.inputs[1]):
        values = [v for v in node.inputs if v is not None]
    return values


def select(
    model: ir.Model,
    *,
    nodes_to_exclude: Iterable[str] = (),
    op_types_to_quantize: Iterable[str] | None = None,
    refused: Mapping[str, str] | None = None,
    join_tables: bool = False,
    tables: Iterable[Iterable[str]] | None = None,
) -> Selection:
    """Choose what is quantized.

    Args:
        model: canonical float graph.
        nodes_to_exclude: names of nodes that stay in float.
        op_types_to_quantize: the only operators to quantize; None stands for all.
        refused: further nodes that stay in float -> why.
        join_tables: compute functions of one tensor by one table each, whatever their nodes.
        tables: node names of each such function, where training has chosen them.

    Raises:
        InputError: a name or an operator occurs nowhere in the model.
    """
    why = dict.fromkeys(nodes_to_exclude, "excluded by the user") | dict(refused or {})
    why |= {g.label(n): NORMALIZES for n in normalizing(model.graph) if g.label(n) not in why}
    selection, waiting = Selection(), []

    def may_join(node: ir.Node) -> bool:
        wanted = op_types_to_quantize is None or node.op_type in op_types_to_quantize
        return wanted and g.label(node) not in why

    joined = find_tables(model.graph, may_join) if join_tables else {}
    joined |= tables_of_nodes(model.graph, tables or ())
    ends = {node: end for end, table in joined.items() for node in table.nodes}
    for node in model.graph:
        table = joined.get(ends.get(node, node))
        rule = rule_of(node.op_type) if table is None else TABLE
        given = operands_of(node, rule) if table is None else [table.source]
        reason = why.get(g.label(node)) or _obstacle(node, rule, given, op_types_to_quantize)
        if reason:
            selection.kept[node] = reason
        elif rule.kind == Kind.ACCUMULATE:
            selection.quantized[node] = rule
        elif rule.kind == Kind.BOUND and _fuses(node, selection):
            layer = node.inputs[0].producer() if node.inputs[0] is not None else None
            assert layer is not None
            selection.fused[node] = layer
        elif rule.kind == Kind.SAME_SCALE and not any(map(selection.is_quantized, given)):
            waiting.append(node)
        elif any(selection.is_quantized(v) or _from_input(v, waiting) for v in given):
            selection.add(node, rule, table)
        else:
            selection.kept[node] = "every input of it is in float"
    _settle(waiting, selection)
    for node in [n for n in selection.kept if g.is_op(n, *COMPARED)]:
        value, by_rule = node.inputs[0], selection.kept[node] == rule_of(node.op_type).reason
        if by_rule and value is not None and selection.is_quantized(value):
            selection.compared.append(node)
            del selection.kept[node]
    order = {n: i for i, n in enumerate(model.graph)}
    selection.quantized = dict(sorted(selection.quantized.items(), key=lambda item: order[item[0]]))
    return selection


def check_names(
    model: ir.Model, nodes_to_exclude: Iterable[str], op_types: Iterable[str] | None
) -> None:
    """Refuse names and operators that the model, as it was read, does not have.

    Raises:
        InputError: naming the nearest.
    """
    names = [g.label(n) for n in model.graph]
    for name in nodes_to_exclude:
        if name not in names:
            raise InputError(
                f"--nodes-to-exclude: no node is called {name!r}; `midge inspect` lists them."
                f"{did_you_mean(name, names)}"
            )
    present = sorted({g.operator(n) for n in model.graph})
    for op_type in op_types or ():
        if op_type not in present:
            raise InputError(
                f"--op-types-to-quantize: the model has no {op_type!r}; it has "
                f"{', '.join(present)}.{did_you_mean(op_type, present)}"
            )


def _obstacle(
    node: ir.Node, rule: Rule, operands: list[ir.Value], op_types: Iterable[str] | None
) -> str:
    """Return why a node cannot be quantized, or nothing."""
    if node.domain not in ("", "ai.onnx"):
        return f"midge has no 8-bit form of {g.operator(node)}"
    if op_types is not None and node.op_type not in op_types:
        return "not among --op-types-to-quantize"
    if rule.kind == Kind.FLOAT:
        return rule.reason
    odd = next((v for v in operands if not g.is_float(v)), None)
    if odd is not None:
        return f"its input {odd.name!r} is not float32"
    if not operands or all(g.is_constant(v) for v in operands):
        return "it depends on constants only"
    special = SPECIAL.get(node.op_type)
    return special(node) if special is not None and rule is not TABLE else ""


def _fuses(node: ir.Node, selection: Selection) -> bool:
    source = node.inputs[0]
    layer = source.producer() if source is not None else None
    if source is None or layer is None or layer not in selection.quantized:
        return False
    fusable = selection.quantized[layer].kind in FUSABLE and g.sole_consumer(source) is node
    return fusable and limits(node) is not None


def _from_input(value: ir.Value, waiting: list[ir.Node]) -> bool:
    """Tell whether a value is a graph input, or one whose elements were only moved."""
    producer = value.producer()
    while producer is not None and producer in waiting and producer.inputs[0] is not None:
        value = producer.inputs[0]
        producer = value.producer()
    return value.is_graph_input()


def _settle(waiting: list[ir.Node], selection: Selection) -> None:
    """Quantize the moves of float tensors that feed a quantized node."""
    for node in reversed(waiting):
        readers = [u.node for v in node.outputs for u in v.uses()]
        if any(r in selection.quantized for r in readers):
            selection.quantized[node] = rule_of(node.op_type)
        else:
            selection.kept[node] = "it moves float values"


def _layer(node: ir.Node) -> str:
    """Say what keeps a Conv, ConvTranspose or Gemm in float."""
    W, B = g.constant(node.inputs[1]), g.operand(node, 2)
    if W is None:
        return "its weight is no constant"
    if W.dtype != np.float32 or not np.all(np.isfinite(W)):
        return "its weight is not finite float32"
    if B is not None and not g.is_constant(B):
        return f"its bias {B.name!r} is no constant"
    if g.attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return "its padding depends on an unknown size"
    return ""


def _elementwise(node: ir.Node) -> str:
    for value in node.inputs:
        array = g.constant(value)
        if array is not None and not np.all(np.isfinite(array)):
            return f"its constant {value.name if value else ''!r} is not finite"
    return ""


def _matmul(node: ir.Node) -> str:
    W = g.constant(node.inputs[1])
    if g.is_constant(node.inputs[0]):
        return "its first operand is a constant"
    return _elementwise(node) if W is not None else ""


def _pad(node: ir.Node) -> str:
    value = pad_value(node)
    if g.attribute(node, "mode", "constant") == "constant" and value is None:
        return "its value is computed"
    return "" if value is None or np.isfinite(value) else f"it pads with {value}"


def _resize(node: ir.Node) -> str:
    mode = g.attribute(node, "mode", "nearest")
    return "" if mode == "nearest" else f"its mode is {mode}"


def _reduction(node: ir.Node) -> str:
    axes = g.operand(node, 1)
    return "" if axes is None or g.is_constant(axes) else "its axes are computed"


def _prelu(node: ir.Node) -> str:
    return "" if channel_slopes(node) is not None else "its slopes are not one a channel"


def _average_pool(node: ir.Node) -> str:
    dilated = any(d != 1 for d in g.attribute(node, "dilations", ()))
    return "it is dilated, which the 8-bit pool of ONNX Runtime cannot be" if dilated else ""


def _one_output(node: ir.Node) -> str:
    return "" if len(node.outputs) == 1 else "its indices are wanted"


SPECIAL = {
    "Add": _elementwise,
    "AveragePool": _average_pool,
    "Clip": lambda n: "" if limits(n) is not None else "its limits are computed",
    "Conv": _layer,
    "ConvTranspose": _layer,
    "Gemm": _layer,
    "MatMul": _matmul,
    "Max": _elementwise,
    "MaxPool": _one_output,
    "Min": _elementwise,
    "Mul": _elementwise,
    "PRelu": _prelu,
    "Pad": _pad,
    "ReduceMax": _reduction,
    "ReduceMean": _reduction,
    "ReduceMin": _reduction,
    "ReduceSum": _reduction,
    "Resize": _resize,
    "Sub": _elementwise,
}
