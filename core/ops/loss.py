"""Losses: cross entropy on class indices and mean squared error."""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, xp_of
from midge.core.errors import InputError, did_you_mean
from midge.core.ops.activation import log_softmax_array, softmax
from midge.core.ops.operands import as_tensor, floating, pair
from midge.core.ops.reduce import sum_array
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor

_REDUCTIONS = ("mean", "sum", "none")


def _reduced(x: Array, reduction: str, count: int) -> Array:
    if reduction == "none":
        return x
    total = sum_array(x, tuple(range(x.ndim)), False)
    with np.errstate(all="ignore"):
        return (total / count if reduction == "mean" else total).astype(x.dtype)


def _kept(target: Array, classes: int, ignore_index: int) -> tuple[Array, Array]:
    """Return the one-hot positions of the kept targets [N, C, ...] and the mask [N, ...]."""
    xp = xp_of(target)
    keep = target != ignore_index
    one_hot = xp.expand_dims(xp.where(keep, target, -1), 1) == xp.arange(classes).reshape(
        1, classes, *(1,) * (target.ndim - 1)
    )
    return one_hot, keep


def _cross_entropy(
    ctx: Node,
    x: Array,
    target: Array,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Array:
    """-sum_c q_c log p_c with q = (1 - s) one_hot + s / C, over the kept targets."""
    ctx.save(0, 1)
    xp = xp_of(x, target)
    log_p = log_softmax_array(x, 1)
    keep = target != ignore_index
    index = xp.expand_dims(xp.where(keep, target, 0), 1)
    loss = -xp.take_along_axis(log_p, index, axis=1).squeeze(1)
    if label_smoothing:
        uniform = sum_array(log_p, (1,), False) / x.dtype.type(x.shape[1])
        s = x.dtype.type(label_smoothing)
        loss = (1 - s) * loss - s * uniform
    loss = xp.where(keep, loss, x.dtype.type(0)).astype(x.dtype, copy=False)
    return _reduced(loss, reduction, int(keep.sum()))


def _cross_entropy_backward(ctx: Node, grad: Tensor) -> Gradients:
    """(p - q) * grad, over the count of kept targets for the mean."""
    x, target = ctx.saved_tensors
    smoothing = ctx.attributes["label_smoothing"]
    one_hot, keep = _kept(target.array, x.shape[1], ctx.attributes["ignore_index"])
    q = one_hot.astype(x.dtype) * (1 - smoothing) + smoothing / x.shape[1]
    weight = xp_of(keep).expand_dims(keep, 1).astype(x.dtype)
    if ctx.attributes["reduction"] == "none":
        grad = grad.unsqueeze(1)
    elif ctx.attributes["reduction"] == "mean":
        grad = grad / int(keep.sum())
    return (softmax(x, 1) - Tensor(q.astype(x.dtype, copy=False))) * (grad * Tensor(weight)), None


def _cross_entropy_samples(rng: np.random.Generator) -> Iterator[Sample]:
    plain = {"reduction": "mean", "ignore_index": -100, "label_smoothing": 0.0}
    yield Sample((distinct(rng, 3, 4), np.array([0, 3, 1])), plain)
    target = np.array([[[0, 1], [1, 2]], [[2, -100], [0, 0]]])
    yield Sample((distinct(rng, 2, 3, 2, 2), target), plain)
    for reduction in _REDUCTIONS:
        attributes = {"reduction": reduction, "ignore_index": 1, "label_smoothing": 0.1}
        yield Sample((distinct(rng, 3, 4), np.array([0, 3, 1])), attributes)


def _mse_loss(ctx: Node, x: Array, target: Array, *, reduction: str) -> Array:
    ctx.save(0, 1)
    d = x - target
    return _reduced(d * d, reduction, d.size)


def _mse_loss_backward(ctx: Node, grad: Tensor) -> Gradients:
    x, target = ctx.saved_tensors
    d = x - target
    if ctx.attributes["reduction"] == "mean":
        grad = grad / prod(d.shape)
    g = d * (grad * 2)
    return g, -g if ctx.needs_input_grad[1] else None


def _mse_loss_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for reduction in _REDUCTIONS:
        yield Sample((distinct(rng, 2, 3), distinct(rng, 2, 3)), {"reduction": reduction})
    yield Sample((distinct(rng, 2, 3, 1, 2), distinct(rng, 2, 3, 1, 2)), {"reduction": "mean"})


CROSS_ENTROPY = register(
    OpSpec("cross_entropy", "", _cross_entropy, _cross_entropy_backward, _cross_entropy_samples)
)
MSE_LOSS = register(OpSpec("mse_loss", "", _mse_loss, _mse_loss_backward, _mse_loss_samples))


def _reduction(name: str, what: str) -> str:
    if name not in _REDUCTIONS:
        raise InputError(
            f"{what}: reduction {name!r} is not one of {', '.join(_REDUCTIONS)}."
            f"{did_you_mean(name, _REDUCTIONS)}"
        )
    return name


def cross_entropy(
    x: Any,
    target: Any,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return -log softmax(x)[target].

    Args:
        x: [N, C, ...] scores before the softmax.
        target: [N, ...] integer class indices in 0..C-1.
        reduction: "mean" over the kept targets, "sum" or "none".
        ignore_index: targets with this value count nothing.
        label_smoothing: share of the target spread evenly over all classes, in [0, 1].

    Raises:
        InputError: shapes do not fit, or an index is out of range.
    """
    x, target = floating(x), as_tensor(target)
    if x.ndim < 2 or target.dtype.kind not in "iu" or target.shape != x.shape[:1] + x.shape[2:]:
        raise InputError(
            f"cross_entropy: scores {list(x.shape)} need integer class indices of shape "
            f"{list(x.shape[:1] + x.shape[2:])}; got {target.dtype} {list(target.shape)}."
        )
    bad = (target.array != ignore_index) & ((target.array < 0) | (target.array >= x.shape[1]))
    if bool(bad.any()):
        raise InputError(
            f"cross_entropy: class index {int(target.array[bad][0])} is outside "
            f"0..{x.shape[1] - 1}."
        )
    if not 0 <= label_smoothing <= 1:
        raise InputError(f"cross_entropy: label_smoothing {label_smoothing} is outside [0, 1].")
    attributes = {
        "reduction": _reduction(reduction, "cross_entropy"),
        "ignore_index": int(ignore_index),
        "label_smoothing": float(label_smoothing),
    }
    return apply(CROSS_ENTROPY, (x, target), attributes)


def mse_loss(x: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Return (x - target) ** 2, averaged, summed, or as it is ("none")."""
    x, target = pair(x, target, floating=True)
    if x.shape != target.shape:
        raise InputError(
            f"mse_loss: shapes {list(x.shape)} and {list(target.shape)} differ; broadcasting would "
            "hide a mistake."
        )
    return apply(MSE_LOSS, (x, target), {"reduction": _reduction(reduction, "mse_loss")})
