import numpy as np
import pytest

from midge.core.kernels.batch_norm import gradient_sums, moments, normalize, normalize_grad

# Relative to the largest value; the sums are those of double.
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-12}


@pytest.fixture(params=[(300, 61), (64, 8), (2, 1), (1000, 3)], ids=str)
def shape(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_and_normalization_are_those_of_float64(
    shape: tuple[int, int], dtype: type, backend: str, rng: np.random.Generator
) -> None:
    x = (rng.standard_normal(shape) * 3 + 20).astype(dtype)
    mean, variance = moments(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(0), 1e-7)
    np.testing.assert_allclose(variance, exact.var(0), 1e-5)
    weight, bias = rng.standard_normal((2, shape[1])).astype(dtype)
    rstd = 1 / np.sqrt(variance + 1e-5)
    y = normalize(x, mean, rstd, weight, bias)
    assert y.dtype == dtype
    expected = (exact - exact.mean(0)) * rstd * weight + bias
    np.testing.assert_allclose(y, expected, 0, TOLERANCE[dtype] * 10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_gradient_is_that_of_float64(
    shape: tuple[int, int], dtype: type, backend: str, rng: np.random.Generator
) -> None:
    x = (rng.standard_normal(shape) * 3 + 20).astype(dtype)
    gy = rng.standard_normal(shape).astype(dtype)
    weight = rng.standard_normal(shape[1]).astype(dtype)
    mean, variance = moments(x)
    rstd = 1 / np.sqrt(variance + 1e-5)
    sums = gradient_sums(gy, x, mean)
    centred, g = x.astype(np.float64) - x.astype(np.float64).mean(0), gy.astype(np.float64)
    np.testing.assert_allclose(sums[0], g.sum(0), 0, 1e-5 * len(x))
    np.testing.assert_allclose(sums[1], (g * centred).sum(0), 0, 1e-5 * len(x))
    found = normalize_grad(gy, x, mean, rstd, weight, sums)
    normal = centred * rstd
    expected = weight * rstd * (g - g.mean(0) - normal * (g * normal).mean(0))
    np.testing.assert_allclose(found, expected, 0, 1e-5 * np.abs(weight * rstd).max())


def test_a_constant_channel_has_no_variance(backend: str) -> None:
    x = np.full((100, 4), 1234.5, np.float32)
    mean, variance = moments(x)
    np.testing.assert_array_equal(mean, 1234.5)
    np.testing.assert_array_equal(variance, 0)


def test_a_large_mean_does_not_swallow_the_variance(backend: str, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((4096, 8)) + 10000).astype(np.float32)
    _, variance = moments(x)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(0), 1e-4)
