"""Normalization of a contiguous [rows, C] array per channel, and its gradients.

Sums are accumulated in double (blocks of rows in float first), whatever the dtype of the data.
"""

import numpy as np

from midge.core.backend import Array, xp_of
from midge.core.kernels.library import address, library_for


def batch_norm(
    x: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array, Array]:
    """Normalize x by its own mean and biased variance per channel.

    y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps)

    Args:
        x: [rows, C].
        weight: [C] or None for 1.
        bias: [C] or None for 0.
        eps: added to the variance.

    Returns:
        y in the dtype of x, and mean, var and rstd, float64 [C].

    Source: Ioffe and Szegedy, Batch Normalization, 2015, algorithm 1.
    """
    xp = xp_of(x)
    library = library_for(x, weight, bias)
    if library is None:
        mean = x.mean(0, dtype=np.float64)
        centred = x - mean
        var = xp.mean(centred * centred, 0)
        rstd = 1 / xp.sqrt(var + eps)
        return normalize(x, mean, rstd, weight, bias), mean, var, rstd
    rows, channels = x.shape
    y = np.empty_like(x)
    statistics = np.empty((3, channels))
    room = np.empty((3, channels), np.float32)
    mean, var, rstd = statistics
    library.midge_batch_norm_f32(
        address(x),
        *(_address(v) for v in (weight, bias)),
        *(address(v) for v in (y, mean, var, rstd, room)),
        rows,
        channels,
        eps,
    )
    return y, mean, var, rstd


def batch_norm_grad(
    gy: Array, x: Array, mean: Array, rstd: Array, weight: Array | None
) -> tuple[Array, Array, Array]:
    """Return the gradients of `batch_norm` by x, weight and bias, in the dtype of x.

    gbias = sum gy; gweight = sum gy * (x - mean) * rstd;
    gx = weight * rstd * (gy - gbias / rows - (x - mean) * rstd * gweight / rows)

    Args:
        gy: [rows, C].
        x: [rows, C].
        mean: float64 [C].
        rstd: float64 [C].
        weight: [C] or None for 1.

    Source: Ioffe and Szegedy, Batch Normalization, 2015, section 3.
    """
    xp = xp_of(x)
    rows, channels = x.shape
    library = library_for(gy, x, weight)
    if library is None:
        centred = x - _channel(x, mean)
        wide = gy.astype(np.float64, copy=False)
        gbias, gweight = wide.sum(0), (wide * centred).sum(0) * rstd
        scale = rstd if weight is None else weight * rstd
        gx = gy * _channel(x, scale)
        gx -= centred * _channel(x, scale * rstd * gweight / rows)
        gx -= _channel(x, scale * gbias / rows)
        return gx, _channel(x, gweight), _channel(x, gbias)
    gx = xp.empty_like(x)
    sums = np.empty((2, channels), np.float32)
    total = np.empty((2, channels))
    room = np.empty((4, channels), np.float32)
    library.midge_batch_norm_grad_f32(
        *(address(v) for v in (gy, x, mean, rstd)),
        _address(weight),
        *(address(v) for v in (gx, sums[0], sums[1], total, room)),
        rows,
        channels,
    )
    return gx, sums[0], sums[1]


def normalize(
    x: Array, mean: Array, rstd: Array, weight: Array | None, bias: Array | None
) -> Array:
    """Return y = (x - mean) * (rstd * weight) + bias, in the dtype of x.

    Args:
        x: [rows, C].
        mean: [C].
        rstd: [C].
        weight: [C] or None for 1.
        bias: [C] or None for 0.
    """
    xp = xp_of(x)
    scale = _channel(x, rstd if weight is None else rstd * weight)
    shift = xp.zeros(x.shape[1], x.dtype) if bias is None else _channel(x, bias)
    mean = _channel(x, mean)
    library = library_for(x)
    if library is None:
        y = x - mean
        y *= scale
        y += shift
        return y
    y = xp.empty_like(x)
    library.midge_normalize_f32(*(address(v) for v in (x, mean, scale, shift, y)), *x.shape)
    return y


def _channel(x: Array, value: Array) -> Array:
    """Return one value a channel in the dtype of x, contiguous."""
    return xp_of(x).ascontiguousarray(value, dtype=x.dtype)


def _address(value: Array | None) -> int | None:
    """Return the address of an operand that may be absent."""
    return None if value is None else address(value)
