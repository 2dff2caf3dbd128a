"""Decides which quantized values integer steps compute, and which are computed in float first."""

from typing import TYPE_CHECKING

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_layers import LAYERS
from midge.convert.lower_matmul import multiplies_codes
from midge.convert.lower_moves import carriers, moves_codes
from midge.convert.lower_pairs import PAIRS, pairs_codes
from midge.convert.lower_params import dequantizes_constant, real_constant
from midge.convert.lower_pools import POOLS
from midge.convert.lower_prelu import PRELU, channel_slopes
from midge.convert.lower_reductions import REDUCTIONS
from midge.convert.lower_tables import unary
from midge.convert.lower_target import limits_of

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


def in_codes(low: "Lowering", value: ir.Value) -> bool:
    """Tell whether the codes of a real value follow from codes, without a float step.

    Args:
        low: the lowering.
        value: what a QuantizeLinear reads, directly or through operators that only move or limit.
    """
    node = value.producer()
    if node is None or real_constant(value) is not None or low.natural(value) is not None:
        return True
    source = g.operand(node, 0)
    if limits_of(node) is not None and source is not None:
        return in_codes(low, source)
    if moves_codes(node):
        return all(in_codes(low, v) for v in carriers(node))
    if unary(low, value) is not None:
        return True
    if g.is_op(node, *PAIRS):
        return pairs_codes(low, node) or (node.op_type == "Add" and _adds_bias(low, node))
    if g.is_op(node, "MatMul") and multiplies_codes(low, node):
        return True
    if g.is_op(node, *LAYERS):
        return _is_natural(low, source) and dequantizes_constant(node.inputs[1]) is not None
    if g.is_op(node, *PRELU):
        return _is_natural(low, source) and channel_slopes(node) is not None
    return g.is_op(node, *POOLS, *REDUCTIONS) and _is_natural(low, source)


def _adds_bias(low: "Lowering", node: ir.Node) -> bool:
    """Tell whether an Add gives its bias to a MatMul that computes in codes."""
    a, b = node.inputs[:2]
    for value, other in ((a, b), (b, a)):
        product = None if value is None else value.producer()
        if product is not None and value is not None and g.is_op(product, "MatMul"):
            return real_constant(other) is not None and in_codes(low, value)
    return False


def _is_natural(low: "Lowering", value: ir.Value | None) -> bool:
    return value is not None and low.natural(value) is not None
