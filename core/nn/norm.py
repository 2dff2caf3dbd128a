"""Batch normalization layers."""

import numpy as np

from midge.core.errors import InputError
from midge.core.nn import functional as F
from midge.core.nn.module import Module
from midge.core.nn.parameter import Parameter
from midge.core.tensor import Tensor


class _BatchNorm(Module):
    """Normalization per channel; a subclass fixes the number of dimensions."""

    _ndims: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        """Start as the identity on normalized data."""
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        ones, zeros = np.ones(num_features, np.float32), np.zeros(num_features, np.float32)
        self.register_parameter("weight", Parameter(ones) if affine else None)
        self.register_parameter("bias", Parameter(zeros) if affine else None)
        track = track_running_stats
        self.register_buffer("running_mean", Tensor(zeros.copy()) if track else None)
        self.register_buffer("running_var", Tensor(ones.copy()) if track else None)
        count = Tensor(np.zeros((), np.int64))
        self.register_buffer("num_batches_tracked", count if track else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalized, of the same shape."""
        if x.ndim not in self._ndims:
            raise InputError(
                f"{type(self).__name__}: the input has shape {list(x.shape)}; it must have "
                f"{' or '.join(map(str, self._ndims))} dimensions."
            )
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.array += 1
            if self.momentum is None:
                factor = 1 / int(self.num_batches_tracked.array)
        of_batch = self.training or not self.track_running_stats
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            of_batch,
            factor,
            self.eps,
        )

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    """Batch normalization of x [N, C] or [N, C, L]; see BatchNorm2d for the arguments."""

    _ndims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of x [N, C, H, W]; see functional.batch_norm.

    Args:
        num_features: channels C.
        eps: added to the variance.
        momentum: weight of a batch in the running statistics; None for their plain mean.
        affine: train a weight and a bias a channel.
        track_running_stats: keep running statistics for eval(); without them the statistics are
            always those of the batch.

    Attributes:
        weight: [C], ones, or None.
        bias: [C], zeros, or None.
        running_mean: [C], zeros, or None.
        running_var: [C], ones, or None; unbiased.
        num_batches_tracked: int64 scalar, or None.
    """

    _ndims = (4,)
