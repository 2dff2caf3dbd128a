"""Rows that move elements: shapes, slices, joins, padding, and what is asked of shapes."""

from math import prod
from typing import Any

import numpy as np

from midge.convert.to_module_call import (
    Call,
    Table,
    array,
    axes_of,
    axis_of,
    beside,
    dtype_of,
    exact,
    ints,
    number,
)
from midge.core import ops
from midge.core.errors import InputError
from midge.core.tensor import Tensor


def _reshape(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    """Return x in another shape; 0 keeps a size unless allowzero is set."""
    wanted = list(ints(shape))
    if not call.get("allowzero", 0):
        for axis, n in enumerate(wanted):
            if n == 0 and axis >= x.ndim:
                raise InputError(f"size {axis} of the shape {wanted} is 0, and the input has none.")
            wanted[axis] = x.shape[axis] if n == 0 else n
    return ops.reshape(x, wanted)


def _transpose(call: Call, x: Tensor) -> Tensor:
    return ops.permute(x, call.get("perm", range(x.ndim)[::-1]))


def _squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return ops.squeeze(x, axes_of(call, axes, x.ndim))


def _unsqueeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    given = ints(axes) if axes is not None else call.get("axes")
    ndim = x.ndim + len(given)
    shape, old = [1] * ndim, iter(x.shape)
    new = {a % ndim for a in given}
    return ops.reshape(x, [1 if d in new else next(old) for d in range(len(shape))])


def _flatten(call: Call, x: Tensor) -> Tensor:
    axis = axis_of(call, x.ndim, 1)
    lead = x.shape[:axis]
    return ops.reshape(x, (prod(lead), prod(x.shape[axis:])))


def _expand(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    try:
        return ops.expand(x, np.broadcast_shapes(x.shape, ints(shape)))
    except ValueError as error:
        raise InputError(f"{list(x.shape)} and {list(ints(shape))} do not broadcast.") from error


def _tile(call: Call, x: Tensor, repeats: Tensor) -> Tensor:
    times = ints(repeats)
    pairs = [(t, n) for t, n in zip(times, x.shape, strict=True)]
    y = ops.reshape(x, [size for _, n in pairs for size in (1, n)])
    y = ops.expand(y, [size for pair in pairs for size in pair])
    return ops.reshape(y, [t * n for t, n in pairs])


def _concat(call: Call, *xs: Tensor) -> Tensor:
    return ops.concat(xs, axis_of(call, xs[0].ndim))


def _split(call: Call, x: Tensor, sizes: Tensor | None = None) -> Any:
    dim = axis_of(call, x.ndim)
    if sizes is not None:
        parts = list(ints(sizes))
    else:
        count = int(call.get("num_outputs", call.outputs))
        size = -(-x.shape[dim] // count)
        parts = [max(min(size, x.shape[dim] - i * size), 0) for i in range(count)]
    found = ops.split(x, parts, dim)
    return found if len(found) > 1 else found[0]


def _slice(
    call: Call,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    first, last = ints(starts), ints(ends)
    dims = range(len(first)) if axes is None else [a % x.ndim for a in ints(axes)]
    strides = (1,) * len(first) if steps is None else ints(steps)
    keys = [slice(None)] * x.ndim
    for dim, start, stop, step in zip(dims, first, last, strides, strict=True):
        if step > 0:
            keys[dim] = slice(start, stop, step)
        else:
            places = _backwards(x.shape[dim], start, stop, step)
            x = ops.index_select(x, dim, beside(x, places, np.dtype(np.int64)))
    return x[tuple(keys)] if any(k != slice(None) for k in keys) else x


def _backwards(size: int, start: int, stop: int, step: int) -> range:
    """Return the places of a slice with a negative step; ONNX counts from the end once only."""
    start = min(start + size if start < 0 else start, size - 1)
    stop = max(stop + size if stop < 0 else stop, -1)
    return range(start, stop, step)


def _pad(
    call: Call,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    """Pad with a constant, the edge, a reflection or the other end; negative pads cut."""
    amounts, dims = ints(pads), axes_of(call, axes, x.ndim)
    dims = tuple(range(x.ndim)) if dims is None else dims
    mode = call.get("mode", "constant")
    if mode != "constant":
        for dim, before, after in zip(dims, amounts, amounts[len(dims) :], strict=False):
            x = _pad_by_index(x, dim, before, after, mode)
        return x
    sides = {d: (amounts[i], amounts[i + len(dims)]) for i, d in enumerate(dims)}
    pairs = [sides.get(d, (0, 0)) for d in range(x.ndim)]
    cut = tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(x.shape, pairs, strict=True))
    if any(min(pair) < 0 for pair in pairs):
        x = x[cut]
    amount = [max(p, 0) for pair in reversed(pairs) for p in pair]
    return ops.pad(x, amount, 0.0 if value is None else number(value))


def _pad_by_index(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    cut = np.arange(x.shape[dim])[max(-before, 0) : x.shape[dim] - max(-after, 0)]
    amount = (max(before, 0), max(after, 0))
    if not any(amount) and len(cut) == x.shape[dim]:
        return x
    wide: Any = np.pad  # its types know the modes as literals only
    return ops.index_select(x, dim, beside(x, wide(cut, amount, mode=mode), np.dtype(np.int64)))


def _shape(call: Call, x: Tensor) -> Tensor:
    """Return the shape as a constant: a run with other sizes computes it again."""
    part = x.shape[slice(call.get("start", 0), call.get("end"))]
    return beside(x, part, np.dtype(np.int64))


def _size(call: Call, x: Tensor) -> Tensor:
    return beside(x, prod(x.shape), np.dtype(np.int64))


def _constant_of_shape(call: Call, shape: Tensor) -> Tensor:
    given = call.get("value")
    value = np.zeros(1, np.float32) if given is None else np.asarray(given.numpy())
    return beside(shape, np.broadcast_to(value, ints(shape)).copy(), value.dtype)


def _range(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    first, last, step = (array(x).reshape(()).item() for x in (start, limit, delta))
    count = max(int(np.ceil((last - first) / step)), 0)
    return beside(start, first + np.arange(count) * step)


def _eye_like(call: Call, x: Tensor) -> Tensor:
    kind = call.get("dtype")
    dtype = x.dtype if kind is None else dtype_of(call, kind)
    rows, columns = x.shape
    return beside(x, np.eye(rows, columns, call.get("k", 0)), dtype)


def _trilu(call: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
    """Return x with zeros below or above a diagonal."""
    diagonal = 0 if k is None else int(number(k))
    ones = np.ones(x.shape[-2:], bool)
    kept = np.triu(ones, diagonal) if call.get("upper", 1) else np.tril(ones, diagonal)
    return ops.where(beside(x, kept, np.dtype(bool)), x, beside(x, 0))


def _non_zero(call: Call, x: Tensor) -> Tensor:
    return exact(lambda a: np.array(np.nonzero(a), np.int64), x)


MOVES: Table = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "NonZero": _non_zero,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
