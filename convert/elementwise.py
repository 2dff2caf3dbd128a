"""Elementwise operators as functions of float64 arrays, from which tables are made.

FUNCTIONS has a row per operator: node -> f, where f takes an array for each of `operands(node)`, or
a number for one that is a constant of one element.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.quant import functions

Array = g.Array
Function = Callable[..., Array]
Row = Callable[[ir.Node], Function]


def _hard_sigmoid(alpha: float, beta: float) -> Function:
    return lambda x: np.clip(alpha * x + beta, 0, 1)


def _gelu(node: ir.Node) -> Function:
    if g.attribute(node, "approximate", "none") == "tanh":
        return lambda x: 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return lambda x: 0.5 * x * (1 + functions.erf(x / sqrt(2)))


def _softplus(x: Array) -> Array:
    y: Array = np.logaddexp(x, 0)
    return y


def _elu(x: Array, alpha: float, gamma: float = 1.0, scale: float = 1.0) -> Array:
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / scale))


def _real(node: ir.Node, name: str, default: float) -> float:
    return float(g.attribute(node, name, default))


def _bounds(node: ir.Node) -> Function:
    low, high = (g.scalar(g.operand(node, i)) for i in (1, 2))
    return lambda x: functions.clip(x, low, high)


def _shrink(node: ir.Node) -> Function:
    lambd, bias = _real(node, "lambd", 0.5), _real(node, "bias", 0.0)
    return lambda x: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def _plain(function: Any) -> Row:
    """Return the row of an operator without attributes."""
    return lambda node: function


UNARY: dict[str, Row] = {
    **{name: _plain(function) for name, function in functions.UNARY.items()},
    "Celu": lambda node: (
        lambda x: _elu(x, _real(node, "alpha", 1.0), scale=_real(node, "alpha", 1.0))
    ),
    "Clip": _bounds,
    "Elu": lambda node: lambda x: _elu(x, _real(node, "alpha", 1.0)),
    "Gelu": _gelu,
    "HardSigmoid": lambda node: _hard_sigmoid(_real(node, "alpha", 0.2), _real(node, "beta", 0.5)),
    "HardSwish": lambda node: lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "LeakyRelu": lambda node: lambda x: np.where(x < 0, _real(node, "alpha", 0.01) * x, x),
    "Mish": lambda node: lambda x: x * np.tanh(_softplus(x)),
    "Reciprocal": _plain(np.reciprocal),
    "Relu": _plain(functions.relu),
    "Selu": lambda node: (
        lambda x: _elu(
            x,
            _real(node, "alpha", 1.67326319217681884765625),
            gamma=_real(node, "gamma", 1.05070102214813232421875),
        )
    ),
    "Softplus": _plain(_softplus),
    "Softsign": lambda node: lambda x: x / (1 + np.abs(x)),
    "Shrink": _shrink,
    "Swish": lambda node: lambda x: x * functions.sigmoid(_real(node, "alpha", 1.0) * x),
    "ThresholdedRelu": lambda node: lambda x: np.where(x > _real(node, "alpha", 1.0), x, 0),
}

# With a constant of one element, or of functions of the same tensor.
BINARY: dict[str, Row] = {
    **{name: _plain(function) for name, function in functions.BINARY.items()},
    "PRelu": _plain(lambda x, slope: np.where(x < 0, slope * x, x)),
}
TRUTHS: dict[str, Row] = {name: _plain(function) for name, function in functions.TRUTHS.items()}
FUNCTIONS = {**UNARY, **BINARY, **TRUTHS}


def operands(node: ir.Node) -> list[ir.Value]:
    """Return what the function of a node is one of: the first input alone for a unary operator."""
    given = node.inputs[:1] if node.op_type in UNARY else node.inputs
    return [value for value in given if value is not None]


def function_of(node: ir.Node) -> Function | None:
    """Return what a node computes element by element, or None where that is no such function."""
    row = FUNCTIONS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if row is None or len(node.outputs) != 1:
        return None
    if node.op_type in ("Max", "Min") and len(node.inputs) != 2:
        return None
    return row(node)
