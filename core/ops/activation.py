"""Activations: relu, clip, sigmoid, tanh, softmax and log_softmax."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, xp_of
from midge.core.errors import InputError
from midge.core.ops.elementwise import exp, quiet
from midge.core.ops.operands import as_tensor, dim_index, floating
from midge.core.ops.reduce import sum as sum_
from midge.core.ops.reduce import sum_array
from midge.core.ops.samples import distinct, unary
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor


def _relu(ctx: Node, x: Array) -> Array:
    ctx.save(~0)
    return xp_of(x).maximum(x, x.dtype.type(0))


def _relu_backward(ctx: Node, grad: Tensor) -> Gradients:
    y = ctx.saved_tensors[0].array
    return grad * Tensor((y > 0).astype(grad.dtype))


def _clip(ctx: Node, x: Array, *, min: float | None, max: float | None) -> Array:
    ctx.save(0)
    return xp_of(x).clip(x, min, max).astype(x.dtype, copy=False)


def _clip_backward(ctx: Node, grad: Tensor) -> Gradients:
    """Pass the gradient inside and at the bounds."""
    x = ctx.saved_tensors[0].array
    low, high = ctx.attributes["min"], ctx.attributes["max"]
    inside = xp_of(x).ones(x.shape, bool) if low is None else x >= low
    if high is not None:
        inside = inside & (x <= high)
    return grad * Tensor(inside.astype(grad.dtype))


def _relu6_backward(ctx: Node, grad: Tensor) -> Gradients:
    """Pass the gradient strictly inside the bounds, as hardtanh and relu6 do."""
    x = ctx.saved_tensors[0].array
    inside = (x > ctx.attributes["min"]) & (x < ctx.attributes["max"])
    return grad * Tensor(inside.astype(grad.dtype))


def _clip_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for low, high in ((-0.5, 0.5), (None, 0.5), (-0.5, None)):
        yield Sample((distinct(rng, 2, 3),), {"min": low, "max": high})
    yield Sample((distinct(rng, 2, 3, 2, 2),), {"min": -1.0, "max": 1.0})


def _relu6_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((), (2, 3), (2, 3, 2, 2)):
        yield Sample((distinct(rng, *shape, gap=1.0),), {"min": 0.0, "max": 6.0})


@quiet
def _sigmoid(ctx: Node, x: Array) -> Array:
    ctx.save(~0)
    xp = xp_of(x)
    # exp of a negative number never overflows: 1 / (1 + e^-x) for x >= 0, e^x / (1 + e^x) below.
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, x.dtype.type(1), e) / (1 + e)


def _sigmoid_backward(ctx: Node, grad: Tensor) -> Gradients:
    (y,) = ctx.saved_tensors
    return grad * (y * (1 - y))


def _tanh(ctx: Node, x: Array) -> Array:
    ctx.save(~0)
    return xp_of(x).tanh(x)


def _tanh_backward(ctx: Node, grad: Tensor) -> Gradients:
    (y,) = ctx.saved_tensors
    return grad * (1 - y * y)


def _shifted(x: Array, dim: int) -> Array:
    """Return x - max(x) along `dim`, float16 widened to float32; exp of it never overflows."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    if wide.size == 0 or wide.ndim == 0:
        return wide - wide
    return wide - wide.max(axis=dim, keepdims=True)


def _axes(x: Array, dim: int) -> tuple[int, ...]:
    return (dim,) if x.ndim else ()


@quiet
def softmax_array(x: Array, dim: int) -> Array:
    """Return exp(x - max) / sum(exp(x - max)) along `dim`."""
    e = xp_of(x).exp(_shifted(x, dim))
    return (e / sum_array(e, _axes(x, dim), True)).astype(x.dtype, copy=False)


@quiet
def log_softmax_array(x: Array, dim: int) -> Array:
    """Return x - max - log(sum(exp(x - max))) along `dim`."""
    xp = xp_of(x)
    z = _shifted(x, dim)
    y = z - xp.log(sum_array(xp.exp(z), _axes(x, dim), True))
    return y.astype(x.dtype, copy=False)


def _softmax(ctx: Node, x: Array, *, dim: int) -> Array:
    ctx.save(~0)
    return softmax_array(x, dim)


def _softmax_backward(ctx: Node, grad: Tensor) -> Gradients:
    (y,) = ctx.saved_tensors
    weighted = grad * y
    return weighted - y * sum_(weighted, ctx.attributes["dim"], keepdim=True)


def _log_softmax(ctx: Node, x: Array, *, dim: int) -> Array:
    ctx.save(~0)
    return log_softmax_array(x, dim)


def _log_softmax_backward(ctx: Node, grad: Tensor) -> Gradients:
    (y,) = ctx.saved_tensors
    return grad - exp(y) * sum_(grad, ctx.attributes["dim"], keepdim=True)


def _softmax_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng),), {"dim": 0})
    yield Sample((distinct(rng, 2, 3),), {"dim": 1})
    yield Sample((distinct(rng, 3, 2),), {"dim": 0})
    yield Sample((distinct(rng, 2, 3, 1, 2),), {"dim": 1})
    yield Sample((distinct(rng, 0, 3),), {"dim": 1})


RELU = register(OpSpec("relu", "Relu", _relu, _relu_backward, unary()))
CLIP = register(OpSpec("clip", "Clip", _clip, _clip_backward, _clip_samples))
HARDTANH = register(
    OpSpec("hardtanh", "Clip", _clip, _relu6_backward, _relu6_samples, traced_as="clip")
)
SIGMOID = register(OpSpec("sigmoid", "Sigmoid", _sigmoid, _sigmoid_backward, unary()))
TANH = register(OpSpec("tanh", "Tanh", _tanh, _tanh_backward, unary()))
SOFTMAX = register(OpSpec("softmax", "Softmax", _softmax, _softmax_backward, _softmax_samples))
LOG_SOFTMAX = register(
    OpSpec("log_softmax", "LogSoftmax", _log_softmax, _log_softmax_backward, _softmax_samples)
)


def relu(x: Any) -> Tensor:
    """Return max(x, 0); the gradient at 0 is 0."""
    return apply(RELU, (as_tensor(x),))


def clip(x: Any, min: float | None = None, max: float | None = None) -> Tensor:
    """Return x limited to [min, max]; the gradient passes at the bounds."""
    if min is None and max is None:
        raise InputError("clip: give min, max or both.")
    low, high = (None if v is None else float(v) for v in (min, max))
    x = as_tensor(x)
    if x.dtype.kind != "f" and any(isinstance(v, float) for v in (min, max)):
        x = floating(x)
    return apply(CLIP, (x,), {"min": low, "max": high})


def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Return x limited to [min_val, max_val]; the gradient is 0 at the bounds."""
    return apply(HARDTANH, (as_tensor(x),), {"min": float(min_val), "max": float(max_val)})


def relu6(x: Any) -> Tensor:
    """Return min(max(x, 0), 6); the gradient is 0 at 0 and at 6."""
    return hardtanh(x, 0.0, 6.0)


def sigmoid(x: Any) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return apply(SIGMOID, (floating(x),))


def tanh(x: Any) -> Tensor:
    """Return the hyperbolic tangent."""
    return apply(TANH, (floating(x),))


def softmax(x: Any, dim: int) -> Tensor:
    """Return exp(x) / sum(exp(x)) along `dim`."""
    x = floating(x)
    return apply(SOFTMAX, (x,), {"dim": dim_index(dim, x.ndim, "softmax")})


def log_softmax(x: Any, dim: int) -> Tensor:
    """Return log(softmax(x)) along `dim`, without its underflow."""
    x = floating(x)
    return apply(LOG_SOFTMAX, (x,), {"dim": dim_index(dim, x.ndim, "log_softmax")})
