"""Functions of one quantized tensor, found in the graph and evaluated in float64 for a table.

x * Sigmoid(x), x * HardSigmoid(x), chains with scalar constants: whatever depends on the codes of
one tensor only, element by element, is one table.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.elementwise import function_of, operands
from midge.convert.lower_pairs import PAIRS
from midge.convert.lower_params import dequantizes_constant, real_constant
from midge.convert.lower_program import Stored
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array
Function = Callable[[Array], Array]


def table_of(codes: Array, y: QuantParams) -> Array:
    """Return codes in the file's dtype, 256 in the order of the input's codes, as int8 [256]."""
    shift = y.as_dtype("int8").zero_point - y.zero_point
    return (codes.astype(np.int32) + shift).astype(np.int8)


def unary(low: "Lowering", value: ir.Value) -> tuple[Stored, Function] | None:
    """Return (tensor, f) such that the value is f of the tensor's real values, or None.

    Args:
        low: the lowering.
        value: a real value of the graph.
    """
    node = value.producer()
    if node is not None and g.is_op(node, *PAIRS) and _is_integer_formula(low, node):
        return None
    found = _unary(low, value)
    if found is None:
        return None
    with np.errstate(all="ignore"):
        results = found[1](arithmetic.reals(found[0].codes))
    return None if np.isnan(results).any() else found  # what is no number has no code


def _is_integer_formula(low: "Lowering", node: ir.Node) -> bool:
    """Tell whether both operands of a sum or product are codes."""
    return all(low.natural(v) or dequantizes_constant(v) is not None for v in operands(node))


def _unary(low: "Lowering", value: ir.Value) -> tuple[Stored, Function] | None:
    node = value.producer()
    # A bound of codes could be codes too, but as part of the function it costs no table.
    stored = None if g.is_op(node, "Relu") else low.natural(value)
    if stored is not None:
        return stored, lambda x: x
    combine = None if node is None else function_of(node)
    if node is None or combine is None:
        return None
    parts: list[Function] = []
    source: Stored | None = None
    for operand in operands(node):
        constant = real_constant(operand)
        if constant is not None:
            if constant.size != 1:
                return None
            parts.append(_always(float(constant.reshape(-1)[0])))
            continue
        found = _unary(low, operand)
        if found is None or source not in (None, found[0]):
            return None
        source = found[0]
        parts.append(found[1])
    return None if source is None else (source, lambda x: combine(*(part(x) for part in parts)))


def _always(value: float) -> Function:
    return lambda x: np.full_like(x, value)
