"""Normalization of a contiguous [rows, C] array per channel, and its gradients.

Sums are accumulated in double (blocks of rows in float first), whatever the dtype of the data.
"""

import numpy as np

from midge.core.backend import Array, xp_of
from midge.core.kernels.library import address, library_for


def moments(x: Array) -> tuple[Array, Array]:
    """Return mean and biased variance per channel, float64 [C], of x [rows, C]."""
    xp = xp_of(x)
    rows, channels = x.shape
    library = library_for(x)
    if library is not None:
        total = np.empty((2, channels))
        library.midge_moments_f32(address(x), address(total), rows, channels)
        offset, square = total / rows
        variance = np.maximum(square - offset * offset, 0)
        return offset + x[0], variance
    mean = x.mean(0, dtype=np.float64)
    centred = x - mean
    return mean, xp.mean(centred * centred, 0)


def normalize(x: Array, mean: Array, rstd: Array, weight: Array, bias: Array) -> Array:
    """Return y = (x - mean) * (rstd * weight) + bias, in the dtype of x [rows, C].

    Args:
        x: [rows, C].
        mean: [C].
        rstd: [C], 1 / sqrt(variance + eps).
        weight: [C].
        bias: [C].
    """
    xp = xp_of(x)
    mean, scale, bias = _channel(x, mean), _channel(x, rstd * weight), _channel(x, bias)
    library = library_for(x)
    if library is None:
        y = x - mean
        y *= scale
        y += bias
        return y
    y = xp.empty_like(x)
    library.midge_normalize_f32(
        address(x), address(mean), address(scale), address(bias), address(y), *x.shape
    )
    return y


def gradient_sums(gy: Array, x: Array, mean: Array) -> tuple[Array, Array]:
    """Return the sums over the rows of gy and of gy * (x - mean), float64 [C]."""
    library = library_for(gy, x)
    mean = _channel(x, mean)
    if library is None:
        double = gy.astype(np.float64, copy=False)
        return double.sum(0), (double * (x - mean)).sum(0)
    total = np.empty((2, x.shape[1]))
    library.midge_products_f32(address(gy), address(x), address(mean), address(total), *x.shape)
    return total[0], total[1]


def normalize_grad(
    gy: Array, x: Array, mean: Array, rstd: Array, weight: Array, sums: tuple[Array, Array]
) -> Array:
    """Return gx for statistics that were those of x itself.

    gx = weight * rstd * (gy - sums[0] / rows - (x - mean) * rstd^2 * sums[1] / rows)

    Source: Ioffe and Szegedy, Batch Normalization, 2015, section 3.
    """
    xp = xp_of(x)
    rows = x.shape[0]
    a = weight * rstd
    b = -a * rstd * rstd * sums[1] / rows
    d = -a * sums[0] / rows
    mean, a, b, d = (_channel(x, value) for value in (mean, a, b, d))
    library = library_for(gy, x)
    if library is None:
        gx = gy * a
        gx += (x - mean) * b
        gx += d
        return gx
    gx = xp.empty_like(x)
    library.midge_normalize_grad_f32(*(address(v) for v in (gy, x, mean, a, b, d, gx)), *x.shape)
    return gx


def _channel(x: Array, value: Array) -> Array:
    """Return one value a channel in the dtype of x, contiguous."""
    return xp_of(x).ascontiguousarray(value, dtype=x.dtype)
