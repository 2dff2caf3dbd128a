"""Loss layers."""

from midge.core.nn import functional as F
from midge.core.nn.module import Module
from midge.core.tensor import Tensor


class CrossEntropyLoss(Module):
    """-log softmax(x)[target]; see functional.cross_entropy.

    Args:
        ignore_index: targets with this value count nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: share of the target spread evenly over all classes, 0..1.
    """

    def __init__(
        self,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        """Keep the options."""
        super().__init__()
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores x [N, C, ...] and class indices [N, ...]."""
        return F.cross_entropy(x, target, self.reduction, self.ignore_index, self.label_smoothing)


class MSELoss(Module):
    """Squared difference; see functional.mse_loss.

    Args:
        reduction: "mean", "sum" or "none".
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        """Keep the option."""
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss of two tensors of one shape."""
        return F.mse_loss(x, target, self.reduction)
