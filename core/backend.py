"""The array module under a tensor (NumPy or CuPy) and the canonical memory order of reductions.

Operators never import cupy themselves: they ask `xp_of` for the module of the arrays they got, so
one body of code serves both. CuPy is loaded only when a CUDA device is asked for.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from midge.core.errors import InputError
from midge.core.threads import obey_environment

# A numpy.ndarray or a cupy.ndarray. CuPy ships no types, so the alias documents and no more.
Array: TypeAlias = Any

obey_environment()
_cupy: ModuleType | None = None


class Counter:
    """A count that tests and benchmarks read: `count`, `add()` and `reset()`."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0

    def add(self) -> None:
        """Count one more."""
        self.count += 1

    def reset(self) -> None:
        """Start again from zero."""
        self.count = 0


# Arrays that an operator had to copy because their memory order was not the one it works in.
layout_copies = Counter()


def load_cupy() -> ModuleType:
    """Import CuPy, check that a device answers, and from then on accept its arrays.

    CuPy imports without a driver, so only a question to the device tells whether it can be used.

    Raises:
        InputError: CuPy is missing or no CUDA device answers.
    """
    global _cupy
    if _cupy is None:
        try:
            import cupy

            count = int(cupy.cuda.runtime.getDeviceCount())
        except ImportError:
            raise InputError(
                "device 'cuda': CuPy is not installed; install 'midge[cuda13]' or use device 'cpu'."
            ) from None
        except Exception as error:
            raise InputError(
                f"device 'cuda': no CUDA device answers ({error}); use device 'cpu'."
            ) from None
        if count == 0:
            raise InputError("device 'cuda': this machine has no CUDA device; use device 'cpu'.")
        _cupy = cupy
    return _cupy


def is_array(value: object) -> bool:
    """Tell whether `value` is an array of a loaded array module."""
    if isinstance(value, np.ndarray):
        return True
    return _cupy is not None and isinstance(value, _cupy.ndarray)


def xp_of(*arrays: Array) -> Any:
    """Return the module (numpy or cupy) that owns the arrays; None entries are skipped.

    Raises:
        InputError: arrays of both modules; no operator moves data between devices by itself.
    """
    if _cupy is None:
        return np
    owners = {_cupy if isinstance(a, _cupy.ndarray) else np for a in arrays if a is not None}
    if len(owners) > 1:
        raise InputError(
            "tensors lie on different devices; move one with .to('cpu') or .to('cuda')."
        )
    return owners.pop() if owners else np


def to_numpy(array: Array) -> Array:
    """Return the array in host memory, without a copy when it already is there."""
    return array if xp_of(array) is np else array.get()


def contiguous(array: Array) -> Array:
    """Return the array in C order; a copy is counted in `layout_copies`."""
    if array.flags.c_contiguous:
        return array
    layout_copies.add()
    return xp_of(array).ascontiguousarray(array)


def canonical(array: Array) -> Array:
    """Return the array in the one memory order in which float sums are taken.

    A float sum depends on the order of its terms and NumPy follows memory, so the order is fixed
    first: N, H, W, C for a 4-D array [N, C, H, W], C order for every other. The shape stays.
    """
    if array.ndim != 4:
        return contiguous(array)
    nhwc = array.transpose(0, 2, 3, 1)
    if nhwc.flags.c_contiguous:
        return array
    return contiguous(nhwc).transpose(0, 3, 1, 2)


def memory_order(array: Array) -> tuple[int, ...]:
    """Return the dims from the slowest to the fastest in memory."""
    strides = array.strides
    return tuple(sorted(range(array.ndim), key=lambda d: (-abs(strides[d]), d)))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `order`."""
    return tuple(sorted(range(len(order)), key=lambda i: order[i]))
