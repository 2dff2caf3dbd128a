"""The change between the logical NCHW shape of tensors and the NHWC arrays that kernels work on."""

from typing import Any

from midge.core.backend import Array, contiguous
from midge.core.dtypes import is_float
from midge.core.errors import InputError
from midge.core.kernels.window import Pair, Sides
from midge.core.tensor import Tensor


def nhwc(x: Array) -> Array:
    """Return an [N, C, H, W] array as a contiguous [N, H, W, C] array; a copy is counted."""
    return contiguous(x.transpose(0, 2, 3, 1))


def nchw(x: Array) -> Array:
    """Return an [N, H, W, C] array as an [N, C, H, W] view; nothing is copied."""
    return x.transpose(0, 3, 1, 2)


def pair(value: Any, what: str) -> Pair:
    """Return (y, x) for one number or two.

    Raises:
        InputError: neither an int nor two ints.
    """
    if isinstance(value, int):
        return value, value
    found = tuple(int(v) for v in value)
    if len(found) != 2:
        raise InputError(f"{what} is {value!r}; give one int or two (along y, along x).")
    return found


def sides(value: Any, what: str) -> Sides:
    """Return (top, left, bottom, right) for one number, two (y, x) or four.

    Raises:
        InputError: neither an int nor two or four ints.
    """
    found = (value, value) if isinstance(value, int) else tuple(int(v) for v in value)
    if len(found) == 2:
        return found[0], found[1], found[0], found[1]
    if len(found) != 4:
        raise InputError(
            f"{what} is {value!r}; give one int, two (along y, along x) or four (top, left, "
            "bottom, right)."
        )
    return found


def check_images(x: Tensor, what: str) -> None:
    """Check that x is a float tensor [N, C, H, W].

    Raises:
        InputError: it is not.
    """
    if x.ndim != 4:
        raise InputError(
            f"{what}: the input has shape {list(x.shape)}, but [N, C, H, W] is needed; add the "
            "missing dimension with unsqueeze() or reshape()."
        )
    if not is_float(x.dtype):
        raise InputError(f"{what}: the input is {x.dtype}; convert it with .float().")
