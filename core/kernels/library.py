"""The compiled kernels: built by core/native.py on first use, loaded by ctypes.

The vector instructions are chosen for this machine, but never change a result: -ffp-contract=off
forbids the compiler to fuse or reorder, so every machine gives the same bits.
"""

import ctypes
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from midge.core.backend import Array
from midge.core.errors import InputError, ToolError
from midge.core.kernels.window import CWindow
from midge.core.native import compile_shared, cpu_features

FOLDER = Path(__file__).parent
SOURCES = ("batch_norm.c", "depthwise.c", "im2col.c", "pool.c")
_FLAGS = ("-std=c99", "-O3", "-fno-math-errno", "-ffp-contract=off")

_array = ctypes.c_void_p
_size = ctypes.c_ssize_t
_window = ctypes.POINTER(CWindow)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "midge_im2col_f32": (_array, _size, _array, _window, _size, _size),
    "midge_col2im_f32": (_array, _array, _size, _window, _size, _size),
    "midge_depthwise_f32": (_array, _array, _array, _array, _window),
    "midge_depthwise_grad_input_f32": (_array, _array, _array, _window),
    "midge_depthwise_grad_weight_f32": (_array, _array, _array, _window),
    "midge_max_pool_f32": (_array, _array, _array, _window),
    "midge_max_pool_scatter_f32": (_array, _array, _array, _window),
    "midge_avg_pool_f32": (_array, _array, _array, _window),
    "midge_avg_pool_grad_f32": (_array, _array, _array, _window),
    "midge_normalize_f32": (*(_array,) * 5, _size, _size),
    "midge_batch_norm_f32": (*(_array,) * 8, _size, _size, ctypes.c_double),
    "midge_batch_norm_grad_f32": (*(_array,) * 10, _size, _size),
}


def vector_flags() -> tuple[str, ...]:
    """Return the flags for the widest vectors that this machine has."""
    features = cpu_features()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"} <= features:
        return ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma")
    if {"avx2", "fma"} <= features:
        return ("-mavx2", "-mfma")
    return ()


@cache
def load() -> Any:
    """Return the compiled kernels, or None where there is no compiler.

    A compiler that fails is told in a RuntimeWarning; the twins then do the work.
    """
    try:
        path = compile_shared([FOLDER / name for name in SOURCES], flags=(*_FLAGS, *vector_flags()))
        library = ctypes.CDLL(str(path))
    except InputError:
        return None
    except (ToolError, OSError) as error:
        warnings.warn(f"the fast kernels are off: {error}", RuntimeWarning, stacklevel=2)
        return None
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    return library


def library_for(*arrays: Array) -> Any:
    """Return the compiled kernels if they can work on these arrays (None entries are skipped)."""
    for array in arrays:
        if array is not None and (type(array) is not np.ndarray or array.dtype != np.float32):
            return None
    return load()


def address(array: Array) -> int:
    """Return the address of the first element; a kernel needs no more of a contiguous array."""
    result: int = array.__array_interface__["data"][0]
    return result
