"""Functions of one quantized tensor, found in the graph and evaluated in float64 for a table.

x * Sigmoid(x), x * HardSigmoid(x), chains with scalar constants: whatever depends on the codes of
one tensor only, element by element, is one table.
"""

from collections.abc import Callable
from math import erf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_params import dequantizes_constant, real_constant
from midge.convert.lower_program import Stored
from midge.quant.functions import sigmoid
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
    # A bound of codes could be codes too, but as part of the function it costs no table.
    stored = None if g.is_op(node, "Relu") else low.natural(value)
    if stored is not None:
        return stored, lambda x: x
    if node is None or len(node.outputs) != 1 or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in BINARY:
        return _binary(low, node)
    make = UNARY.get(node.op_type)
    source = g.operand(node, 0)
    inner = unary(low, source) if make is not None and source is not None else None
    if make is None or inner is None:
        return None
    outer, before = make(node), inner[1]
    return inner[0], lambda x: outer(before(x))


def _binary(low: "Lowering", node: ir.Node) -> tuple[Stored, Function] | None:
    """Combine two functions of one tensor, or one with a scalar constant."""
    combine = BINARY[node.op_type]
    if node.op_type in ("Add", "Mul") and all(low.natural(v) for v in node.inputs if v):
        return None  # dequantized codes on both sides: an integer formula
    parts: list[tuple[Stored | None, Function]] = []
    for value in node.inputs:
        constant = real_constant(value)
        if constant is not None:
            # So have dequantized constants.
            if constant.size != 1 or (
                dequantizes_constant(value) is not None and node.op_type in ("Add", "Mul")
            ):
                return None
            parts.append((None, _always(float(constant.reshape(-1)[0]))))
            continue
        found = None if value is None else unary(low, value)
        if found is None:
            return None
        parts.append(found)
    (a, f), (b, h) = parts
    stored = a or b
    if stored is None or (a is not None and b is not None and not _same_codes(a, b)):
        return None
    return stored, lambda x: combine(f(x), h(x))


def _always(value: float) -> Function:
    return lambda x: np.full_like(x, value)


def _same_codes(a: Stored, b: Stored) -> bool:
    return a == b


def _hard_sigmoid(alpha: float, beta: float) -> Function:
    return lambda x: np.clip(alpha * x + beta, 0, 1)


def _erf(x: Array) -> Array:
    y: Array = np.vectorize(erf, otypes=[np.float64])(x)
    return y


def _gelu(node: ir.Node) -> Function:
    if g.attribute(node, "approximate", "none") == "tanh":
        return lambda x: 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return lambda x: 0.5 * x * (1 + _erf(x / sqrt(2)))


def _softplus(x: Array) -> Array:
    y: Array = np.logaddexp(x, 0)
    return y


def _elu(x: Array, alpha: float, gamma: float = 1.0, scale: float = 1.0) -> Array:
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / scale))


def _real(node: ir.Node, name: str, default: float) -> float:
    return float(g.attribute(node, name, default))


def _bounds(node: ir.Node) -> Function:
    low, high = (g.scalar(g.operand(node, i)) for i in (1, 2))
    return lambda x: np.clip(x, -np.inf if low is None else low, np.inf if high is None else high)


UNARY: dict[str, Callable[[ir.Node], Function]] = {
    "Abs": lambda node: np.abs,
    "Celu": lambda node: (
        lambda x: _elu(x, _real(node, "alpha", 1.0), scale=_real(node, "alpha", 1.0))
    ),
    "Clip": _bounds,
    "Elu": lambda node: lambda x: _elu(x, _real(node, "alpha", 1.0)),
    "Erf": lambda node: _erf,
    "Gelu": _gelu,
    "HardSigmoid": lambda node: _hard_sigmoid(_real(node, "alpha", 0.2), _real(node, "beta", 0.5)),
    "HardSwish": lambda node: lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "LeakyRelu": lambda node: lambda x: np.where(x < 0, _real(node, "alpha", 0.01) * x, x),
    "Mish": lambda node: lambda x: x * np.tanh(_softplus(x)),
    "Neg": lambda node: np.negative,
    "Relu": lambda node: lambda x: np.maximum(x, 0),
    "Selu": lambda node: (
        lambda x: _elu(
            x,
            _real(node, "alpha", 1.67326319217681884765625),
            gamma=_real(node, "gamma", 1.05070102214813232421875),
        )
    ),
    "Sigmoid": lambda node: sigmoid,
    "Softplus": lambda node: _softplus,
    "Softsign": lambda node: lambda x: x / (1 + np.abs(x)),
    "Swish": lambda node: lambda x: x * sigmoid(_real(node, "alpha", 1.0) * x),
    "Tanh": lambda node: np.tanh,
    "ThresholdedRelu": lambda node: lambda x: np.where(x > _real(node, "alpha", 1.0), x, 0),
}

BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Sub": np.subtract,
}
