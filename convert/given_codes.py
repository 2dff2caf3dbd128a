"""What a file has in codes already: its nodes between DequantizeLinear and QuantizeLinear.

Its scales, zero-points and weights are somebody's choice, or midge's own; they stay bit for bit.
"""

from collections.abc import Mapping

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.coverage import Coverage
from midge.convert.lower_dynamic import PRODUCTS
from midge.convert.lower_params import (
    activation_params,
    dequantizes_activation,
    is_dequantize,
    is_quantize,
    real_constant,
)
from midge.convert.select import Selection
from midge.quant.rules import Kind, rule_of
from midge.quant.scheme import QuantParams

# What keeps every element, so that the range of the output is that of the input.
REARRANGED = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity")
AS_GIVEN = "as the file has it"


def given_coverage(model: ir.Model) -> list[Coverage]:
    """Return what a file has in codes, between a DequantizeLinear and a QuantizeLinear."""
    found, inside = [], set[ir.Node]()
    for node in model.graph:
        if converts(node):
            continue
        given = [v for v in node.inputs if v is not None and not g.is_constant(v)]
        has_form = rule_of(node.op_type).kind != Kind.FLOAT or g.is_op(node, *PRODUCTS)
        if (
            has_form
            and not _has_float_weight(node)
            and all(_is_code(v) or v.producer() in inside for v in given)
        ):
            inside.add(node)
    for node in model.graph:
        if not converts(node):
            state = "quantized" if node in inside and _reaches_codes(node, inside) else "float"
            found.append(Coverage(g.label(node), g.operator(node), state, AS_GIVEN))
    return found


def given_nodes(model: ir.Model) -> dict[str, str]:
    """Return the nodes that are in codes -> why they are left alone, by name."""
    return {c.node: AS_GIVEN for c in given_coverage(model) if c.state == "quantized"}


def given_params(model: ir.Model) -> dict[str, QuantParams]:
    """Return the parameters of the float values at the border of what is in codes, by name.

    Those are what a DequantizeLinear gives, and what a QuantizeLinear reads.

    Raises:
        UnsupportedError: an activation's codes are not 8 bits with one known scale, named.
    """
    found: dict[str, QuantParams] = {}
    for node in model.graph:
        value = node.inputs[0] if is_quantize(node) else node.outputs[0]
        given = is_quantize(node) and not g.is_constant(value)
        if value is not None and (given or dequantizes_activation(value)):
            found.setdefault(g.name_of(value), activation_params(node))
    return found


def given_before_moves(
    selection: Selection, given: Mapping[str, QuantParams]
) -> tuple[dict[str, QuantParams], dict[str, str]]:
    """Pass parameters that the file gives back through what moves codes and changes none.

    Two scales in a row on one tensor would round twice, and ONNX Runtime joins them in its own way.

    Returns:
        All given parameters, and the nodes that cannot take them over -> why, by name.
    """
    found, apart = dict(given), dict[str, str]()
    for node, rule in reversed(selection.quantized.items()):
        if rule.kind != Kind.SAME_SCALE or node.inputs[0] is None:
            continue
        source, wanted = node.inputs[0], [found.get(g.name_of(v)) for v in node.outputs]
        p = next((p for p in wanted if p is not None), None)
        if p is None:
            continue
        whole = g.is_op(node, *REARRANGED) or g.sole_consumer(source) is node
        if found.get(g.name_of(source), p) == p and whole:
            found[g.name_of(source)] = p
        else:
            apart[g.label(node)] = "the file gives its output another scale than its input has"
    return found, apart


def free_biases(model: ir.Model) -> None:
    """Give a float layer the real values of a bias that the file has in codes for another layer."""
    names = g.Names(model.graph)
    for node in model.graph:
        B, rule = g.operand(node, 2), rule_of(node.op_type)
        if B is None or rule.kind != Kind.ACCUMULATE or not _has_float_weight(node):
            continue
        array = None if g.is_constant(B) else real_constant(B)
        if array is not None:
            node.replace_input_with(2, g.add_constant(model.graph, names, f"{B.name}_real", array))


def lacks_layers(selection: Selection) -> bool:
    """Tell whether nothing with weights would be quantized."""
    return all(rule.kind != Kind.ACCUMULATE for rule in selection.quantized.values())


def ranges_of(params: Mapping[str, QuantParams]) -> dict[str, tuple[float, float]]:
    """Return what codes can say at least and at most, by the name of the tensor."""
    return {
        name: (
            float(p.scale) * (p.qmin - p.zero_point),
            float(p.scale) * (p.qmax - p.zero_point),
        )
        for name, p in params.items()
    }


def converts(node: ir.Node) -> bool:
    """Tell whether a node only turns real values into codes, or codes into real values."""
    return is_quantize(node) or is_dequantize(node) or g.is_op(node, "DynamicQuantizeLinear")


def _has_float_weight(node: ir.Node) -> bool:
    layer, W = rule_of(node.op_type).kind == Kind.ACCUMULATE, g.operand(node, 1)
    return layer and g.is_float(W) and g.is_constant(W)


def _is_code(value: ir.Value) -> bool:
    """Tell whether a value is codes, dequantized or not."""
    codes = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32)
    return is_dequantize(value.producer()) or value.dtype in codes


def _reaches_codes(node: ir.Node, inside: set[ir.Node]) -> bool:
    """Tell whether a result becomes codes, directly or through nodes that a layer takes in."""
    if g.is_op(node, *PRODUCTS):
        return True
    readers = [use.node for value in node.outputs for use in value.uses()]
    codes = any(v.dtype in (ir.DataType.INT8, ir.DataType.UINT8) for v in node.outputs)
    return codes or any(
        is_quantize(r) or (r in inside and _reaches_codes(r, inside)) for r in readers
    )
