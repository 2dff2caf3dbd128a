import numpy as np
import pytest

from midge.core import Generator, Tensor, manual_seed, ones, randn
from midge.core.errors import InputError
from midge.core.nn import functional as F


def test_zeros_come_with_their_probability_and_the_rest_is_scaled() -> None:
    y = F.dropout(ones(100, 100), 0.3, generator=Generator(1)).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.7)}
    assert (y == 0).mean() == pytest.approx(0.3, abs=0.02)


def test_the_gradient_has_the_same_zeros() -> None:
    x = ones(4, 3, 5, 5)
    x.requires_grad_()
    y = F.dropout(x, 0.5)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_the_seed_decides_whatever_the_layout() -> None:
    x = randn(2, 3, 4, 5)
    last = Tensor(np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2))
    manual_seed(3)
    first = F.dropout(x, 0.5)
    manual_seed(3)
    np.testing.assert_array_equal(F.dropout(last, 0.5).numpy(), first.numpy())


def test_it_is_the_identity_outside_training_and_at_zero() -> None:
    x = randn(3, 4)
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert not F.dropout(x, 1.0).numpy().any()
    with pytest.raises(InputError, match=r"in 0\.\.1"):
        F.dropout(x, 1.5)
