"""Rows that pick or place elements by index: Gather, Scatter, TopK, OneHot, Resize, Einsum."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from midge.convert.to_module_call import Call, Ints, Table, array, axis_of, beside, ints
from midge.convert.to_module_einsum import einsum
from midge.convert.to_module_resize import resize
from midge.core import ops
from midge.core.backend import Array
from midge.core.errors import InputError
from midge.core.ops.index import INDEX_ADD
from midge.core.opspec import apply
from midge.core.tensor import Tensor

INT64, BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def _gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    return ops.index_select(x, axis_of(call, x.ndim), indices)


def _gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    return ops.gather(x, axis_of(call, x.ndim), indices)


def _positive(index: Array, size: Any) -> Array:
    """Return indices counted from the start.

    Raises:
        InputError: one lies outside.
    """
    if bool(((index < -size) | (index >= size)).any()):
        raise InputError(f"an index lies outside {size}.")
    return np.where(index < 0, index + size, index).astype(np.int64)


def _flat(indices: Tensor, shape: Ints) -> Array:
    """Return the places in C order of indices [..., k] into axes of this shape."""
    given = _positive(array(indices), np.array(shape, np.int64))
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    flat: Array = given @ np.array(strides, np.int64)
    return flat


def _gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    lead, depth = int(call.get("batch_dims", 0)), indices.shape[-1]
    inner = x.shape[lead : lead + depth]
    flat = _flat(indices, inner)
    batch = np.arange(prod(x.shape[:lead])) * prod(inner)
    flat = flat + batch.reshape(*x.shape[:lead], *[1] * (flat.ndim - lead))
    rows = ops.reshape(x, (prod(x.shape[: lead + depth]), *x.shape[lead + depth :]))
    return ops.index_select(rows, 0, beside(x, flat, INT64))


# What a scattered value becomes with the one that is there, by the attribute `reduction`.
REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda x, update: update,
    "add": lambda x, update: x + update,
    "mul": lambda x, update: x * update,
    "max": ops.maximum,
    "min": ops.minimum,
}


def _scattered(call: Call, rows: Tensor, flat: Array, parts: Tensor) -> Tensor:
    """Return rows [n, ...] with parts [k, ...] put in at the places flat [k].

    A place that is named several times meets its parts one after another.
    """
    reduce = REDUCTIONS[call.get("reduction", "none")]
    rest = [1] * (rows.ndim - 1)
    for taken in _rounds(flat):
        part = ops.index_select(parts, 0, beside(rows, taken, INT64))
        index = beside(rows, flat[taken], INT64)
        placed = apply(INDEX_ADD, (part, index), {"dim": 0, "shape": rows.shape})
        hit = np.zeros(len(rows), bool)
        hit[flat[taken]] = True
        rows = ops.where(beside(rows, hit.reshape(-1, *rest), BOOL), reduce(rows, placed), rows)
    return rows


def _rounds(flat: Array) -> Iterator[Array]:
    """Yield indices into flat, none of whose places occurs twice, in order."""
    order = np.argsort(flat, kind="stable")
    sorted_ = flat[order]
    first = np.searchsorted(sorted_, sorted_)  # of the equal ones
    nth = np.empty(len(flat), np.int64)
    nth[order] = np.arange(len(flat)) - first
    for i in range(int(nth.max(initial=-1)) + 1):
        yield np.flatnonzero(nth == i)


def _scatter_nd(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    depth = indices.shape[-1]
    rest = x.shape[depth:]
    flat = _flat(indices, x.shape[:depth]).reshape(-1)
    rows = ops.reshape(x, (prod(x.shape[:depth]), *rest))
    parts = ops.reshape(updates, (len(flat), *rest))
    return ops.reshape(_scattered(call, rows, flat, parts), x.shape)


def _scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    dim = axis_of(call, x.ndim)
    places = list(np.indices(indices.shape))
    places[dim] = _positive(array(indices), x.shape[dim])
    flat = np.ravel_multi_index(tuple(places), x.shape).reshape(-1)
    rows, parts = (ops.reshape(t, (-1,)) for t in (x, updates))
    return ops.reshape(_scattered(call, rows, flat, parts), x.shape)


def _top_k(call: Call, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k largest or smallest values along an axis and their indices, ties in order."""
    dim, (count,) = axis_of(call, x.ndim, -1), ints(k)
    values = array(x.detach())
    keys = values if values.dtype.kind == "f" else values.astype(np.int64)
    order = np.argsort(-keys if call.get("largest", 1) else keys, axis=dim, kind="stable")
    index = beside(x, np.take(order, np.arange(count), axis=dim), INT64)
    return ops.gather(x, dim, index), index


def _one_hot(call: Call, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """Return on where the index is met, else off; an index outside meets nothing."""
    (count,) = ints(depth)
    axis = axis_of(call, indices.ndim + 1, -1)
    where = ops.cast(indices, INT64)
    where = ops.where(ops.lt(where, 0), where + count, where)
    classes = np.arange(count).reshape([-1 if d == axis else 1 for d in range(indices.ndim + 1)])
    met = ops.eq(ops.unsqueeze(where, axis), beside(where, classes))
    return ops.where(met, values[1], values[0])


def _compress(call: Call, x: Tensor, condition: Tensor) -> Tensor:
    """Return the entries along an axis, or of the flat tensor, where the condition is true."""
    kept = beside(x, np.flatnonzero(array(condition)), INT64)
    if call.get("axis") is None:
        return ops.index_select(ops.reshape(x, (-1,)), 0, kept)
    return ops.index_select(x, axis_of(call, x.ndim), kept)


def _reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    """Turn the first entries of each sequence round; the rest stays."""
    batch, time = axis_of(call, x.ndim, 1, "batch_axis"), axis_of(call, x.ndim, 0, "time_axis")
    steps, ends = np.arange(x.shape[time]), array(lengths).reshape(-1, 1)
    index = np.where(steps < ends, ends - 1 - steps, steps)
    shape = [x.shape[d] if d in (batch, time) else 1 for d in range(x.ndim)]
    index = (index if batch < time else index.T).reshape(shape)
    return ops.gather(x, time, beside(x, np.broadcast_to(index, x.shape), INT64))


PICKS: Table = {
    "Compress": _compress,
    "Einsum": einsum,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Resize": resize,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _top_k,
}
