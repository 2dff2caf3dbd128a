"""Elementwise functions in float64, from which training and the converter make the same tables.

Tables are keyed by ONNX operator; a function takes an array, or a number, for each input.
"""

from collections.abc import Callable, Mapping
from math import erf as _erf
from typing import Any

import numpy as np

Array = Any
Function = Callable[..., Array]


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives 0, as it should
        return 1 / (1 + np.exp(-x))


def erf(x: Array) -> Array:
    """Return the error function."""
    return np.vectorize(_erf, otypes=[np.float64])(x)


def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return np.maximum(x, 0)


def clip(x: Array, low: float | None, high: float | None) -> Array:
    """Return x between two limits; None stands for no limit."""
    return np.clip(x, -np.inf if low is None else low, np.inf if high is None else high)


UNARY: dict[str, Function] = {
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
    "Erf": erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Round": np.rint,
    "Sigmoid": sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}
BINARY: dict[str, Function] = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
}
# What gives truths or takes them; only inside of a larger function.
TRUTHS: dict[str, Function] = {
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
}

_BY_ONNX = UNARY | BINARY | TRUTHS


def traced_function(onnx: str, attributes: Mapping[str, Any]) -> Function | None:
    """Return what a traced operator computes element by element, or None where it mixes elements.

    Args:
        onnx: name of the ONNX operator that its OpSpec states.
        attributes: as traced.
    """
    if onnx == "Relu":
        return relu
    if onnx == "Clip":
        # The file states the limits in float32.
        ends = (attributes["min"], attributes["max"])
        low, high = (None if v is None else float(np.float32(v)) for v in ends)
        return lambda x: clip(x, low, high)
    return None if attributes else _BY_ONNX.get(onnx)
