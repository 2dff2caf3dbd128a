"""Batch normalization by the statistics of the batch (training) or by running ones (inference)."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.modes import STATE
from midge.core.autograd.node import Node
from midge.core.backend import Array, contiguous, xp_of
from midge.core.errors import InputError
from midge.core.kernels import batch_norm as kernels
from midge.core.ops import reduce, shape
from midge.core.ops.operands import as_tensor, floating
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor


def _rows(x: Array) -> Array:
    """Return an [N, C, ...] array as [rows, C]."""
    last = x.transpose(0, *range(2, x.ndim), 1)
    rows: Array = contiguous(last).reshape(-1, x.shape[1])
    return rows


def _unrows(rows: Array, like: tuple[int, ...]) -> Array:
    """Return [rows, C] as the [N, C, ...] array it came from; nothing is copied."""
    n, c, *rest = like
    ndim = len(like)
    return rows.reshape(n, *rest, c).transpose(0, ndim - 1, *range(1, ndim - 1))


def _batch_norm(
    ctx: Node,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    *,
    eps: float,
    momentum: float,
    training: bool,
) -> Array:
    rows = _rows(x)
    weight, bias = _dense(weight), _dense(bias)
    if training:
        y, mean, var, rstd = kernels.batch_norm(rows, weight, bias, eps)
        if running_mean is not None and running_var is not None:
            count = len(rows)
            _move(running_mean, mean, momentum)
            _move(running_var, var * (count / (count - 1)), momentum)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean, rstd = running_mean, 1 / xp_of(x).sqrt(running_var.astype(np.float64) + eps)
        y = kernels.normalize(rows, mean, rstd, weight, bias)
    ctx.facts = bias is not None
    if any(ctx.needs_input_grad[:3]):
        ctx.save(0, 1)
        ctx.mean, ctx.rstd = mean, rstd
    return _unrows(y, x.shape)


def _dense(value: Array | None) -> Array | None:
    """Return a value a channel without gaps in memory."""
    return None if value is None else xp_of(value).ascontiguousarray(value)


def _move(running: Array, value: Array, momentum: float) -> None:
    """Set running = (1 - momentum) * running + momentum * value, in place."""
    running *= running.dtype.type(1 - momentum)
    running += (momentum * value).astype(running.dtype)


def _batch_norm_backward(ctx: Node, grad: Tensor) -> Gradients:
    x, weight = ctx.saved_tensors
    if ctx.attributes["training"] and not STATE.grad:
        gx, gweight, gbias = _fused(ctx, grad.array, x.array, weight)
    else:
        gx, gweight, gbias = _composed(ctx, grad, x, weight)
    has_bias = ctx.facts
    return gx, None if weight is None else gweight, gbias if has_bias else None, None, None


def _fused(
    ctx: Node, grad: Array, x: Array, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by the kernels; they are not recorded."""
    scale = None if weight is None else _dense(weight.array)
    gx, gweight, gbias = kernels.batch_norm_grad(_rows(grad), _rows(x), ctx.mean, ctx.rstd, scale)
    return Tensor(_unrows(gx, x.shape)), Tensor(gweight), Tensor(gbias)


def _composed(
    ctx: Node, grad: Tensor, x: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients in Tensor operators, for gradients of a higher order."""
    dims = (0, *range(2, x.ndim))
    kept = [1, x.shape[1], *[1] * (x.ndim - 2)]
    if ctx.attributes["training"]:
        centred = x - reduce.mean(x, dims, keepdim=True)
        var = reduce.mean(centred * centred, dims, keepdim=True)
        rstd = (var + ctx.attributes["eps"]) ** -0.5
    else:
        dtype = x.dtype
        centred = x - Tensor(ctx.mean.astype(dtype).reshape(kept))
        rstd = Tensor(ctx.rstd.astype(dtype).reshape(kept))
    normal = centred * rstd
    gbias = reduce.sum(grad, dims)
    gweight = reduce.sum(grad * normal, dims)
    gx = grad
    if ctx.attributes["training"]:
        count = x.numel() // x.shape[1]
        gx = grad - (shape.reshape(gbias, kept) + normal * shape.reshape(gweight, kept)) / count
    scale = rstd if weight is None else rstd * shape.reshape(weight, kept)
    return gx * scale, gweight, gbias


def _samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sizes in ((2, 3, 2, 2), (5, 2), (3, 2, 4)):
        c = sizes[1]
        x, weight, bias = distinct(rng, *sizes), distinct(rng, c), distinct(rng, c)
        common = {"eps": 1e-2, "momentum": 0.1}
        yield Sample((x, weight, bias, None, None), {**common, "training": True})
        yield Sample((x, None, None, None, None), {**common, "training": True})
        mean, var = rng.standard_normal(c), rng.uniform(0.5, 2, c)
        yield Sample((x, weight, bias, mean, var), {**common, "training": False})


# The running statistics are inputs only: no gradient goes to them.
BATCH_NORM = register(
    OpSpec(
        "batch_norm",
        "BatchNormalization",
        _batch_norm,
        _batch_norm_backward,
        _samples,
        constants=(3, 4),
    )
)


def batch_norm(
    x: Any,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(var + eps) * weight + bias, with mean and var per channel.

    Args:
        x: [N, C, ...].
        running_mean: [C]; the mean if not `training`, else moved towards the batch's.
        running_var: [C]; likewise, with the unbiased variance.
        weight: [C] or None for 1.
        bias: [C] or None for 0.
        training: take mean and biased variance of the batch.
        momentum: weight of the batch in the running statistics.
        eps: added to the variance.

    Raises:
        InputError: a shape that does not fit, or one value a channel in training.

    Source: Ioffe and Szegedy, Batch Normalization, 2015.
    """
    x = floating(x)
    channels = x.shape[1] if x.ndim > 1 else None
    tensors = [None if t is None else as_tensor(t) for t in (weight, bias)]
    tensors += [running_mean, running_var]
    for name, t in zip(("weight", "bias", "running_mean", "running_var"), tensors, strict=True):
        if channels is None or (t is not None and t.shape != (channels,)):
            raise InputError(
                f"batch_norm: the input is {list(x.shape)}, {name} "
                f"{None if t is None else list(t.shape)}; [N, C, ...] and [C] are needed."
            )
    if not training and (running_mean is None or running_var is None):
        raise InputError("batch_norm: running_mean and running_var are needed if not training.")
    if training and x.numel() <= (channels or 0):
        raise InputError(
            f"batch_norm: training needs more than one value a channel, got {list(x.shape)}; use a "
            "larger batch or eval()."
        )
    attributes = {"eps": float(eps), "momentum": float(momentum), "training": bool(training)}
    y: Tensor = apply(BATCH_NORM, (x, *tensors), attributes)
    if training:
        for running in tensors[2:]:
            if running is not None:
                running._version[0] += 1
    return y
