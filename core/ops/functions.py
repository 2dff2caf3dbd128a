"""Functions of one number beyond arithmetic: trigonometric, hyperbolic, rounding and erf."""

from collections.abc import Callable
from math import erf as erf_of
from math import pi, sqrt
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, xp_of
from midge.core.ops.elementwise import exp, quiet
from midge.core.ops.elementwise import sqrt as root
from midge.core.ops.operands import as_tensor, floating, pair
from midge.core.ops.samples import binary, distinct, positive, unary
from midge.core.opspec import Gradients, OpSpec, apply, register
from midge.core.tensor import Tensor

# erf(x) / x on |x| < NEAR, in x ** 2, and erf(x) on NEAR <= |x| < FAR; it is 1 beyond, in float64.
NEAR, FAR = 2.0, 6.0


def _even(u: Array) -> Array:
    """Return erf(x) / x for x = sqrt(u) > 0."""
    x = np.sqrt(u)
    return np.array([erf_of(v) / v for v in x])


def _odd(x: Array) -> Array:
    return np.array([erf_of(v) for v in x])


def _fit(function: Callable[[Array], Array], low: float, high: float, degree: int) -> Array:
    """Return the Chebyshev coefficients of a function on [low, high]."""

    def scaled(t: Array) -> Array:
        return function((low + high) / 2 + t * ((high - low) / 2))

    return np.polynomial.chebyshev.chebinterpolate(scaled, degree)


_ERF_NEAR, _ERF_FAR = _fit(_even, 0, NEAR**2, 24), _fit(_odd, NEAR, FAR, 40)


def _chebyshev(coefficients: Array, t: Array) -> Array:
    """Return sum c_k T_k(t), t in [-1, 1].

    Source: Clenshaw, "A note on the summation of Chebyshev series", 1955.
    """
    later, last = t * 0, t * 0
    for c in coefficients[:0:-1].tolist():
        later, last = 2 * t * later - last + c, later
    return t * later - last + float(coefficients[0])


@quiet
def _erf(ctx: Node, x: Array) -> Array:
    """Return erf(x); the fit keeps 2e-14 of it."""
    ctx.save(0)
    xp = xp_of(x)
    wide = x.astype(np.float64)
    size = xp.abs(wide)
    near = wide * _chebyshev(_ERF_NEAR, xp.minimum(size, NEAR) ** 2 * (2 / NEAR**2) - 1)
    middle = xp.clip(size, NEAR, FAR) - (NEAR + FAR) / 2
    far = xp.sign(wide) * _chebyshev(_ERF_FAR, middle * (2 / (FAR - NEAR)))
    return xp.where(size < NEAR, near, far).astype(x.dtype)


def _erf_backward(ctx: Node, grad: Tensor) -> Gradients:
    (x,) = ctx.saved_tensors
    return grad * (exp(-x * x) * (2 / sqrt(pi)))


def _forward(name: str) -> Callable[..., Array]:
    """Return the forward of a function that the array module has under this name."""

    @quiet
    def forward(ctx: Node, x: Array) -> Array:
        ctx.save(0)
        y: Array = getattr(xp_of(x), name)(x)
        return y

    return forward


def _backward(derivative: Callable[[Tensor], Any]) -> Callable[..., Gradients]:
    """Return the backward of a function with this derivative."""

    def backward(ctx: Node, grad: Tensor) -> Gradients:
        result: Gradients = grad * derivative(ctx.saved_tensors[0])
        return result

    return backward


def _within(low: float, high: float) -> Callable[..., Any]:
    """Return samples between two numbers."""
    return unary(lambda rng, *shape: rng.uniform(low, high, shape))


def _function(
    name: str, onnx: str, array: str, derivative: Callable[[Tensor], Any], samples: Any
) -> OpSpec:
    """Register a function: OpSpec name, ONNX name, name in the array module."""
    return register(OpSpec(name, onnx, _forward(array), _backward(derivative), samples))


def _remainder(name: str) -> Callable[..., Array]:
    """Return the forward of a remainder: fmod has the sign of a, mod that of b."""

    @quiet
    def forward(ctx: Node, a: Array, b: Array) -> Array:
        ctx.save(0, 1, ~0)
        y: Array = getattr(xp_of(a, b), name)(a, b)
        return y

    return forward


def _remainder_backward(ctx: Node, grad: Tensor) -> Gradients:
    """Return the gradients of a - quotient * b: the quotient is flat between its steps."""
    a, b, y = (t.array for t in ctx.saved_tensors)
    right = None
    if ctx.needs_input_grad[1]:
        right = -grad * Tensor(_quotient(a, b, y))
    return grad, right


@quiet
def _quotient(a: Array, b: Array, y: Array) -> Array:
    """Return the whole number for which a = quotient * b + y."""
    return xp_of(a, b).rint((a - y) / b)


ERF = register(OpSpec("erf", "Erf", _erf, _erf_backward, unary()))
SIN = _function("sin", "Sin", "sin", lambda x: cos(x), unary())
COS = _function("cos", "Cos", "cos", lambda x: -sin(x), unary())
TAN = _function("tan", "Tan", "tan", lambda x: 1 + tan(x) ** 2, _within(-1, 1))
ASIN = _function("asin", "Asin", "arcsin", lambda x: 1 / root(1 - x * x), _within(-0.8, 0.8))
ACOS = _function("acos", "Acos", "arccos", lambda x: -1 / root(1 - x * x), _within(-0.8, 0.8))
ATAN = _function("atan", "Atan", "arctan", lambda x: 1 / (1 + x * x), unary())
SINH = _function("sinh", "Sinh", "sinh", lambda x: cosh(x), _within(-2, 2))
COSH = _function("cosh", "Cosh", "cosh", lambda x: sinh(x), _within(-2, 2))
ASINH = _function("asinh", "Asinh", "arcsinh", lambda x: 1 / root(x * x + 1), unary())
ACOSH = _function("acosh", "Acosh", "arccosh", lambda x: 1 / root(x * x - 1), _within(1.5, 3))
ATANH = _function("atanh", "Atanh", "arctanh", lambda x: 1 / (1 - x * x), _within(-0.8, 0.8))
FLOOR = _function("floor", "Floor", "floor", lambda x: 0, unary())
CEIL = _function("ceil", "Ceil", "ceil", lambda x: 0, unary())
ROUND = _function("round", "Round", "rint", lambda x: 0, unary())
FMOD = register(
    OpSpec("fmod", "Mod", _remainder("fmod"), _remainder_backward, binary(distinct, positive))
)
REMAINDER = register(
    OpSpec("remainder", "", _remainder("mod"), _remainder_backward, binary(distinct, positive))
)


def erf(x: Any) -> Tensor:
    """Return 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""
    return apply(ERF, (floating(x),))


def sin(x: Any) -> Tensor:
    """Return the sine of x in radians."""
    return apply(SIN, (floating(x),))


def cos(x: Any) -> Tensor:
    """Return the cosine of x in radians."""
    return apply(COS, (floating(x),))


def tan(x: Any) -> Tensor:
    """Return the tangent of x in radians."""
    return apply(TAN, (floating(x),))


def asin(x: Any) -> Tensor:
    """Return the angle in radians whose sine is x."""
    return apply(ASIN, (floating(x),))


def acos(x: Any) -> Tensor:
    """Return the angle in radians whose cosine is x."""
    return apply(ACOS, (floating(x),))


def atan(x: Any) -> Tensor:
    """Return the angle in radians whose tangent is x."""
    return apply(ATAN, (floating(x),))


def sinh(x: Any) -> Tensor:
    """Return the hyperbolic sine."""
    return apply(SINH, (floating(x),))


def cosh(x: Any) -> Tensor:
    """Return the hyperbolic cosine."""
    return apply(COSH, (floating(x),))


def asinh(x: Any) -> Tensor:
    """Return the number whose hyperbolic sine is x."""
    return apply(ASINH, (floating(x),))


def acosh(x: Any) -> Tensor:
    """Return the number >= 0 whose hyperbolic cosine is x."""
    return apply(ACOSH, (floating(x),))


def atanh(x: Any) -> Tensor:
    """Return the number whose hyperbolic tangent is x."""
    return apply(ATANH, (floating(x),))


def floor(x: Any) -> Tensor:
    """Return the largest integer <= x, in x's dtype; the gradient is 0."""
    return apply(FLOOR, (as_tensor(x),))


def ceil(x: Any) -> Tensor:
    """Return the smallest integer >= x, in x's dtype; the gradient is 0."""
    return apply(CEIL, (as_tensor(x),))


def round(x: Any) -> Tensor:
    """Return the nearest integer, ties to even, in x's dtype; the gradient is 0."""
    return apply(ROUND, (as_tensor(x),))


def fmod(a: Any, b: Any) -> Tensor:
    """Return a - b * trunc(a / b)."""
    return apply(FMOD, pair(a, b))


def remainder(a: Any, b: Any) -> Tensor:
    """Return a - b * floor(a / b)."""
    return apply(REMAINDER, pair(a, b))
