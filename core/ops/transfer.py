"""Moving between devices and memory orders; the values stay."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, xp_of
from midge.core.device import Device, as_device, device_of, move
from midge.core.errors import InputError
from midge.core.ops.elementwise import cast
from midge.core.ops.operands import as_tensor
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor


def _to_device(ctx: Node, x: Array, *, device: str) -> Array:
    ctx.facts = str(device_of(x))
    moved = move(x, as_device(device))
    return moved.copy(order="K") if moved is x else moved


def _to_device_backward(ctx: Node, grad: Tensor) -> Gradients:
    return to(grad, device=ctx.facts)


def _contiguous(ctx: Node, x: Array) -> Array:
    return xp_of(x).array(x, order="C")


def _contiguous_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad


def _to_device_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3),), {"device": "cpu"})


def _contiguous_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3).T,))
    yield Sample((distinct(rng, 2, 2, 1, 3).transpose(0, 3, 1, 2),))


TO_DEVICE = register(OpSpec("to_device", "", _to_device, _to_device_backward, _to_device_samples))
CONTIGUOUS = register(
    OpSpec("contiguous", "Identity", _contiguous, _contiguous_backward, _contiguous_samples)
)


def to(x: Any, *args: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return x in another dtype and on another device; x itself if nothing changes.

    A positional argument is a Device, "cpu" or "cuda[:N]", a Tensor to follow, or else a dtype.
    """
    x = as_tensor(x)
    for arg in args:
        if isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif isinstance(arg, Device) or (isinstance(arg, str) and arg[:4] in ("cpu", "cuda")):
            device = arg
        elif dtype is None:
            dtype = arg
        else:
            raise InputError(f"to(): {arg!r} is a second dtype beside {dtype!r}.")
    if device is not None and x.device != as_device(device):
        x = apply(TO_DEVICE, (x,), {"device": str(as_device(device))})
    return x if dtype is None else cast(x, dtype)


def contiguous(x: Any) -> Tensor:
    """Return x itself if its elements lie in C order, else a copy that does."""
    x = as_tensor(x)
    return x if x.is_contiguous() else apply(CONTIGUOUS, (x,))
