"""Tensors from data, from constants and from random numbers, as PyTorch names them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from midge.core.backend import Array, is_array
from midge.core.device import CPU, as_device, move
from midge.core.dtypes import DEFAULT_FLOAT, DType, as_dtype, default_dtype, number_dtype
from midge.core.errors import InputError
from midge.core.random import Generator, default_generator
from midge.core.tensor import Tensor


def _finish(array: Array, device: Any, requires_grad: bool) -> Tensor:
    target = CPU if device is None else as_device(device)
    return Tensor(move(array, target), requires_grad)


def _float_type(dtype: Any) -> DType:
    return DEFAULT_FLOAT if dtype is None else as_dtype(dtype)


def _sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Accept both zeros(2, 3) and zeros((2, 3))."""
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    sizes = tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes):
        raise InputError(f"shape {list(sizes)} has a negative size.")
    return sizes


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor with a copy of `data`.

    Args:
        data: number, nested lists, array or tensor. Python floats become float32, ints int64,
            bools bool; arrays and NumPy scalars keep their dtype.
        dtype: other dtype.
        device: "cpu" or "cuda[:N]"; default the data's own.
        requires_grad: record operators on the result.
    """
    if isinstance(data, Tensor):
        array = data.detach().array.copy()
    elif is_array(data) or isinstance(data, np.generic):
        array = data.copy() if is_array(data) else np.asarray(data)
        as_dtype(array.dtype)
    else:
        array = _from_python(data, dtype)
    if dtype is not None:
        array = array.astype(as_dtype(dtype), copy=False)
    if device is None and is_array(array):
        return Tensor(array, requires_grad)
    return _finish(array, device, requires_grad)


def _from_python(data: Any, dtype: Any) -> Array:
    try:
        plain = _plain(data)
        array = np.array(plain)
        if array.size == 0 and array.dtype.kind == "f":
            return array.astype(DEFAULT_FLOAT)
        if dtype is not None:
            return np.array(plain, as_dtype(dtype))
        return array.astype(default_dtype(array.dtype), copy=False)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"tensor(): the data is no regular array of numbers ({error}).") from None


def _plain(data: Any) -> Any:
    """Return nested lists with tensors replaced by their numbers."""
    if isinstance(data, Tensor):
        return data.tolist()
    return [_plain(item) for item in data] if isinstance(data, list | tuple) else data


def from_numpy(array: Array) -> Tensor:
    """Return a tensor on the memory of a NumPy array, with its dtype and strides."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"from_numpy needs a NumPy array, not {type(array).__name__}.")
    as_dtype(array.dtype)
    return Tensor(array)


def zeros(
    *shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros."""
    return _finish(np.zeros(_sizes(shape), _float_type(dtype)), device, requires_grad)


def ones(*shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return ones."""
    return _finish(np.ones(_sizes(shape), _float_type(dtype)), device, requires_grad)


def empty(
    *shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros as well: memory that nobody wrote makes runs differ."""
    return zeros(*shape, dtype=dtype, device=device, requires_grad=requires_grad)


def full(
    shape: Sequence[int],
    value: float,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return one value everywhere; its type decides the dtype."""
    kind = number_dtype(value) if dtype is None else as_dtype(dtype)
    return _finish(np.full(_sizes((shape,)), value, kind), device, requires_grad)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return start, start + step, ... below stop; int64 for ints, else float32."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise InputError("arange: the step must not be 0.")
    whole = all(isinstance(v, int) for v in (start, stop, step))
    kind = (np.dtype(np.int64) if whole else DEFAULT_FLOAT) if dtype is None else as_dtype(dtype)
    return _finish(np.arange(start, stop, step).astype(kind), device, requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `steps` numbers from start to end, both included."""
    values = np.linspace(start, end, steps).astype(_float_type(dtype))
    return _finish(values, device, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the n x m matrix with ones on the diagonal."""
    return _finish(np.eye(n, m, dtype=_float_type(dtype)), device, requires_grad)


def rand(
    *shape: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return numbers drawn evenly from [0, 1)."""
    source = generator or default_generator
    return _finish(source.uniform(_sizes(shape), _float_type(dtype)), device, requires_grad)


def randn(
    *shape: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return standard normal numbers."""
    source = generator or default_generator
    return _finish(source.normal(_sizes(shape), _float_type(dtype)), device, requires_grad)


def randint(
    low: int,
    high: int,
    shape: Sequence[int],
    *,
    generator: Generator | None = None,
    device: Any = None,
) -> Tensor:
    """Return int64 numbers from low..high-1."""
    return _finish((generator or default_generator).integers(low, high, shape), device, False)


def randperm(n: int, *, generator: Generator | None = None, device: Any = None) -> Tensor:
    """Return 0..n-1 in random order."""
    return _finish((generator or default_generator).permutation(n), device, False)


def zeros_like(x: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Return zeros with the shape, dtype and device of x."""
    kind = x.dtype if dtype is None else dtype
    return zeros(x.shape, dtype=kind, device=x.device, requires_grad=requires_grad)


def ones_like(x: Tensor, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Return ones with the shape, dtype and device of x."""
    kind = x.dtype if dtype is None else dtype
    return ones(x.shape, dtype=kind, device=x.device, requires_grad=requires_grad)
