"""Pooling layers."""

from typing import Any

from midge.core.nn import functional as F
from midge.core.nn.module import Module
from midge.core.tensor import Tensor


class MaxPool2d(Module):
    """Largest value of each window; see functional.max_pool2d.

    Args:
        kernel_size: one int or (y, x).
        stride: one int or (y, x); default `kernel_size`.
        padding: one int, (y, x) or (top, left, bottom, right).
        dilation: one int or (y, x).
    """

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1
    ) -> None:
        """Keep the geometry."""
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, C, H', W'] for x [N, C, H, W]."""
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        """Return the geometry."""
        text = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        return text if self.dilation == 1 else f"{text}, dilation={self.dilation}"


class AvgPool2d(Module):
    """Mean of each window; see functional.avg_pool2d.

    Args:
        kernel_size: one int or (y, x).
        stride: one int or (y, x); default `kernel_size`.
        padding: one int, (y, x) or (top, left, bottom, right).
        count_include_pad: count the padding as zeros.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        count_include_pad: bool = True,
    ) -> None:
        """Keep the geometry."""
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, C, H', W'] for x [N, C, H, W]."""
        return F.avg_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            count_include_pad=self.count_include_pad,
        )

    def extra_repr(self) -> str:
        """Return the geometry."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means of a fixed number of equal windows; see functional.adaptive_avg_pool2d.

    Args:
        output_size: one int or (y, x); 1 is the global mean.
    """

    def __init__(self, output_size: Any) -> None:
        """Keep the size."""
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, C, *output_size] for x [N, C, H, W]."""
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        """Return the size."""
        return f"output_size={self.output_size}"
