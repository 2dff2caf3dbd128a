from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from midge.core.backend import Array
from midge.core.kernels.pool import (
    avg_pool,
    avg_pool_grad,
    max_pool,
    max_pool_gather,
    max_pool_scatter,
)
from midge.core.kernels.window import Window


@dataclass(frozen=True)
class Case:
    shape: tuple[int, int, int, int]  # N, H, W, C
    window: Window

    @property
    def out(self) -> tuple[int, int]:
        return self.window.output_size(*self.shape[1:3], "case")


POOLS = {
    "2x2": Case((2, 6, 7, 3), Window((2, 2), (2, 2))),
    "overlap": Case((2, 7, 6, 33), Window((3, 3), (2, 1), (1, 1, 0, 1))),
    "dilated": Case((1, 9, 9, 5), Window((3, 2), (2, 1), (2, 1, 2, 1), (2, 3))),
    "beyond": Case((1, 3, 3, 2), Window((2, 2), (1, 1), (3, 3, 3, 3))),
}


def taps(case: Case) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield oy, ox, ky, kx, iy, ix of every tap that lies inside the input."""
    (kh, kw), (sy, sx) = case.window.kernel, case.window.stride
    (dy, dx), (top, left) = case.window.dilation, case.window.padding[:2]
    for oy, ox, ky, kx in np.ndindex(*case.out, kh, kw):
        iy, ix = oy * sy + ky * dy - top, ox * sx + kx * dx - left
        if 0 <= iy < case.shape[1] and 0 <= ix < case.shape[2]:
            yield oy, ox, ky, kx, iy, ix


def reference_max(case: Case, x: Array) -> tuple[Array, Array]:
    y = np.full((x.shape[0], *case.out, x.shape[3]), -np.inf)
    index = np.full(y.shape, -1)
    for oy, ox, _, _, iy, ix in taps(case):
        win = (x[:, iy, ix] > y[:, oy, ox]) | np.isnan(x[:, iy, ix]) | (index[:, oy, ox] < 0)
        y[:, oy, ox] = np.where(win, x[:, iy, ix], y[:, oy, ox])
        index[:, oy, ox] = np.where(win, iy * x.shape[2] + ix, index[:, oy, ox])
    return y, index


def reference_avg(case: Case, x: Array, include_pad: bool) -> Array:
    y = np.zeros((x.shape[0], *case.out, x.shape[3]))
    inside = np.zeros(case.out)
    for oy, ox, _, _, iy, ix in taps(case):
        y[:, oy, ox] += x[:, iy, ix]
        inside[oy, ox] += 1
    if include_pad:  # the cases below have no window that leaves the padding
        inside[...] = case.window.kernel[0] * case.window.kernel[1]
    return y / np.maximum(inside, 1)[:, :, None]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", POOLS)
def test_max_pool_finds_the_first_largest_value(
    name: str, dtype: type, backend: str, rng: np.random.Generator
) -> None:
    case = POOLS[name]
    x = rng.integers(-2, 3, case.shape).astype(dtype)  # many ties
    x[0, 0, 0, 0] = np.nan
    x[-1, -1, -1] = -np.inf
    y, index = max_pool(x, case.out, case.window)
    expected, places = reference_max(case, x)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(index, places)
    assert y.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", POOLS)
def test_scatter_is_the_transpose_of_gather(
    name: str, dtype: type, backend: str, rng: np.random.Generator
) -> None:
    case = POOLS[name]
    x = rng.standard_normal(case.shape).astype(dtype)
    y, index = max_pool(x, case.out, case.window)
    gathered = max_pool_gather(x, index)
    np.testing.assert_array_equal(gathered, np.where(index < 0, 0, y))
    gy = rng.standard_normal(y.shape).astype(dtype)
    gx = max_pool_scatter(gy, index, x.shape, case.window)
    assert np.sum(gx * x, dtype=float) == pytest.approx(np.sum(gy * gathered, dtype=float), 1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("include_pad", [True, False])
@pytest.mark.parametrize("name", ["2x2", "overlap"])
def test_avg_pool_divides_by_the_taps_that_count(
    name: str, include_pad: bool, dtype: type, backend: str, rng: np.random.Generator
) -> None:
    case = POOLS[name]
    x = rng.standard_normal(case.shape).astype(dtype)
    expected = reference_avg(case, x, include_pad)
    y = avg_pool(x, case.out, case.window, include_pad)
    np.testing.assert_allclose(y, expected, 0, 1e-6)
    gy = rng.standard_normal(y.shape).astype(dtype)
    gx = avg_pool_grad(gy, x.shape, case.window, include_pad)
    assert np.sum(gx * x, dtype=float) == pytest.approx(np.sum(gy * y, dtype=float), 1e-4)
