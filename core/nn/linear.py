"""Linear and Identity."""

from math import sqrt
from typing import Any

import numpy as np

from midge.core.nn import functional as F
from midge.core.nn import init
from midge.core.nn.module import Module
from midge.core.nn.parameter import Parameter
from midge.core.tensor import Tensor


def bias_parameter(size: int, fan_in: int) -> Parameter:
    """Return a bias [size], uniform within +-1 / sqrt(fan_in)."""
    bias = Parameter(np.empty(size, np.float32))
    bound = 1 / sqrt(fan_in) if fan_in else 0.0
    init.uniform_(bias, -bound, bound)
    return bias


class Linear(Module):
    """y = x @ weight.T + bias.

    Args:
        in_features: size of the last dimension of x.
        out_features: size of the last dimension of y.
        bias: add a bias.

    Attributes:
        weight: [out_features, in_features], uniform within +-1 / sqrt(in_features).
        bias: [out_features] or None, likewise.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        """Draw the weights."""
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(np.empty((out_features, in_features), np.float32))
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        self.register_parameter("bias", bias_parameter(out_features, in_features) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., out_features] for x [..., in_features]."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Identity(Module):
    """Returns its input; the arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept anything."""
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Return x."""
        return x
