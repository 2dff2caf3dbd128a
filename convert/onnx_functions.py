"""Replaces operators that midge has no row of by the body that ONNX defines them with.

Attention becomes its two products and its Softmax, RMSNormalization its mean of squares, CastLike a
Cast; each of the nodes is then converted as if the file had held it.

Source: ONNX, the function bodies of the operator schemas.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import onnx
import onnx.defs
import onnx.inliner
import onnx.shape_inference
from onnx import helper

from midge.convert.operators import operator_table

# Operators on codes, which are read as they are, and bodies of loops, sequences or random numbers.
STAY = frozenset({"DynamicQuantizeLinear", "Range", "SequenceMap", "Bernoulli"})


def expand_functions(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    """Replace each operator that has a body and no row.

    A node whose body cannot be had (onnx knows no type of an operand) stays as it is.

    Args:
        proto: every node has a name of its own.

    Returns:
        The model, the given one where nothing is replaced, and the operators that were.
    """
    replaced, failed = list[str](), set[str]()
    while True:  # a body may hold such operators again
        names = {n.op_type for n in proto.graph.node if not n.domain and _expands(n.op_type)}
        if not names - failed:
            return proto, sorted(set(replaced))
        name = min(names - failed)
        # Bodies depend on the types of operands: those of the last body are not known yet.
        expanded = _expand(onnx.shape_inference.infer_shapes(proto, data_prop=True), name)
        if expanded is None:
            failed.add(name)
        else:
            replaced.append(name)
            proto = expanded


@cache
def _expands(op_type: str) -> bool:
    """Tell whether midge has no row of an operator that ONNX defines by others."""
    if op_type in STAY or any(row.op_type == op_type for row in operator_table()):
        return False
    try:
        schema: Any = onnx.defs.get_schema(op_type)  # its stub lacks the two flags
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _expand(proto: onnx.ModelProto, op_type: str) -> onnx.ModelProto | None:
    """Return the model without an operator, or None where some body of it cannot be had."""
    typed = onnx.ModelProto()
    typed.CopyFrom(proto)
    typed.graph.value_info.extend(_types_of_constants(proto.graph))
    opset = next(e.version for e in proto.opset_import if e.domain in ("", "ai.onnx"))
    for node in typed.graph.node:
        if node.op_type == op_type and not node.domain:
            fill_defaults(node, opset)
    try:
        made = onnx.inliner.inline_selected_functions(
            typed, [("", op_type)], inline_schema_functions=True
        )
    except RuntimeError:  # the inliner's word for a type that it does not know
        return None
    if any(n.op_type == op_type for n in made.graph.node):
        return None
    known = {v.name for v in proto.graph.value_info}
    kept = [v for v in made.graph.value_info if v.name in known]
    del made.graph.value_info[:]
    made.graph.value_info.extend(kept)
    _name_bodies(made.graph, [n for n in proto.graph.node if n.op_type == op_type])
    return made


def fill_defaults(node: onnx.NodeProto, opset: int) -> None:
    """Write out the attributes that have defaults: onnx leaves holes where a body uses them."""
    given = {a.name for a in node.attribute}
    for name, attribute in onnx.defs.get_schema(node.op_type, opset).attributes.items():
        if name not in given and attribute.default_value.type:
            node.attribute.append(attribute.default_value)


def _types_of_constants(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield the types of initializers, and of the operand left out, which the inliner asks for."""
    for tensor in graph.initializer:
        yield helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
    yield helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None)


def _name_bodies(graph: onnx.GraphProto, replaced: Sequence[onnx.NodeProto]) -> None:
    """Name the nodes of a body after the node that it stands for, in order."""
    waiting = iter(replaced)
    owner, missing, count = "", set[str](), 0
    for node in graph.node:
        if node.name:
            continue
        if not missing:
            following = next(waiting, None)
            if following is not None:
                owner, count = following.name, 0
                missing = {name for name in following.output if name}
        node.name = f"{owner}/{node.op_type}_{count}"
        count += 1
        missing -= set(node.output)
