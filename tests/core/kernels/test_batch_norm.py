import numpy as np
import pytest

from midge.core.kernels.batch_norm import batch_norm, batch_norm_grad, normalize

# Relative to the largest value; the sums are those of double.
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-12}


@pytest.fixture(params=[(300, 61), (64, 8), (2, 1), (1000, 3)], ids=str)
def shape(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_and_statistics_are_those_of_float64(
    shape: tuple[int, int], dtype: type, backend: str, rng: np.random.Generator
) -> None:
    x = (rng.standard_normal(shape) * 3 + 20).astype(dtype)
    weight, bias = rng.standard_normal((2, shape[1])).astype(dtype)
    y, mean, var, rstd = batch_norm(x, weight, bias, 1e-5)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(0), 1e-7)
    np.testing.assert_allclose(var, exact.var(0), 1e-5)
    np.testing.assert_allclose(rstd, 1 / np.sqrt(var + 1e-5), 1e-12)
    expected = (exact - exact.mean(0)) * rstd * weight + bias
    for found in (y, normalize(x, mean, rstd, weight, bias)):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, 0, TOLERANCE[dtype] * 10)
    plain = batch_norm(x, None, None, 1e-5)[0]
    np.testing.assert_allclose(plain * weight + bias, y, 0, TOLERANCE[dtype] * 10)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_are_those_of_float64(
    shape: tuple[int, int], dtype: type, affine: bool, backend: str, rng: np.random.Generator
) -> None:
    x = (rng.standard_normal(shape) * 3 + 20).astype(dtype)
    gy = rng.standard_normal(shape).astype(dtype)
    weight = rng.standard_normal(shape[1]).astype(dtype) if affine else None
    _, mean, _, rstd = batch_norm(x, weight, None, 1e-5)
    gx, gweight, gbias = batch_norm_grad(gy, x, mean, rstd, weight)
    centred, g = x.astype(np.float64) - x.astype(np.float64).mean(0), gy.astype(np.float64)
    normal = centred * rstd
    np.testing.assert_allclose(gbias, g.sum(0), 0, 1e-6 * len(x))
    np.testing.assert_allclose(gweight, (g * normal).sum(0), 0, 5e-6 * len(x))
    scale = rstd if weight is None else weight * rstd
    expected = scale * (g - g.mean(0) - normal * (g * normal).mean(0))
    assert gx.dtype == gweight.dtype == gbias.dtype == dtype
    np.testing.assert_allclose(gx, expected, 0, 1e-5 * np.abs(scale).max())


def test_a_constant_channel_has_no_variance(backend: str) -> None:
    x = np.full((100, 4), 1234.5, np.float32)
    y, mean, var, _ = batch_norm(x, None, None, 1e-5)
    np.testing.assert_array_equal(mean, 1234.5)
    np.testing.assert_array_equal(var, 0)
    np.testing.assert_array_equal(y, 0)


def test_a_large_mean_does_not_swallow_the_variance(backend: str, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((4096, 8)) + 10000).astype(np.float32)
    var = batch_norm(x, None, None, 1e-5)[2]
    np.testing.assert_allclose(var, x.astype(np.float64).var(0), 1e-4)
