"""Indexing: basic keys become slice and reshape, integer and bool arrays become gathers."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, is_array, xp_of
from midge.core.dtypes import int64
from midge.core.errors import InputError
from midge.core.ops.operands import as_tensor, dim_index
from midge.core.ops.samples import distinct
from midge.core.ops.shape import SLICE, narrow, permute, reshape
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor

Ints = tuple[int, ...]


def _index_select(ctx: Node, x: Array, index: Array, *, dim: int) -> Array:
    ctx.save(1)
    return xp_of(x, index).take(x, index, axis=dim)


def _index_select_backward(ctx: Node, grad: Tensor) -> Gradients:
    (index,) = ctx.saved_tensors
    attributes = {"dim": ctx.attributes["dim"], "shape": ctx.input_shape(0)}
    return apply(INDEX_ADD, (grad, index), attributes), None


def _index_add(ctx: Node, grad: Array, index: Array, *, dim: int, shape: Ints) -> Array:
    """Add slices of `grad` to zeros of `shape` at `index` along `dim`, in order."""
    ctx.save(1)
    xp = xp_of(grad, index)
    total = xp.zeros(shape, grad.dtype)
    rows = xp.moveaxis(total, dim, 0)
    axes = tuple(range(dim, dim + index.ndim))
    parts = xp.moveaxis(grad, axes, tuple(range(index.ndim)))
    xp.add.at(rows, index, parts)
    return total


def _index_add_backward(ctx: Node, grad: Tensor) -> Gradients:
    (index,) = ctx.saved_tensors
    return apply(INDEX_SELECT, (grad, index), {"dim": ctx.attributes["dim"]}), None


def _gather(ctx: Node, x: Array, index: Array, *, dim: int) -> Array:
    ctx.save(1)
    return x[_places(index, dim)]


def _gather_backward(ctx: Node, grad: Tensor) -> Gradients:
    (index,) = ctx.saved_tensors
    attributes = {"dim": ctx.attributes["dim"], "shape": ctx.input_shape(0)}
    return apply(SCATTER_ADD, (grad, index), attributes), None


def _scatter_add(ctx: Node, grad: Array, index: Array, *, dim: int, shape: Ints) -> Array:
    """Add the elements of `grad` to zeros of `shape`, each at `index` along `dim`."""
    ctx.save(1)
    xp = xp_of(grad, index)
    total = xp.zeros(shape, grad.dtype)
    xp.add.at(total, _places(index, dim), grad)
    return total


def _scatter_add_backward(ctx: Node, grad: Tensor) -> Gradients:
    (index,) = ctx.saved_tensors
    return apply(GATHER, (grad, index), {"dim": ctx.attributes["dim"]}), None


def _places(index: Array, dim: int) -> tuple[Array, ...]:
    """Return one index array per dim: `index` along `dim`, the own position along the others."""
    own = list(xp_of(index).ogrid[tuple(slice(n) for n in index.shape)])
    own[dim] = index
    return tuple(own)


def _index_select_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 4, 3), np.array([0, 2, 2])), {"dim": 0})
    yield Sample((distinct(rng, 2, 4), np.array([[1, 3], [1, 0]])), {"dim": 1})
    yield Sample((distinct(rng, 2, 4, 2), np.array(1)), {"dim": 1})
    yield Sample((distinct(rng, 2, 3), np.zeros(0, np.int64)), {"dim": 1})


def _index_add_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 3, 3), np.array([0, 2, 2])), {"dim": 0, "shape": (4, 3)})
    index = np.array([[1, 3], [1, 0]])
    yield Sample((distinct(rng, 2, 2, 2), index), {"dim": 1, "shape": (2, 4)})


def _gather_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 3, 4), np.array([[3], [0], [3]])), {"dim": 1})
    yield Sample((distinct(rng, 3, 2), np.array([[0, 2], [2, 2]])), {"dim": 0})


def _scatter_add_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 3, 1), np.array([[3], [0], [3]])), {"dim": 1, "shape": (3, 4)})
    yield Sample((distinct(rng, 2, 2), np.array([[0, 2], [2, 2]])), {"dim": 0, "shape": (3, 2)})


INDEX_SELECT = register(
    OpSpec("index_select", "Gather", _index_select, _index_select_backward, _index_select_samples)
)
INDEX_ADD = register(OpSpec("index_add", "", _index_add, _index_add_backward, _index_add_samples))
GATHER = register(OpSpec("gather", "GatherElements", _gather, _gather_backward, _gather_samples))
SCATTER_ADD = register(
    OpSpec("scatter_add", "", _scatter_add, _scatter_add_backward, _scatter_add_samples)
)


def _indices(index: Any, size: int, what: str) -> Tensor:
    """Return an int64 tensor of indices >= 0.

    Raises:
        InputError: not integers, or out of range.
    """
    tensor = as_tensor(np.asarray(index) if isinstance(index, list | tuple) else index)
    if tensor.array.size == 0:
        return tensor.to(int64)
    if tensor.dtype.kind not in "iu":
        raise InputError(f"{what}: an index must be integers or bools, not {tensor.dtype}.")
    low, high = int(tensor.array.min()), int(tensor.array.max())
    if low < -size or high >= size:
        raise InputError(
            f"{what}: index {low if low < -size else high} is out of range 0..{size - 1}."
        )
    tensor = tensor.to(int64)
    if low < 0:
        tensor = Tensor(
            xp_of(tensor.array).where(tensor.array < 0, size + tensor.array, tensor.array)
        )
    return tensor


def index_select(x: Any, dim: int, index: Any) -> Tensor:
    """Return the entries `index` along `dim`; the index's dims take the place of `dim`."""
    x = as_tensor(x)
    at = dim_index(dim, x.ndim, "index_select")
    if x.ndim == 0:
        raise InputError("index_select: a 0-dim tensor has no entries to select.")
    return apply(INDEX_SELECT, (x, _indices(index, x.shape[at], "index_select")), {"dim": at})


def gather(x: Any, dim: int, index: Any) -> Tensor:
    """Return out[i][j] = x[index[i][j]][j] for dim 0, and so on for the other dims."""
    x, index = as_tensor(x), as_tensor(index)
    at = dim_index(dim, x.ndim, "gather")
    fits = [i <= n for d, (i, n) in enumerate(zip(index.shape, x.shape, strict=False)) if d != at]
    if index.ndim != x.ndim or not all(fits):
        raise InputError(
            f"gather: the index {list(index.shape)} must have the dims of {list(x.shape)} and not "
            f"exceed them outside dim {at}."
        )
    return apply(GATHER, (x, _indices(index, x.shape[at], "gather")), {"dim": at})


def unbind(x: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Return the views along `dim`, each without it."""
    x = as_tensor(x)
    if x.ndim == 0:
        raise InputError("a 0-dim tensor cannot be iterated over; use item().")
    at = dim_index(dim, x.ndim, "unbind")
    rest = (*x.shape[:at], *x.shape[at + 1 :])
    return tuple(reshape(narrow(x, at, i, 1), rest) for i in range(x.shape[at]))


def _is_mask(key: Any) -> bool:
    array = key.dtype if isinstance(key, Tensor) else getattr(key, "dtype", None)
    return array is not None and array.kind == "b" and key.ndim > 0


def is_list(key: Any) -> bool:
    """Tell whether a key is an array of indices (a 0-dim integer tensor counts as an int)."""
    return isinstance(key, list) or ((isinstance(key, Tensor) or is_array(key)) and key.ndim > 0)


def getitem(x: Any, key: Any) -> Tensor:
    """Return x[key].

    Ints, slices with positive steps, None and ... give a view. One or several integer arrays in
    neighbouring positions, or one bool mask, give a copy.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    if len(keys) == 1 and _is_mask(keys[0]):
        return _masked(x, as_tensor(keys[0]))
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > x.ndim:
        raise InputError(f"index: {used} indices for a tensor of shape {list(x.shape)}.")
    rest = [slice(None)] * (x.ndim - used)
    dots = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    keys[dots : dots + 1] = rest
    starts: list[int] = []
    stops: list[int] = []
    steps: list[int] = []
    shape: list[int] = []
    arrays: list[tuple[int, Any]] = []
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        size = x.shape[len(starts)]
        if is_list(k):
            arrays.append((len(shape), k))
            k = slice(None)
        start, stop, step = _range(k, size, x.shape)
        starts.append(start)
        stops.append(stop)
        steps.append(step)
        if isinstance(k, slice):
            shape.append(len(range(start, stop, step)))
    y = x
    if tuple(stops) != x.shape or any(starts) or any(s != 1 for s in steps):
        attributes = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
        y = apply(SLICE, (x,), attributes)
    y = reshape(y, shape)
    if y is x and not arrays:
        y = apply(SLICE, (x,), {"starts": tuple(starts), "stops": x.shape, "steps": tuple(steps)})
    return _select_lists(y, arrays) if arrays else y


def _range(key: Any, size: int, shape: Ints) -> Ints:
    """Return start, stop and step of an int or a slice along a dim of `size`."""
    if isinstance(key, slice):
        if key.step is not None and int(key.step) <= 0:
            raise InputError(f"index: the step {key.step} must be positive; flip the data instead.")
        start, stop, step = key.indices(size)
        return start, max(start, stop), step
    try:
        if isinstance(key, bool) or getattr(getattr(key, "dtype", None), "kind", "") == "b":
            raise TypeError  # as an int, True would be row 1
        index = key.__index__()
    except (AttributeError, TypeError):
        raise InputError(
            f"index: {type(key).__name__} is no index; use ints, slices, None, ... or int arrays."
        ) from None
    if not -size <= index < size:
        raise InputError(f"index: {index} is out of range for a dim of {size} in {list(shape)}.")
    start = index % size
    return start, start + 1, 1


def _select_lists(x: Tensor, arrays: Sequence[tuple[int, Any]]) -> Tensor:
    """Index neighbouring dims by integer arrays that broadcast together."""
    first = arrays[0][0]
    if [d for d, _ in arrays] != list(range(first, first + len(arrays))):
        raise InputError("index: integer arrays must stand in neighbouring positions.")
    dims = x.shape[first : first + len(arrays)]
    if any(_is_mask(a) for _, a in arrays):
        raise InputError("index: a bool mask must be the only index.")
    flat: Any = 0
    for size, (_, array) in zip(dims, arrays, strict=True):
        flat = flat * size + _indices(array, size, "index")
    joined = (*x.shape[:first], prod(dims), *x.shape[first + len(arrays) :])
    return index_select(reshape(x, joined), first, flat)


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    """Return the elements where `mask`, which covers the leading dims, is true."""
    if mask.shape != x.shape[: mask.ndim]:
        raise InputError(f"index: the mask {list(mask.shape)} does not cover {list(x.shape)}.")
    index = xp_of(mask.array).flatnonzero(mask.array)
    flat = reshape(x, (prod(mask.shape), *x.shape[mask.ndim :]))
    return index_select(flat, 0, Tensor(index))


def matrix_transpose(x: Any) -> Tensor:
    """Return the transpose of a matrix; fewer dims stay as they are."""
    x = as_tensor(x)
    if x.ndim > 2:
        raise InputError(f"t(): {x.ndim} dims; use permute or transpose.")
    return permute(x, range(x.ndim)[::-1])
