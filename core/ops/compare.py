"""Comparison and logic: bool results, no gradient."""

from collections.abc import Callable
from typing import Any

from midge.core.autograd.node import Node
from midge.core.backend import Array, xp_of
from midge.core.ops.operands import as_tensor, pair
from midge.core.ops.samples import binary, unary
from midge.core.opspec import OpSpec, apply, register
from midge.core.tensor import Tensor


def _by_operator(compare: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def forward(ctx: Node, a: Array, b: Array) -> Array:
        return compare(a, b)

    return forward


def _logical_not(ctx: Node, x: Array) -> Array:
    return xp_of(x).logical_not(x)


def _logical_and(ctx: Node, a: Array, b: Array) -> Array:
    return xp_of(a, b).logical_and(a, b)


def _logical_or(ctx: Node, a: Array, b: Array) -> Array:
    return xp_of(a, b).logical_or(a, b)


EQ = register(OpSpec("eq", "Equal", _by_operator(lambda a, b: a == b), None, binary()))
NE = register(OpSpec("ne", "", _by_operator(lambda a, b: a != b), None, binary()))
LT = register(OpSpec("lt", "Less", _by_operator(lambda a, b: a < b), None, binary()))
LE = register(OpSpec("le", "LessOrEqual", _by_operator(lambda a, b: a <= b), None, binary()))
GT = register(OpSpec("gt", "Greater", _by_operator(lambda a, b: a > b), None, binary()))
GE = register(OpSpec("ge", "GreaterOrEqual", _by_operator(lambda a, b: a >= b), None, binary()))
LOGICAL_NOT = register(OpSpec("logical_not", "Not", _logical_not, None, unary()))
LOGICAL_AND = register(OpSpec("logical_and", "And", _logical_and, None, binary()))
LOGICAL_OR = register(OpSpec("logical_or", "Or", _logical_or, None, binary()))


def eq(a: Any, b: Any) -> Tensor:
    """Return where a == b."""
    return apply(EQ, pair(a, b))


def ne(a: Any, b: Any) -> Tensor:
    """Return where a != b."""
    return apply(NE, pair(a, b))


def lt(a: Any, b: Any) -> Tensor:
    """Return where a < b."""
    return apply(LT, pair(a, b))


def le(a: Any, b: Any) -> Tensor:
    """Return where a <= b."""
    return apply(LE, pair(a, b))


def gt(a: Any, b: Any) -> Tensor:
    """Return where a > b."""
    return apply(GT, pair(a, b))


def ge(a: Any, b: Any) -> Tensor:
    """Return where a >= b."""
    return apply(GE, pair(a, b))


def logical_not(x: Any) -> Tensor:
    """Return where x is zero or false."""
    return apply(LOGICAL_NOT, (as_tensor(x),))


def logical_and(a: Any, b: Any) -> Tensor:
    """Return where both are nonzero."""
    return apply(LOGICAL_AND, pair(a, b))


def logical_or(a: Any, b: Any) -> Tensor:
    """Return where at least one is nonzero."""
    return apply(LOGICAL_OR, pair(a, b))
