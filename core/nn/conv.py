"""Conv2d."""

from math import sqrt
from typing import Any

import numpy as np

from midge.core.errors import InputError
from midge.core.nn import functional as F
from midge.core.nn import init
from midge.core.nn.linear import bias_parameter
from midge.core.nn.module import Module
from midge.core.nn.parameter import Parameter
from midge.core.ops.layout import pair
from midge.core.tensor import Tensor


class Conv2d(Module):
    """2-D convolution; see functional.conv2d.

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: one int or (y, x).
        stride: one int or (y, x).
        padding: one int, (y, x), (top, left, bottom, right), "same" or "valid".
        dilation: one int or (y, x).
        groups: number of groups of channels; in_channels makes it depthwise.
        bias: add a bias.

    Attributes:
        weight: [out_channels, in_channels / groups, kh, kw], uniform within +-1 / sqrt(fan_in).
            Its memory is [out, kh, kw, in], the order in which the kernels read it.
        bias: [out_channels] or None, likewise.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        """Draw the weights."""
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise InputError(
                f"Conv2d: groups={groups} must divide in_channels={in_channels} and "
                f"out_channels={out_channels}."
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair(kernel_size, "Conv2d: kernel_size")
        self.stride = pair(stride, "Conv2d: stride")
        self.padding = padding
        self.dilation = pair(dilation, "Conv2d: dilation")
        self.groups = groups
        memory = np.empty((out_channels, *self.kernel_size, in_channels // groups), np.float32)
        self.weight = Parameter(memory.transpose(0, 3, 1, 2))
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        fan_in = memory[0].size
        self.register_parameter("bias", bias_parameter(out_channels, fan_in) if bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, out_channels, H', W'] for x [N, in_channels, H, W]."""
        return F.conv2d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        """Return what differs from the defaults."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        for name, default in (
            ("stride", (1, 1)),
            ("padding", 0),
            ("dilation", (1, 1)),
            ("groups", 1),
        ):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value!r}"
        return text if self.bias is not None else f"{text}, bias=False"
