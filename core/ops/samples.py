"""Test inputs for the operators' `samples`: float64 arrays that keep clear of kinks and poles.

Shipped, so that an operator defined elsewhere is tested in the same way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from midge.core.backend import Array
from midge.core.dtypes import DTypeLike
from midge.core.opspec import OpSpec, Sample, apply
from midge.core.tensor import Tensor

# Pairs of shapes that broadcast in every way: equal, 0-dim, leading, inner, both, empty.
BROADCAST = (
    ((2, 3), (2, 3)),
    ((2, 3), ()),
    ((), (3,)),
    ((2, 3), (3,)),
    ((2, 1, 3), (4, 1)),
    ((2, 3, 2, 2), (1, 3, 1, 1)),
    ((0, 3), (1, 3)),
)
SHAPES = ((), (3,), (2, 3), (2, 3, 2, 2), (2, 0))


def distinct(rng: np.random.Generator, *shape: int, gap: float = 0.25) -> Array:
    """Return values of both signs that differ from each other and from zero by at least `gap` / 2.

    Finite differences then never cross a kink of abs, relu, max or clip.
    """
    size = prod(shape)
    values = (np.arange(size) - size // 2 + 0.5) * gap + rng.uniform(-0.05, 0.05, size) * gap
    return rng.permutation(values).reshape(shape)


def positive(rng: np.random.Generator, *shape: int) -> Array:
    """Return values in [0.5, 2]."""
    return rng.uniform(0.5, 2, shape)


def unary(values: Callable[..., Array] = distinct) -> Callable[..., Iterator[Sample]]:
    """Return the `samples` of an operator with one input of any shape."""

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in SHAPES:
            yield Sample((values(rng, *shape),))

    return samples


def binary(
    first: Callable[..., Array] = distinct, second: Callable[..., Array] = distinct
) -> Callable[..., Iterator[Sample]]:
    """Return the `samples` of an operator with two inputs that broadcast."""

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for a, b in BROADCAST:
            yield Sample((first(rng, *a), second(rng, *b)))
            yield Sample((first(rng, *b), second(rng, *a)))

    return samples


def seeded(spec: OpSpec) -> Iterator[Sample]:
    """Return the samples of an operator, the same ones each time."""
    return iter(spec.samples(np.random.default_rng(0)))


def as_inputs(
    spec: OpSpec, arrays: Sequence[Array | None], dtype: DTypeLike = np.float64
) -> list[Tensor | None]:
    """Return tensors for the arrays of a sample.

    Args:
        spec: the operator.
        arrays: inputs of a Sample.
        dtype: of the float inputs, which require gradients unless they are spec.constants.
    """
    tensors: list[Tensor | None] = []
    for position, array in enumerate(arrays):
        if array is None:
            tensors.append(None)
        elif np.asarray(array).dtype.kind == "f":
            value = np.asarray(array).astype(dtype, copy=False)
            tensors.append(Tensor(value, position not in spec.constants))
        else:
            tensors.append(Tensor(np.asarray(array)))
    return tensors


def outputs(
    spec: OpSpec, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any]
) -> tuple[Tensor, ...]:
    """Return what the operator gives, always as a tuple."""
    result: Any = apply(spec, inputs, attributes)
    return result if isinstance(result, tuple) else (result,)
