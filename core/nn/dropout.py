"""Dropout."""

from midge.core.errors import InputError
from midge.core.nn import functional as F
from midge.core.nn.module import Module
from midge.core.tensor import Tensor


class Dropout(Module):
    """Zeros with probability p in train() mode, the rest scaled by 1 / (1 - p); else the identity.

    Args:
        p: probability of a zero, 0..1.
    """

    def __init__(self, p: float = 0.5) -> None:
        """Keep the probability."""
        super().__init__()
        if not 0 <= p <= 1:
            raise InputError(f"Dropout: p is {p}; it must be in 0..1.")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return x with zeros in it."""
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        """Return the probability."""
        return f"p={self.p}"
