"""Tensors, autograd, nn, optimizers and data: NumPy or CuPy underneath."""

# autograd first: tensor.py builds on its lower half.
from midge.core import autograd
from midge.core.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from midge.core.creation import (
    arange,
    empty,
    eye,
    from_numpy,
    full,
    linspace,
    ones,
    ones_like,
    rand,
    randint,
    randn,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from midge.core.random import Generator, manual_seed
from midge.core.serialization import load, save
from midge.core.tensor import Tensor
from midge.core.threads import get_num_threads, set_num_threads

from midge.core import data, nn, optim  # isort: skip  they need what is above

__all__ = [
    "Generator",
    "Tensor",
    "arange",
    "autograd",
    "data",
    "empty",
    "enable_grad",
    "eye",
    "from_numpy",
    "full",
    "get_num_threads",
    "inference_mode",
    "is_grad_enabled",
    "linspace",
    "load",
    "manual_seed",
    "nn",
    "no_grad",
    "ones",
    "ones_like",
    "optim",
    "rand",
    "randint",
    "randn",
    "randperm",
    "save",
    "set_grad_enabled",
    "set_num_threads",
    "tensor",
    "zeros",
    "zeros_like",
]
