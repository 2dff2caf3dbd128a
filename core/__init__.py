"""Tensors, autograd, nn, optimizers and data: NumPy or CuPy underneath."""

from midge.core import autograd
from midge.core.tensor import Tensor

__all__ = ["Tensor", "autograd"]
