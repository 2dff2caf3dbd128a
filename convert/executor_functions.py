"""Elementwise float functions of a Plan, in the dtype of their operands.

Those that C computes with the same bits are written with comparisons, so that NaN and the sign of
zero come out alike too.
"""

from collections.abc import Callable
from math import erf as _erf_scalar
from math import pi, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Unary = Callable[[Array, Any, Any], Array]

GELU_CUBIC = 0.044715  # of the tanh form, ONNX Gelu
GELU_SLOPE = sqrt(2 / pi)


def clip(X: Array, low: Any, high: Any) -> Array:
    """Return max(low, min(X, high)); NaN stays."""
    X = np.where(low > X, low, X)
    return np.where(high < X, high, X)


def maximum(A: Array, B: Array) -> Array:
    """Return the larger; NaN where either is."""
    return np.where((A >= B) | (A != A), A, B)


def minimum(A: Array, B: Array) -> Array:
    """Return the smaller; NaN where either is."""
    return np.where((A <= B) | (A != A), A, B)


def prelu(A: Array, B: Array) -> Array:
    """Return A, or B * A where A is below 0."""
    return np.where(A < 0, A * B, A)


def sigmoid(X: Array) -> Array:
    """Return 1 / (1 + exp(-X)), from exp(-|X|) so that nothing overflows."""
    E = np.exp(-np.abs(X))
    Y: Array = np.where(X >= 0, E.dtype.type(1), E) / (1 + E)
    return Y


def softplus(X: Array) -> Array:
    """Return log(1 + exp(X))."""
    positive: Array = np.maximum(X, 0)
    tail: Array = np.log1p(np.exp(-np.abs(X)))
    return positive + tail


def elu(X: Array, alpha: Any, beta: Any = 1) -> Array:
    """Return X, or alpha * (exp(X / beta) - 1) below 0."""
    return np.where(X > 0, X, alpha * np.expm1(np.minimum(X, 0) / beta))


def erf(X: Array) -> Array:
    """Return the error function."""
    Y: Array = np.vectorize(_erf_scalar, otypes=[np.float64])(X)
    return Y.astype(X.dtype)


def gelu(X: Array) -> Array:
    """Return X * (1 + erf(X / sqrt(2))) / 2."""
    half, root = X.dtype.type(0.5), X.dtype.type(sqrt(0.5))
    Y: Array = half * X * (1 + erf(X * root))
    return Y


def gelu_tanh(X: Array) -> Array:
    """Return the tanh form of Gelu."""
    real = X.dtype.type
    inner = real(GELU_SLOPE) * (X + real(GELU_CUBIC) * X * X * X)
    Y: Array = real(0.5) * X * (1 + np.tanh(inner))
    return Y


def shrink(X: Array, lambd: Any, bias: Any) -> Array:
    """Return x + bias below -lambd, x - bias above lambd, else 0."""
    Y: Array = np.where(lambd < X, X - bias, np.where(-lambd > X, X + bias, X.dtype.type(0)))
    return Y


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": maximum,
    "min": minimum,
    "prelu": prelu,
    "pow": np.power,
    "fmod": np.fmod,
    "mod": np.mod,
}

UNARY: dict[str, Unary] = {
    "acos": lambda x, a, b: np.arccos(x),
    "acosh": lambda x, a, b: np.arccosh(x),
    "asin": lambda x, a, b: np.arcsin(x),
    "asinh": lambda x, a, b: np.arcsinh(x),
    "atan": lambda x, a, b: np.arctan(x),
    "atanh": lambda x, a, b: np.arctanh(x),
    "cos": lambda x, a, b: np.cos(x),
    "cosh": lambda x, a, b: np.cosh(x),
    "sin": lambda x, a, b: np.sin(x),
    "sinh": lambda x, a, b: np.sinh(x),
    "tan": lambda x, a, b: np.tan(x),
    "abs": lambda x, a, b: np.abs(x),
    "ceil": lambda x, a, b: np.ceil(x),
    "clip": clip,
    "elu": lambda x, a, b: elu(x, a),
    "celu": lambda x, a, b: elu(x, a, a),
    "erf": lambda x, a, b: erf(x),
    "exp": lambda x, a, b: np.exp(x),
    "floor": lambda x, a, b: np.floor(x),
    "gelu": lambda x, a, b: gelu(x),
    "gelu_tanh": lambda x, a, b: gelu_tanh(x),
    "hard_sigmoid": lambda x, a, b: clip(a * x + b, x.dtype.type(0), x.dtype.type(1)),
    "hard_swish": lambda x, a, b: x * clip(x / 6 + x.dtype.type(0.5), x.dtype.type(0), 1),
    "leaky_relu": lambda x, a, b: np.where(x < 0, a * x, x),
    "log": lambda x, a, b: np.log(x),
    "mish": lambda x, a, b: x * np.tanh(softplus(x)),
    "neg": lambda x, a, b: np.negative(x),
    "reciprocal": lambda x, a, b: 1 / x,
    "round": lambda x, a, b: np.rint(x),
    "selu": lambda x, a, b: b * elu(x, a),
    "shrink": shrink,
    "sigmoid": lambda x, a, b: sigmoid(x),
    "softplus": lambda x, a, b: softplus(x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "square": lambda x, a, b: x * x,
    "swish": lambda x, a, b: x * sigmoid(a * x),
    "tanh": lambda x, a, b: np.tanh(x),
    "thresholded_relu": lambda x, a, b: np.where(x > a, x, x.dtype.type(0)),
}
