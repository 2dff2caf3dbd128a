"""Canonical memory order: sums have one order of terms, and copies are counted."""

import numpy as np
import pytest

from midge.core import Tensor
from midge.core.backend import canonical, contiguous, layout_copies, memory_order

# A blocked or pairwise float32 sum of n terms of one sign; n = 2 ** 20 here.
SUM_RTOL = 1e-6


@pytest.fixture(autouse=True)
def _fresh_count():
    layout_copies.reset()


def nhwc(*shape):
    n, c, h, w = shape
    return np.ones((n, h, w, c), np.float32).transpose(0, 3, 1, 2)


def test_channels_last_images_are_canonical_and_not_copied():
    x = nhwc(2, 3, 4, 5)
    assert canonical(x) is x
    Tensor(x).sum()
    Tensor(x, True).mean((2, 3)).sum().backward()
    assert layout_copies.count == 0


def test_other_orders_are_copied_and_counted():
    x = np.ones((2, 3, 4, 5), np.float32)
    y = canonical(x)
    assert y.shape == x.shape
    assert memory_order(y) == (0, 2, 3, 1)
    assert layout_copies.count == 1
    contiguous(np.ones((2, 3)).T)
    assert layout_copies.count == 2


def test_a_linear_training_step_copies_nothing():
    x = Tensor(np.ones((8, 4), np.float32))
    w = Tensor(np.ones((3, 4), np.float32), True)
    b = Tensor(np.ones(3, np.float32), True)
    from midge.core import ops

    ops.cross_entropy(ops.linear(x, w, b), Tensor(np.zeros(8, np.int64))).backward()
    assert layout_copies.count == 0


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)])
def test_large_float32_sums_are_accurate(dim):
    x = np.random.default_rng(0).random((1 << 10, 1 << 10), np.float32)
    exact = x.astype(np.float64).sum(axis=dim)
    np.testing.assert_allclose(Tensor(x).sum(dim).array, exact, rtol=SUM_RTOL)


def test_sums_over_the_leading_axes_of_images_are_accurate():
    x = np.random.default_rng(0).random((16, 3, 64, 64), np.float32)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for dim in ((0, 2, 3), (0,), (0, 2)):
        exact = x.astype(np.float64).sum(axis=dim)
        found = Tensor(x).sum(dim)
        np.testing.assert_allclose(found.array, exact, rtol=SUM_RTOL)
        assert Tensor(x).sum(dim, keepdim=True).shape == tuple(
            1 if d in dim else n for d, n in enumerate(x.shape)
        )


def test_half_precision_sums_in_single_precision():
    x = np.full(4096, 0.1, np.float16)
    assert float(Tensor(x).sum()) == pytest.approx(4096 * float(x[0]), rel=1e-3)
    many = np.ones(100_000, np.float16)
    assert float(Tensor(many).mean()) == 1.0
