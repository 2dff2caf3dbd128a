"""Dropout: zeros at random while training."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array
from midge.core.errors import InputError
from midge.core.ops.layout import nchw
from midge.core.ops.operands import floating
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.random import Generator, default_generator
from midge.core.tensor import Tensor


def _dropout(ctx: Node, x: Array, mask: Array, *, p: float) -> Array:
    ctx.save(1)
    return x * mask


def _dropout_backward(ctx: Node, grad: Tensor) -> Gradients:
    (mask,) = ctx.saved_tensors
    return grad * mask, None


def _samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sizes in ((3,), (2, 3, 2, 2)):
        mask = np.float64(2) * (rng.random(sizes) < 0.5)
        yield Sample((distinct(rng, *sizes), mask), {"p": 0.5})


DROPOUT = register(
    OpSpec("dropout", "Dropout", _dropout, _dropout_backward, _samples, constants=(1,))
)


def dropout(
    x: Any, p: float = 0.5, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """Return x with elements set to 0 with probability p, the others divided by 1 - p.

    Args:
        x: any shape.
        p: probability, 0..1.
        training: otherwise x itself is returned.
        generator: source of the random numbers; default the one of manual_seed().
    """
    given = floating(x)
    if not 0 <= p <= 1:
        raise InputError(f"dropout: p is {p}; it must be in 0..1.")
    if not training or p == 0:
        return given
    # Drawn in the memory order of activations, [N, H, W, C], so that the product copies nothing.
    images = given.ndim == 4
    sizes = [given.shape[d] for d in (0, 2, 3, 1)] if images else given.shape
    kept = (generator or default_generator).uniform(sizes) >= p
    mask = kept * given.dtype.type(1 / (1 - p) if p < 1 else 0)
    drawn = Tensor(nchw(mask) if images else mask).to(device=given.device)
    return apply(DROPOUT, (given, drawn), {"p": p})
