"""Activation layers."""

from midge.core.nn import functional as F
from midge.core.nn.module import Module
from midge.core.tensor import Tensor


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return max(x, 0)."""
        return F.relu(x)


class ReLU6(Module):
    """min(max(x, 0), 6)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return min(max(x, 0), 6)."""
        return F.relu6(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Return 1 / (1 + exp(-x))."""
        return F.sigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Return tanh(x)."""
        return F.tanh(x)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along one dimension.

    Args:
        dim: the dimension.
    """

    def __init__(self, dim: int = -1) -> None:
        """Keep the dimension."""
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Return exp(x) / sum(exp(x)) along `dim`."""
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        """Return the dimension."""
        return f"dim={self.dim}"
