"""Arithmetic, element by element with broadcasting: each forward beside its gradient."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, xp_of
from midge.core.dtypes import DTypeLike, as_dtype
from midge.core.errors import InputError
from midge.core.ops.operands import as_tensor, floating, pair
from midge.core.ops.samples import binary, distinct, positive, unary
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor

# PyTorch is silent about 1 / 0, log(0) and overflow: the result is inf or nan. So are these.
quiet = np.errstate(all="ignore")


def _add(ctx: Node, a: Array, b: Array) -> Array:
    return a + b


def _add_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad, grad


def _sub(ctx: Node, a: Array, b: Array) -> Array:
    return a - b


def _sub_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad, -grad if ctx.needs_input_grad[1] else None


def save_factors(ctx: Node) -> None:
    """Save of two factors only those that the other one's gradient needs."""
    left, right = ctx.needs_input_grad
    if left and right:
        ctx.save(0, 1)
    elif left:
        ctx.save(1)
    elif right:
        ctx.save(0)


def _mul(ctx: Node, a: Array, b: Array) -> Array:
    save_factors(ctx)
    return a * b


def _mul_backward(ctx: Node, grad: Tensor) -> Gradients:
    saved = ctx.saved_tensors
    left, right = ctx.needs_input_grad
    return grad * saved[-1] if left else None, grad * saved[0] if right else None


@quiet
def _div(ctx: Node, a: Array, b: Array) -> Array:
    if ctx.needs_input_grad[1]:
        ctx.save(0, 1)
    elif ctx.needs_input_grad[0]:
        ctx.save(1)
    return a / b


def _div_backward(ctx: Node, grad: Tensor) -> Gradients:
    saved = ctx.saved_tensors
    b = saved[-1]
    left, right = ctx.needs_input_grad
    return grad / b if left else None, -grad * (saved[0] / b / b) if right else None


def _neg(ctx: Node, x: Array) -> Array:
    return -x


def _neg_backward(ctx: Node, grad: Tensor) -> Gradients:
    return -grad


@quiet
def _pow(ctx: Node, a: Array, b: Array) -> Array:
    if ctx.needs_input_grad[1]:
        ctx.save(0, 1, ~0)
    else:
        ctx.save(0, 1)
    if b.ndim == 0 and b == 2:
        return a * a  # same bits as np.power and many times faster
    return a**b


def _pow_backward(ctx: Node, grad: Tensor) -> Gradients:
    a, b = ctx.saved_tensors[:2]
    left = right = None
    if ctx.needs_input_grad[0]:
        # Where b is 0 the derivative is 0 even at a = 0; the exponent 1 avoids 0 * inf there.
        lower = b - 1
        zero = b.array == 0
        if zero.any():
            lower = where(Tensor(zero), 1, lower)
        left = grad * b * a**lower
    if ctx.needs_input_grad[1]:
        # 0 ** b is flat in b for b >= 0; log(0) would give nan.
        flat = Tensor((a.array == 0) & (b.array >= 0))
        right = grad * ctx.saved_tensors[2] * log(where(flat, 1, a))
    return left, right


def _abs(ctx: Node, x: Array) -> Array:
    ctx.save(0)
    return xp_of(x).abs(x)


def _abs_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad * sign(ctx.saved_tensors[0])


def _sign(ctx: Node, x: Array) -> Array:
    return xp_of(x).sign(x)


def _sign_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad * 0


def _maximum(ctx: Node, a: Array, b: Array) -> Array:
    ctx.save(0, 1)
    return xp_of(a, b).maximum(a, b)


def _share(winner: Array, other: Array, dtype: Any) -> Tensor:
    """Return 1 where the winner wins, 1/2 at ties, else 0."""
    return Tensor(winner.astype(dtype) + other.astype(dtype) * dtype.type(0.5))


def _maximum_backward(ctx: Node, grad: Tensor) -> Gradients:
    a, b = (t.array for t in ctx.saved_tensors)
    tie = a == b
    return grad * _share(a > b, tie, grad.dtype), grad * _share(b > a, tie, grad.dtype)


def _minimum(ctx: Node, a: Array, b: Array) -> Array:
    ctx.save(0, 1)
    return xp_of(a, b).minimum(a, b)


def _minimum_backward(ctx: Node, grad: Tensor) -> Gradients:
    a, b = (t.array for t in ctx.saved_tensors)
    tie = a == b
    return grad * _share(a < b, tie, grad.dtype), grad * _share(b < a, tie, grad.dtype)


@quiet
def _exp(ctx: Node, x: Array) -> Array:
    ctx.save(~0)
    return xp_of(x).exp(x)


def _exp_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad * ctx.saved_tensors[0]


@quiet
def _log(ctx: Node, x: Array) -> Array:
    ctx.save(0)
    return xp_of(x).log(x)


def _log_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad / ctx.saved_tensors[0]


@quiet
def _sqrt(ctx: Node, x: Array) -> Array:
    ctx.save(~0)
    return xp_of(x).sqrt(x)


def _sqrt_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad / (ctx.saved_tensors[0] * 2)


def _cast(ctx: Node, x: Array, *, dtype: str) -> Array:
    return x.astype(dtype)


def _cast_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad  # the engine casts back


def _cast_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for dtype in ("float32", "float64", "int32", "bool"):
        yield Sample((np.round(distinct(rng, 2, 3) * 4),), {"dtype": dtype})


def _clone(ctx: Node, x: Array) -> Array:
    return x.copy(order="K")


def _clone_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad


def _where(ctx: Node, condition: Array, a: Array, b: Array) -> Array:
    ctx.save(0)
    return xp_of(condition, a, b).where(condition, a, b)


def _where_backward(ctx: Node, grad: Tensor) -> Gradients:
    (condition,) = ctx.saved_tensors
    zero = Tensor(xp_of(grad.array).zeros((), grad.dtype))
    _, left, right = ctx.needs_input_grad
    return (
        None,
        apply(WHERE, (condition, grad, zero)) if left else None,
        apply(WHERE, (condition, zero, grad)) if right else None,
    )


def _where_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for a, b in (((2, 3), (2, 3)), ((), (3,)), ((2, 3), (3,)), ((4, 1, 3), (2, 1)), ((0, 2), ())):
        condition = rng.random(np.broadcast_shapes(a, b)) > 0.5
        yield Sample((condition, distinct(rng, *a), distinct(rng, *b)))
    yield Sample((np.array([True, False]), distinct(rng, 3, 1), distinct(rng, 2)))


ADD = register(OpSpec("add", "Add", _add, _add_backward, binary()))
SUB = register(OpSpec("sub", "Sub", _sub, _sub_backward, binary()))
MUL = register(OpSpec("mul", "Mul", _mul, _mul_backward, binary()))
DIV = register(OpSpec("div", "Div", _div, _div_backward, binary(distinct, positive)))
NEG = register(OpSpec("neg", "Neg", _neg, _neg_backward, unary()))
POW = register(OpSpec("pow", "Pow", _pow, _pow_backward, binary(positive, distinct)))
ABS = register(OpSpec("abs", "Abs", _abs, _abs_backward, unary()))
SIGN = register(OpSpec("sign", "Sign", _sign, _sign_backward, unary()))
MAXIMUM = register(OpSpec("maximum", "Max", _maximum, _maximum_backward, binary()))
MINIMUM = register(OpSpec("minimum", "Min", _minimum, _minimum_backward, binary()))
EXP = register(OpSpec("exp", "Exp", _exp, _exp_backward, unary()))
LOG = register(OpSpec("log", "Log", _log, _log_backward, unary(positive)))
SQRT = register(OpSpec("sqrt", "Sqrt", _sqrt, _sqrt_backward, unary(positive)))
CAST = register(OpSpec("cast", "Cast", _cast, _cast_backward, _cast_samples))
CLONE = register(OpSpec("clone", "Identity", _clone, _clone_backward, unary()))
WHERE = register(OpSpec("where", "Where", _where, _where_backward, _where_samples))


def add(a: Any, b: Any) -> Tensor:
    """Return a + b."""
    return apply(ADD, pair(a, b))


def sub(a: Any, b: Any) -> Tensor:
    """Return a - b."""
    a, b = pair(a, b)
    if a.dtype.kind == "b":
        raise InputError("sub: bool tensors cannot be subtracted; use ^ or logical_not.")
    return apply(SUB, (a, b))


def mul(a: Any, b: Any) -> Tensor:
    """Return a * b."""
    return apply(MUL, pair(a, b))


def div(a: Any, b: Any) -> Tensor:
    """Return a / b; integers are divided in float32."""
    return apply(DIV, pair(a, b, floating=True))


def neg(x: Any) -> Tensor:
    """Return -x."""
    x = as_tensor(x)
    if x.dtype.kind == "b":
        raise InputError("neg: a bool tensor has no negative; use ~x.")
    return apply(NEG, (x,))


def pow(a: Any, b: Any) -> Tensor:
    """Return a ** b."""
    a, b = pair(a, b)
    if a.dtype.kind in "iu" and bool((b.array < 0).any()):
        raise InputError("pow: integers to negative powers are not defined; use a float tensor.")
    return apply(POW, (a, b))


def abs(x: Any) -> Tensor:
    """Return |x|; the gradient at 0 is 0."""
    return apply(ABS, (as_tensor(x),))


def sign(x: Any) -> Tensor:
    """Return -1, 0 or 1; the gradient is 0."""
    return apply(SIGN, (as_tensor(x),))


def maximum(a: Any, b: Any) -> Tensor:
    """Return the larger of each pair; a tie gives each half of the gradient."""
    return apply(MAXIMUM, pair(a, b))


def minimum(a: Any, b: Any) -> Tensor:
    """Return the smaller of each pair; a tie gives each half of the gradient."""
    return apply(MINIMUM, pair(a, b))


def exp(x: Any) -> Tensor:
    """Return e ** x."""
    return apply(EXP, (floating(x),))


def log(x: Any) -> Tensor:
    """Return the natural logarithm."""
    return apply(LOG, (floating(x),))


def sqrt(x: Any) -> Tensor:
    """Return the square root."""
    return apply(SQRT, (floating(x),))


def cast(x: Any, dtype: DTypeLike) -> Tensor:
    """Return x in another dtype; x itself if it has that dtype already."""
    x, dtype = as_tensor(x), as_dtype(dtype)
    return x if x.dtype == dtype else apply(CAST, (x,), {"dtype": str(dtype)})


def clone(x: Any) -> Tensor:
    """Return a copy on memory of its own, in the graph and in the same memory order."""
    return apply(CLONE, (as_tensor(x),))


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """Return a where the bool tensor `condition` is true, else b; all three broadcast."""
    condition = as_tensor(condition)
    if condition.dtype.kind != "b":
        raise InputError(f"where: the condition must be bool, not {condition.dtype}.")
    return apply(WHERE, (condition, *pair(a, b)))
