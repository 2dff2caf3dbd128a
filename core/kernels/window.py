"""Window: the kernel size, stride, padding and dilation that convolution and pooling share."""

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from midge.core.backend import Array, xp_of
from midge.core.errors import InputError

Pair = tuple[int, int]
Sides = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Where the taps of a sliding window lie.

    Args:
        kernel: height and width.
        stride: along y and x, >= 1.
        padding: top, left, bottom, right, >= 0.
        dilation: along y and x, >= 1.
    """

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    def output_size(self, height: int, width: int, where: str) -> Pair:
        """Return the height and width of the output.

        Raises:
            InputError: the window is larger than the padded input, or a number is out of range.
        """
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise InputError(
                f"{where}: kernel_size, stride and dilation must be >= 1 and padding >= 0, got "
                f"{self.kernel}, {self.stride}, {self.dilation} and {self.padding}."
            )
        top, left, bottom, right = self.padding
        rows = height + top + bottom - self.dilation[0] * (self.kernel[0] - 1) - 1
        columns = width + left + right - self.dilation[1] * (self.kernel[1] - 1) - 1
        if rows < 0 or columns < 0:
            raise InputError(
                f"{where}: a kernel of {self.kernel} with dilation {self.dilation} is larger than "
                f"the {height}x{width} input with padding {self.padding}; pad more or use a "
                "smaller kernel."
            )
        return rows // self.stride[0] + 1, columns // self.stride[1] + 1

    @property
    def is_pointwise(self) -> bool:
        """Whether every output is made of the one input at its own place (1x1, stride 1)."""
        return self.kernel == self.stride == (1, 1) and self.padding == (0, 0, 0, 0)

    def tap(self, ky: int, kx: int, out: Pair) -> tuple[slice, slice]:
        """Return the rows and columns of a padded input that tap (ky, kx) of all outputs reads."""
        y, x = ky * self.dilation[0], kx * self.dilation[1]
        return (
            slice(y, y + self.stride[0] * (out[0] - 1) + 1, self.stride[0]),
            slice(x, x + self.stride[1] * (out[1] - 1) + 1, self.stride[1]),
        )


class CWindow(ctypes.Structure):
    """`midge_window` of window.h."""

    _fields_ = [
        (name, ctypes.c_ssize_t)
        for name in (
            *("n", "h", "w", "c", "oh", "ow", "kh", "kw"),
            *("sy", "sx", "dy", "dx", "top", "left"),
        )
    ]


@lru_cache(maxsize=1024)
def c_window(shape: tuple[int, ...], channels: int, out: Pair, window: Window) -> CWindow:
    """Return the C record for an input [N, H, W, _] of which `channels` are worked on."""
    return CWindow(
        *shape[:3],
        channels,
        *out,
        *window.kernel,
        *window.stride,
        *window.dilation,
        *window.padding[:2],
    )


def pad(x: Array, window: Window, value: float = 0.0) -> Array:
    """Return x [N, H, W, C] with the window's padding around it; x itself where there is none."""
    top, left, bottom, right = window.padding
    if not any(window.padding):
        return x
    n, h, w, c = x.shape
    xp: Any = xp_of(x)
    padded = xp.full((n, h + top + bottom, w + left + right, c), value, x.dtype)
    padded[:, top : top + h, left : left + w] = x
    return padded


def crop(padded: Array, shape: tuple[int, ...], window: Window) -> Array:
    """Return the inside [N, H, W, C] of a padded array, in memory of its own."""
    if padded.shape == shape:
        return padded
    top, left = window.padding[:2]
    inside = padded[:, top : top + shape[1], left : left + shape[2]]
    return xp_of(padded).ascontiguousarray(inside)
