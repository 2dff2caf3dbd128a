"""Elementwise operators as functions of float64 arrays, from which tables are made.

FUNCTIONS has a row per operator: node -> f, where f takes an array for each of `operands(node)`, or
a number for one that is a constant of one element.
"""

from collections.abc import Callable
from math import erf, sqrt
from typing import Any

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.quant.functions import sigmoid

Array = g.Array
Function = Callable[..., Array]
Row = Callable[[ir.Node], Function]


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


def _shrink(node: ir.Node) -> Function:
    lambd, bias = _real(node, "lambd", 0.5), _real(node, "bias", 0.0)
    return lambda x: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def _plain(function: Any) -> Row:
    """Return the row of an operator without attributes."""
    return lambda node: function


UNARY: dict[str, Row] = {
    **{
        name: _plain(function)
        for name, function in {
            "Abs": np.abs,
            "Acos": np.arccos,
            "Acosh": np.arccosh,
            "Asin": np.arcsin,
            "Asinh": np.arcsinh,
            "Atan": np.arctan,
            "Atanh": np.arctanh,
            "Ceil": np.ceil,
            "Cos": np.cos,
            "Cosh": np.cosh,
            "Erf": _erf,
            "Exp": np.exp,
            "Floor": np.floor,
            "Log": np.log,
            "Neg": np.negative,
            "Reciprocal": np.reciprocal,
            "Round": np.rint,
            "Sigmoid": sigmoid,
            "Sign": np.sign,
            "Sin": np.sin,
            "Sinh": np.sinh,
            "Softplus": _softplus,
            "Sqrt": np.sqrt,
            "Tan": np.tan,
            "Tanh": np.tanh,
        }.items()
    },
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
    "Relu": lambda node: lambda x: np.maximum(x, 0),
    "Selu": lambda node: (
        lambda x: _elu(
            x,
            _real(node, "alpha", 1.67326319217681884765625),
            gamma=_real(node, "gamma", 1.05070102214813232421875),
        )
    ),
    "Softsign": lambda node: lambda x: x / (1 + np.abs(x)),
    "Shrink": _shrink,
    "Swish": lambda node: lambda x: x * sigmoid(_real(node, "alpha", 1.0) * x),
    "ThresholdedRelu": lambda node: lambda x: np.where(x > _real(node, "alpha", 1.0), x, 0),
}

# With a constant of one element, or of functions of the same tensor.
BINARY: dict[str, Row] = {
    name: _plain(function)
    for name, function in {
        "Add": np.add,
        "Div": np.divide,
        "Max": np.maximum,
        "Min": np.minimum,
        "Mul": np.multiply,
        "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
        "Pow": np.power,
        "Sub": np.subtract,
    }.items()
}
# What gives truths or takes them; only inside of a larger function.
TRUTHS: dict[str, Row] = {
    name: _plain(function)
    for name, function in {
        "And": np.logical_and,
        "Equal": np.equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Not": np.logical_not,
        "Or": np.logical_or,
        "Where": np.where,
        "Xor": np.logical_xor,
    }.items()
}
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
