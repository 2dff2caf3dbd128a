"""Rows that reduce axes, and those that look along one: Softmax, ArgMax, CumSum, Hardmax."""

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from midge.convert.to_module_call import (
    Call,
    Ints,
    Row,
    Table,
    array,
    axes_of,
    axis_of,
    beside,
    root,
)
from midge.core import ops
from midge.core.tensor import Tensor

Reduction = Callable[[Tensor, Ints, bool], Tensor]


def _reduction(function: Reduction, alone: Callable[[Tensor], Tensor] = lambda x: x) -> Row:
    """Make a row; `alone` is what it gives of single elements, where no axis is reduced."""

    def row(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        dims, keep = axes_of(call, axes, x.ndim), bool(call.get("keepdims", 1))
        if not dims and call.get("noop_with_empty_axes", 0):
            return alone(x)
        return function(x, dims or tuple(range(x.ndim)), keep)

    return row


def _sum(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    return ops.cast(ops.sum(x, dims, keep), x.dtype)


def _mean(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    if x.dtype.kind == "f":
        return ops.mean(x, dims, keep)
    return ops.cast(ops.mean(ops.cast(x, "float64"), dims, keep), x.dtype)


def _extreme(function: Reduction, largest: bool, x: Tensor, dims: Ints, keep: bool) -> Tensor:
    if x.dtype.kind == "b":
        return ops.cast(_extreme(function, largest, ops.cast(x, "uint8"), dims, keep), "bool")
    if 0 not in [x.shape[d] for d in dims]:
        return function(x, dims, keep)
    # Nothing to choose from: ONNX gives what loses against everything.
    if x.dtype.kind == "f":
        least = -np.inf if largest else np.inf
    else:
        bounds = np.iinfo(x.dtype)
        least = bounds.min if largest else bounds.max
    return beside(x, np.full(_reduced(x.shape, dims, keep), least))


def _reduced(shape: Ints, dims: Ints, keep: bool) -> Ints:
    """Return the shape that a reduction leaves."""
    return tuple(1 if d in dims else n for d, n in enumerate(shape) if keep or d not in dims)


def _norm_1(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    return _sum(ops.abs(x), dims, keep)


def _norm_2(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    return ops.cast(root(_squares(x, dims, keep)), x.dtype)


def _squares(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    return _sum(x * x, dims, keep)


def _log_sum(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    return ops.log(_sum(x, dims, keep))


def _log_sum_exp(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    """Return log(sum(exp(x))), without overflow: the maximum is taken out first."""
    if 0 in x.shape:
        return ops.log(_sum(ops.exp(x), dims, keep))
    largest = ops.amax(x, dims, keepdim=True).detach()
    y = ops.log(ops.sum(ops.exp(x - largest), dims, keepdim=True)) + largest
    return y if keep else ops.squeeze(y, dims)


def _product(x: Tensor, dims: Ints, keep: bool) -> Tensor:
    """Return the product: halves are multiplied until one element is left."""
    rest = [d for d in range(x.ndim) if d not in dims]
    shape = _reduced(x.shape, dims, keep)
    y = ops.permute(x, (*rest, *sorted(dims)))
    y = ops.reshape(y, (*(x.shape[d] for d in rest), prod(x.shape[d] for d in dims)))
    if y.shape[-1] == 0:
        return beside(x, np.ones(shape))
    while (n := y.shape[-1]) > 1:
        paired = y[..., : n // 2] * y[..., n // 2 : n // 2 * 2]
        y = ops.concat([paired, y[..., n - 1 :]], -1) if n % 2 else paired
    return ops.reshape(y, shape)


def _along(function: Callable[[Tensor, int], Tensor]) -> Row:
    """Make a row of a function along one axis."""
    return lambda call, x: function(x, axis_of(call, x.ndim, -1))


def _argument(function: Callable[..., Tensor]) -> Row:
    def row(call: Call, x: Tensor) -> Tensor:
        dim, keep = axis_of(call, x.ndim, 0), bool(call.get("keepdims", 1))
        if not call.get("select_last_index", 0):
            return function(x, dim, keep)
        last = x.shape[dim] - 1
        flipped = ops.index_select(x, dim, beside(x, range(last, -1, -1), np.dtype(np.int64)))
        return last - function(flipped, dim, keep)

    return row


def _hardmax(x: Tensor, dim: int) -> Tensor:
    """Return 1 at the first largest element, else 0."""
    places = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    first = ops.argmax(x, dim, keepdim=True)
    return ops.cast(ops.eq(first, beside(x, places, np.dtype(np.int64))), x.dtype)


def _cumulative_sum(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    """Return running sums: a product with a triangle of ones."""
    dim = int(array(axis).reshape(-1)[0]) % x.ndim
    n, reverse = x.shape[dim], bool(call.get("reverse", 0))
    offset = int(call.get("exclusive", 0))
    ones = np.ones((n, n))
    triangle = np.tril(ones, -offset) if reverse else np.triu(ones, offset)
    y = ops.matmul(ops.transpose(x, dim, -1), beside(x, triangle))
    return ops.transpose(y, dim, -1)


REDUCTIONS: Table = {
    "ArgMax": _argument(ops.argmax),
    "ArgMin": _argument(ops.argmin),
    "CumSum": _cumulative_sum,
    "Hardmax": _along(_hardmax),
    "LogSoftmax": _along(ops.log_softmax),
    "ReduceL1": _reduction(_norm_1, ops.abs),
    "ReduceL2": _reduction(_norm_2, ops.abs),
    "ReduceLogSum": _reduction(_log_sum, ops.log),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(partial(_extreme, ops.amax, True)),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _reduction(partial(_extreme, ops.amin, False)),
    "ReduceProd": _reduction(_product),
    "ReduceSum": _reduction(_sum),
    "ReduceSumSquare": _reduction(_squares, lambda x: x * x),
    "Softmax": _along(ops.softmax),
}
