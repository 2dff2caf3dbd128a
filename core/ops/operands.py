"""From what the user wrote (tensors, arrays, numbers) to tensors of one dtype."""

from typing import Any

import numpy as np

from midge.core.backend import is_array
from midge.core.device import move
from midge.core.dtypes import DEFAULT_FLOAT, DType, combine, is_float, number_dtype, promote
from midge.core.errors import InputError
from midge.core.tensor import Tensor


def as_tensor(value: Any) -> Tensor:
    """Return a tensor for a Tensor, an array or a Python number."""
    if isinstance(value, Tensor):
        return value
    if is_array(value):
        return Tensor(value)
    if isinstance(value, bool | int | float):
        return Tensor(np.asarray(value, number_dtype(value)))
    raise InputError(
        f"an operand must be a Tensor, an array or a number, not {type(value).__name__}."
    )


def _number(value: Any) -> bool | int | float | None:
    """Return a Python number for a Python or NumPy scalar, None for everything else."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, bool | int | float) else None


def result_type(*values: Any) -> DType:
    """Return the dtype of an expression of tensors, arrays and numbers, as PyTorch does."""
    found: list[DType | None] = [None, None, None]
    for value in values:
        number = _number(value)
        if number is not None:
            kind, dtype = 2, number_dtype(number)
        else:
            tensor = as_tensor(value)
            kind, dtype = (0 if tensor.shape else 1), tensor.dtype
        seen = found[kind]
        found[kind] = dtype if seen is None else promote(seen, dtype)
    return combine(*found)


def pair(a: Any, b: Any, *, floating: bool = False) -> tuple[Tensor, Tensor]:
    """Return both operands as tensors of their common dtype.

    Args:
        a: left operand.
        b: right operand.
        floating: integers become float32, as for division.
    """
    # The common case, without properties.
    same = type(a) is Tensor and type(b) is Tensor and a.array.dtype == b.array.dtype
    if same and not (floating and a.array.dtype.kind != "f"):
        return a, b
    if isinstance(a, Tensor):
        dtype = a.dtype
        if isinstance(b, Tensor):
            if dtype == b.dtype and not (floating and dtype.kind != "f"):
                return a, b
        elif dtype.kind == "f" and type(b) in (float, int):
            return a, _cast(b, dtype, a)
    dtype = result_type(a, b)
    if floating and not is_float(dtype):
        dtype = DEFAULT_FLOAT
    return _cast(a, dtype, b), _cast(b, dtype, a)


def _cast(value: Any, dtype: DType, other: Any) -> Tensor:
    """Return `value` as a tensor of `dtype`; a number goes to the device of `other`."""
    number = _number(value)
    if number is None:
        return as_tensor(value).to(dtype)
    try:
        array = np.asarray(number, dtype)
    except OverflowError:
        raise InputError(f"the number {number} does not fit into {dtype}.") from None
    return Tensor(move(array, other.device) if isinstance(other, Tensor) else array)


def floating(x: Any) -> Tensor:
    """Return the operand as a float tensor: integers and bools become float32."""
    tensor = as_tensor(x)
    return tensor if tensor.dtype.kind == "f" else tensor.to(DEFAULT_FLOAT)


def dim_index(dim: int, ndim: int, what: str) -> int:
    """Return `dim` in 0..ndim-1.

    Raises:
        InputError: out of range.
    """
    limit = max(ndim, 1)  # a 0-dim tensor accepts dim 0 and -1
    if not -limit <= dim < limit:
        raise InputError(
            f"{what}: dim {dim} is outside {-limit}..{limit - 1}, the dims of a {ndim}-dim tensor."
        )
    return int(dim) % limit


def dim_tuple(dim: Any, ndim: int, what: str) -> tuple[int, ...]:
    """Return the sorted dims that None (all), an int or a sequence of ints names."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    found = tuple(sorted(dim_index(d, ndim, what) for d in dims))
    if len(set(found)) != len(found):
        raise InputError(f"{what}: a dim is named twice in {list(dims)}.")
    return found if ndim else ()
