"""Einsum as permutations, sums and one matrix product for each operand after the first."""

from collections.abc import Sequence
from math import prod

import numpy as np

from midge.convert.to_module_call import Call, beside
from midge.core import ops
from midge.core.tensor import Tensor

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def einsum(call: Call, *operands: Tensor) -> Tensor:
    """Return the sum of products that the equation names."""
    named, output = _labels(call.get("equation"), operands)
    given = [_diagonal(x, term) for x, term in zip(operands, named, strict=True)]
    y, have = given[0]
    for index, (x, term) in enumerate(given[1:], 1):
        later = "".join(t for _, t in given[index + 1 :]) + output
        y, have = _product(y, have, x, term, later)
    y, have = _summed(y, have, output)
    return ops.permute(y, [have.index(label) for label in output])


def _labels(equation: str, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the output, with letters for an ellipsis."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [letter for letter in LETTERS if letter not in equation]
    hidden = max(
        (x.ndim - len(t) + 3 for t, x in zip(terms, operands, strict=True) if "..." in t), default=0
    )
    dots = "".join(free[:hidden])
    if not arrow:
        once = [label for label in sorted(set(left) - set(".,")) if left.count(label) == 1]
        output = ("..." if "..." in left else "") + "".join(once)
    filled = [
        t.replace("...", dots[len(dots) - (x.ndim - len(t) + 3) :] if "..." in t else "")
        for t, x in zip(terms, operands, strict=True)
    ]
    return filled, output.replace("...", dots)


def _diagonal(x: Tensor, have: str) -> tuple[Tensor, str]:
    """Take the diagonal of axes that have one name."""
    while len(set(have)) != len(have):
        name = next(n for n in have if have.count(n) > 1)
        i, j = have.index(name), have.rindex(name)
        rest = [d for d in range(x.ndim) if d not in (i, j)]
        size = x.shape[i]
        x = ops.permute(x, [i, j, *rest])
        x = ops.reshape(x, (size * size, *x.shape[2:]))
        x = ops.index_select(x, 0, beside(x, np.arange(size) * (size + 1), np.dtype(np.int64)))
        have = name + "".join(have[d] for d in rest)
    return x, have


def _summed(x: Tensor, have: str, kept: str) -> tuple[Tensor, str]:
    """Sum over the axes that nobody needs."""
    dims = [d for d, label in enumerate(have) if label not in kept]
    if not dims:
        return x, have
    return ops.cast(ops.sum(x, dims), x.dtype), "".join(n for n in have if n in kept)


def _product(a: Tensor, left: str, b: Tensor, right: str, later: str) -> tuple[Tensor, str]:
    """Multiply two operands and sum over what they share and nobody needs later."""
    a, left = _summed(a, left, right + later)
    b, right = _summed(b, right, left + later)
    both = [n for n in left if n in right]
    batch, inner = [n for n in both if n in later], [n for n in both if n not in later]
    rows, columns = [n for n in left if n not in right], [n for n in right if n not in left]
    sizes = dict(zip(right, b.shape, strict=True)) | {
        n: s for n, s in zip(left, a.shape, strict=True) if s != 1 or n not in right
    }
    x = _matrix(a, left, (batch, rows, inner), sizes)
    y = _matrix(b, right, (batch, inner, columns), sizes)
    product = ops.matmul(x, y)
    labels = [*batch, *rows, *columns]
    return ops.reshape(product, [sizes[n] for n in labels]), "".join(labels)


def _matrix(x: Tensor, have: str, groups: tuple[list[str], ...], sizes: dict[str, int]) -> Tensor:
    """Return x with its axes in three groups, each joined into one."""
    order = [n for group in groups for n in group]
    x = ops.permute(x, [have.index(n) for n in order])
    x = ops.expand(x, [sizes[n] for n in order])
    return ops.reshape(x, [prod(sizes[n] for n in group) for group in groups])
