"""Data types: names, defaults and promotion, all as PyTorch's.

The type of a result is decided by category first (bool < integer < float). Within one category a
0-dim tensor or a Python number never widens a tensor that has dimensions, so `x_f32 * 0.5` and
`x_f32 * scalar_f64` stay float32. NumPy's own rules differ, hence this module.
"""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from midge.core.errors import InputError, did_you_mean

DType: TypeAlias = np.dtype[Any]
DTypeLike: TypeAlias = Any

float16: DType = np.dtype("float16")
float32: DType = np.dtype("float32")
float64: DType = np.dtype("float64")
int8: DType = np.dtype("int8")
int16: DType = np.dtype("int16")
int32: DType = np.dtype("int32")
int64: DType = np.dtype("int64")
uint8: DType = np.dtype("uint8")
bool_: DType = np.dtype("bool")

_DTYPES = {str(d): d for d in (float16, float32, float64, int8, int16, int32, int64, uint8, bool_)}
DEFAULT_FLOAT = float32
DEFAULT_INT = int64
_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}


def as_dtype(dtype: DTypeLike) -> DType:
    """Return the numpy dtype of a dtype, a type or a name such as "float32".

    Raises:
        InputError: not one of float16/32/64, int8/16/32/64, uint8 and bool.
    """
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or str(found) not in _DTYPES:
        raise InputError(
            f"dtype {dtype!r} is not supported; use one of {', '.join(_DTYPES)}."
            f"{did_you_mean(str(dtype), _DTYPES)}"
        )
    return _DTYPES[str(found)]


def is_float(dtype: DType) -> bool:
    """Tell whether tensors of this type can have gradients."""
    return dtype.kind == "f"


def category(dtype: DType) -> int:
    """Return 0 for bool, 1 for integers, 2 for floats."""
    return _CATEGORY[dtype.kind]


def number_dtype(value: bool | int | float) -> DType:
    """Return the type that a Python number stands for in a mixed expression."""
    if isinstance(value, bool):
        return bool_
    return DEFAULT_INT if isinstance(value, int) else DEFAULT_FLOAT


def default_dtype(array_dtype: DType) -> DType:
    """Return the type `tensor(data)` gives to Python data that NumPy reads as `array_dtype`."""
    if array_dtype.kind == "f":
        return DEFAULT_FLOAT
    if array_dtype.kind in "iu":
        return DEFAULT_INT
    return as_dtype(array_dtype)


@lru_cache(maxsize=512)
def promote(a: DType, b: DType) -> DType:
    """Return the common type of two tensors that both have dimensions."""
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    return np.promote_types(a, b)


@lru_cache(maxsize=4096)
def combine(dimensioned: DType | None, zero_dim: DType | None, number: DType | None) -> DType:
    """Return the type of an expression.

    Args:
        dimensioned: common type of the operands with dimensions, None without such.
        zero_dim: common type of the 0-dim tensors.
        number: common type of the Python numbers.
    """
    result: DType | None = None
    for lower in (number, zero_dim, dimensioned):
        if lower is None:
            continue
        if result is None or category(lower) >= category(result):
            result = lower
    if result is None:
        raise InputError("an expression needs at least one operand.")
    return result
