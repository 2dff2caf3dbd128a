"""Reductions over dims: sum, mean, largest, smallest, and what is built from them.

Float sums are taken in one memory order (backend.canonical), whatever the strides of the input.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, canonical, inverse, xp_of
from midge.core.dtypes import float32, int64
from midge.core.errors import InputError
from midge.core.ops import shape as shaping
from midge.core.ops.operands import as_tensor, dim_index, dim_tuple
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor

Dims = int | Sequence[int] | None
# Rows that are added one after another before their sum joins the total: bounds the float error.
_BLOCK = 256


def sum_array(x: Array, dim: tuple[int, ...], keepdim: bool) -> Array:
    """Sum a float array over `dim` in canonical order; float16 is summed and returned in float32.

    NumPy adds the rows of a leading memory axis one by one, with an error that grows with their
    number; they are taken in blocks here. Along the innermost axis it sums pairwise itself.
    """
    wide = float32 if x.dtype.itemsize == 2 else x.dtype
    if not dim:
        return x.astype(wide)
    x = canonical(x)
    order = (0, 2, 3, 1) if x.ndim == 4 else tuple(range(x.ndim))
    count = len(dim)
    rows = prod([x.shape[d] for d in dim])
    if count == x.ndim or rows < 2 * _BLOCK or set(order[:count]) != set(dim):
        return x.sum(axis=dim, keepdims=keepdim, dtype=wide)
    total = _sum_rows(x.transpose(order).reshape(rows, -1), wide)
    if x.ndim == 4:
        kept = order[count:]  # in memory order; the logical order is ascending
        total = total.reshape([x.shape[d] for d in kept]).transpose(inverse(kept))
    shape = [1 if d in dim else x.shape[d] for d in range(x.ndim) if keepdim or d not in dim]
    return total.reshape(shape)


def _sum_rows(x: Array, dtype: Any) -> Array:
    """Sum the rows of a C-ordered matrix: blocks first, then the blocks' sums."""
    whole = len(x) // _BLOCK * _BLOCK
    blocks = x[:whole].reshape(-1, _BLOCK, x.shape[1]).sum(axis=1, dtype=dtype)
    total = blocks.sum(axis=0)
    return total + x[whole:].sum(axis=0, dtype=dtype) if whole < len(x) else total


def spread(grad: Tensor, shape: tuple[int, ...], dim: tuple[int, ...], keepdim: bool) -> Tensor:
    """Return a reduced gradient, repeated along the reduced dims of `shape`."""
    if not keepdim and dim:
        grad = shaping.reshape(grad, [1 if d in dim else n for d, n in enumerate(shape)])
    return shaping.expand(grad, shape)


def _sum(ctx: Node, x: Array, *, dim: tuple[int, ...], keepdim: bool) -> Array:
    if x.dtype.kind != "f":
        return x.sum(axis=dim, keepdims=keepdim, dtype=int64)
    return sum_array(x, dim, keepdim).astype(x.dtype, copy=False)


def _sum_backward(ctx: Node, grad: Tensor) -> Gradients:
    return spread(grad, ctx.input_shape(0), ctx.attributes["dim"], ctx.attributes["keepdim"])


@np.errstate(all="ignore")
def _mean(ctx: Node, x: Array, *, dim: tuple[int, ...], keepdim: bool) -> Array:
    total = sum_array(x, dim, keepdim)
    count = prod([x.shape[d] for d in dim])
    return (total / total.dtype.type(count)).astype(x.dtype, copy=False)


def _mean_backward(ctx: Node, grad: Tensor) -> Gradients:
    shape, dim = ctx.input_shape(0), ctx.attributes["dim"]
    count = prod([shape[d] for d in dim])
    return spread(grad / count, shape, dim, ctx.attributes["keepdim"])


def _amax(ctx: Node, x: Array, *, dim: tuple[int, ...], keepdim: bool) -> Array:
    ctx.save(0, ~0)
    return x.max(axis=dim, keepdims=keepdim) if dim else x.copy()


def _amin(ctx: Node, x: Array, *, dim: tuple[int, ...], keepdim: bool) -> Array:
    ctx.save(0, ~0)
    return x.min(axis=dim, keepdims=keepdim) if dim else x.copy()


def _extreme_backward(ctx: Node, grad: Tensor) -> Gradients:
    """Share the gradient evenly among the elements that tie."""
    x, y = (t.array for t in ctx.saved_tensors)
    dim, keepdim = ctx.attributes["dim"], ctx.attributes["keepdim"]
    if dim and not keepdim:
        y = y.reshape([1 if d in dim else n for d, n in enumerate(x.shape)])
    hits = (x == y).astype(x.dtype)
    share = hits / hits.sum(axis=dim, keepdims=True) if dim else hits
    return spread(grad, x.shape, dim, keepdim) * Tensor(share)


def _max(ctx: Node, x: Array, *, dim: int, keepdim: bool) -> tuple[Array, Array]:
    return _pick(ctx, x, xp_of(x).argmax(x, axis=dim, keepdims=True), dim, keepdim)


def _min(ctx: Node, x: Array, *, dim: int, keepdim: bool) -> tuple[Array, Array]:
    return _pick(ctx, x, xp_of(x).argmin(x, axis=dim, keepdims=True), dim, keepdim)


def _pick(ctx: Node, x: Array, index: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """Return the elements at `index` along `dim` and the index itself."""
    values = xp_of(x).take_along_axis(x, index, axis=dim)
    ctx.index = index
    if not keepdim:
        values, index = values.squeeze(dim), index.squeeze(dim)
    return values, index.astype(int64)


def _pick_backward(ctx: Node, grad: Tensor, _: Tensor) -> Gradients:
    """Pass the gradient to the first element that wins, as PyTorch does."""
    shape, dim = ctx.input_shape(0), ctx.attributes["dim"]
    places = xp_of(ctx.index).arange(shape[dim])
    places = places.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    mask = (ctx.index == places).astype(grad.dtype)
    return spread(grad, shape, (dim,), ctx.attributes["keepdim"]) * Tensor(mask)


def _argmax(ctx: Node, x: Array, *, dim: int, keepdim: bool) -> Array:
    return xp_of(x).argmax(x, axis=dim, keepdims=keepdim).astype(int64)


def _argmin(ctx: Node, x: Array, *, dim: int, keepdim: bool) -> Array:
    return xp_of(x).argmin(x, axis=dim, keepdims=keepdim).astype(int64)


def _samples(*, empty: bool) -> Callable[[np.random.Generator], Iterator[Sample]]:
    """Return samples over several dims; `empty` adds zero-size inputs."""

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for keepdim in (False, True):
            yield Sample((distinct(rng),), {"dim": (), "keepdim": keepdim})
            for dim in ((0,), (1,), (0, 1)):
                yield Sample((distinct(rng, 2, 3),), {"dim": dim, "keepdim": keepdim})
            yield Sample((distinct(rng, 2, 3, 2, 2),), {"dim": (2, 3), "keepdim": keepdim})
            yield Sample((distinct(rng, 2, 3, 2, 2),), {"dim": (0, 2, 3), "keepdim": keepdim})
            if empty:
                yield Sample((distinct(rng, 0, 3),), {"dim": (0,), "keepdim": keepdim})

    return samples


def _one_dim(rng: np.random.Generator) -> Iterator[Sample]:
    for keepdim in (False, True):
        for dim in (0, 1):
            yield Sample((distinct(rng, 2, 3),), {"dim": dim, "keepdim": keepdim})
        yield Sample((distinct(rng, 2, 3, 2, 2),), {"dim": 2, "keepdim": keepdim})


SUM = register(OpSpec("sum", "ReduceSum", _sum, _sum_backward, _samples(empty=True)))
MEAN = register(OpSpec("mean", "ReduceMean", _mean, _mean_backward, _samples(empty=False)))
AMAX = register(OpSpec("amax", "ReduceMax", _amax, _extreme_backward, _samples(empty=False)))
AMIN = register(OpSpec("amin", "ReduceMin", _amin, _extreme_backward, _samples(empty=False)))
MAX = register(OpSpec("max", "", _max, _pick_backward, _one_dim))
MIN = register(OpSpec("min", "", _min, _pick_backward, _one_dim))
ARGMAX = register(OpSpec("argmax", "ArgMax", _argmax, None, _one_dim))
ARGMIN = register(OpSpec("argmin", "ArgMin", _argmin, None, _one_dim))


def _reduce(spec: OpSpec, x: Any, dim: Dims, keepdim: bool) -> Tensor:
    x = as_tensor(x)
    dims = dim_tuple(dim, x.ndim, spec.name)
    return apply(spec, (x,), {"dim": dims, "keepdim": bool(keepdim)})


def sum(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the sum over `dim` (None: all); bools and integers are summed in int64."""
    return _reduce(SUM, x, dim, keepdim)


def mean(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the mean over `dim` (None: all) of a float tensor."""
    x = as_tensor(x)
    if x.dtype.kind != "f":
        raise InputError(f"mean: the input must be float, not {x.dtype}; cast it first.")
    return _reduce(MEAN, x, dim, keepdim)


def amax(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the largest elements over `dim`; ties share the gradient evenly."""
    return _reduce(AMAX, _not_empty(x, dim, "amax"), dim, keepdim)


def amin(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the smallest elements over `dim`; ties share the gradient evenly."""
    return _reduce(AMIN, _not_empty(x, dim, "amin"), dim, keepdim)


def max(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the largest element, or with `dim` a pair (values, indices of the first largest)."""
    return amax(x) if dim is None else _select(MAX, x, dim, keepdim)


def min(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the smallest element, or with `dim` a pair (values, indices of the first smallest)."""
    return amin(x) if dim is None else _select(MIN, x, dim, keepdim)


def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index of the first largest element along `dim` (None: of the flat tensor)."""
    tensor: Tensor = _select(ARGMAX, x, dim, keepdim)
    return tensor


def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Return the index of the first smallest element along `dim` (None: of the flat tensor)."""
    tensor: Tensor = _select(ARGMIN, x, dim, keepdim)
    return tensor


def _select(spec: OpSpec, x: Any, dim: int | None, keepdim: bool) -> Any:
    x = as_tensor(x)
    if dim is None:
        x, dim, keepdim = shaping.reshape(x, (-1,)), 0, False
    if x.ndim == 0:
        flat = apply(spec, (shaping.reshape(x, (1,)),), {"dim": 0, "keepdim": False})
        return flat
    dim = dim_index(dim, x.ndim, spec.name)
    _not_empty(x, dim, spec.name)
    return apply(spec, (x,), {"dim": dim, "keepdim": bool(keepdim)})


def _not_empty(x: Any, dim: Dims, what: str) -> Tensor:
    tensor = as_tensor(x)
    if 0 in [tensor.shape[d] for d in dim_tuple(dim, tensor.ndim, what)]:
        raise InputError(f"{what}: {list(tensor.shape)} has no elements to choose from.")
    return tensor


def var(x: Any, dim: Dims = None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """Return the variance over `dim`, divided by n - 1 (unbiased) or by n."""
    x = as_tensor(x)
    dims = dim_tuple(dim, x.ndim, "var")
    centred = x - mean(x, dims or None, keepdim=True)
    count: int = prod([x.shape[d] for d in dims]) - int(unbiased)
    total = sum(centred * centred, dims or None, keepdim)
    return total / count


def std(x: Any, dim: Dims = None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """Return the standard deviation over `dim`."""
    return var(x, dim, unbiased, keepdim).sqrt()


def any(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return whether an element over `dim` is nonzero."""
    return sum(as_tensor(x).bool(), dim, keepdim) > 0


def all(x: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return whether every element over `dim` is nonzero."""
    zeros = sum(as_tensor(x).logical_not(), dim, keepdim)
    return zeros.logical_not()


def sum_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Undo broadcasting: sum x down to `shape`.

    Raises:
        InputError: `shape` does not broadcast to the shape of x.
    """
    lead = x.ndim - len(shape)
    dims = list(range(lead))
    for i, n in enumerate(shape):
        if lead < 0 or n not in (1, x.shape[lead + i]):
            raise InputError(f"{list(shape)} does not broadcast to {list(x.shape)}.")
        if n == 1 and x.shape[lead + i] != 1:
            dims.append(lead + i)
    if dims:
        x = sum(x, dims, keepdim=True)
    return shaping.reshape(x, shape)
