import numpy as np
import pytest

from midge.core import Tensor, randn
from midge.core.errors import InputError, UnsupportedError
from midge.core.nn import functional as F

torch = pytest.importorskip("torch")
ATOL = 1e-12


def compare(ours, theirs, shape=(2, 3, 7, 6)) -> None:
    rng = np.random.default_rng(5)
    array = rng.integers(-3, 4, shape).astype(np.float64)  # ties show who wins
    x, expected_x = Tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    y, expected = ours(x), theirs(expected_x)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 0, ATOL)
    weights = rng.standard_normal(y.shape)
    y.backward(Tensor(weights))
    expected.backward(torch.tensor(weights))
    np.testing.assert_allclose(x.grad.numpy(), expected_x.grad.numpy(), 0, ATOL)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 1)},
        {"kernel_size": 2, "stride": 1, "dilation": 2},
    ],
    ids=str,
)
def test_max_pool_is_that_of_pytorch(options: dict) -> None:
    compare(
        lambda x: F.max_pool2d(x, **options),
        lambda x: torch.nn.functional.max_pool2d(x, **options),
    )


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize(
    "options",
    [{"kernel_size": 2}, {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 1)}],
    ids=str,
)
def test_avg_pool_is_that_of_pytorch(options: dict, include: bool) -> None:
    compare(
        lambda x: F.avg_pool2d(x, **options, count_include_pad=include),
        lambda x: torch.nn.functional.avg_pool2d(x, **options, count_include_pad=include),
    )


@pytest.mark.parametrize("size", [1, (2, 3)])
def test_adaptive_avg_pool_is_that_of_pytorch(size: object) -> None:
    compare(
        lambda x: F.adaptive_avg_pool2d(x, size),
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, size),
        (2, 3, 4, 6),
    )


def test_max_pool_of_nan_is_nan_and_passes_the_gradient_to_it() -> None:
    array = np.array([[[[1.0, np.nan], [3.0, 2.0]]]])
    x = Tensor(array, requires_grad=True)
    y = F.max_pool2d(x, 2)
    y.backward(Tensor(np.ones((1, 1, 1, 1))))
    assert np.isnan(y.item())
    np.testing.assert_array_equal(x.grad.numpy(), [[[[0, 1], [0, 0]]]])


def test_asymmetric_padding_pads_each_side_on_its_own() -> None:
    x = randn(1, 2, 5, 5)
    padded = F.pad(x, (0, 1, 1, 0), value=float("-inf"))
    found = F.max_pool2d(x, 2, 2, (1, 0, 0, 1))
    np.testing.assert_array_equal(found.numpy(), F.max_pool2d(padded, 2, 2).numpy())


def test_windows_that_do_not_fit_are_refused() -> None:
    x = randn(1, 2, 5, 5)
    with pytest.raises(InputError, match="smaller than the window"):
        F.max_pool2d(x, 2, padding=2)
    with pytest.raises(InputError, match="larger than the 5x5 input"):
        F.avg_pool2d(x, 6)
    with pytest.raises(UnsupportedError, match="cannot be cut into 2x2"):
        F.adaptive_avg_pool2d(x, 2)
    with pytest.raises(InputError, match="no pixels"):
        F.global_avg_pool2d(randn(1, 2, 0, 5))
