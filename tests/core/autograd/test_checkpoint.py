"""checkpoint: the same bits with less memory."""

import weakref

import numpy as np
import pytest

from midge.core import Tensor, autograd, manual_seed, no_grad, ops, tensor
from midge.core.autograd import checkpoint
from midge.core.errors import InputError


def values(seed, *shape):
    return Tensor(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


def gradients(run, *leaves):
    return [g.array for g in autograd.grad(run(), leaves)]


def test_gradients_are_bit_equal_also_of_weights_used_inside():
    x, w = values(0, 4, 3), values(1, 3, 3)

    def block(t):
        return ops.relu(t @ w).exp() * t.sum(1, keepdim=True)

    plain = gradients(lambda: (block(block(x * 1)) ** 2).sum(), x, w)
    kept = gradients(lambda: (checkpoint(block, checkpoint(block, x * 1)) ** 2).sum(), x, w)
    for a, b in zip(plain, kept, strict=True):
        assert a.tobytes() == b.tobytes()


def test_second_derivatives_work():
    x = values(0, 3)

    def twice(f):
        (g,) = autograd.grad(f(x).sum(), x, create_graph=True)
        return gradients(lambda: (g * g).sum(), x)[0]

    plain = twice(lambda t: t.exp() * t)
    assert twice(lambda t: checkpoint(lambda u: u.exp() * u, t)).tobytes() == plain.tobytes()


def test_random_numbers_are_drawn_again():
    x = values(0, 100)

    def noisy(t):
        return ops.dropout(t, 0.5, training=True) * t

    manual_seed(3)
    plain = gradients(lambda: noisy(x).sum(), x)[0]
    after_plain = ops.dropout(x, 0.5, training=True).array.copy()
    manual_seed(3)
    kept = gradients(lambda: checkpoint(noisy, x).sum(), x)[0]
    after_kept = ops.dropout(x, 0.5, training=True).array
    assert plain.tobytes() == kept.tobytes()
    assert after_plain.tobytes() == after_kept.tobytes()


def test_inner_results_are_not_kept():
    inner = []

    def block(t):
        y = t.exp()
        inner.append(weakref.ref(y.array))
        return (y * y).sum()

    x = values(0, 10)
    y = checkpoint(block, x)
    assert inner[0]() is None
    y.backward()
    assert all(r() is None for r in inner)
    assert len(inner) == 2


def test_nested_regions_give_the_same_gradients():
    x = values(0, 5)

    def inner(t):
        return t.tanh() * t

    def outer(t):
        return checkpoint(inner, t.exp()) + inner(t)

    plain = gradients(lambda: (inner(x.exp()) + inner(x)).sum(), x)[0]
    np.testing.assert_array_equal(gradients(lambda: checkpoint(outer, x).sum(), x)[0], plain)


def test_nothing_happens_without_recording():
    with no_grad():
        assert checkpoint(lambda t: t * 2, tensor([1.0])).tolist() == [2.0]


def test_a_region_that_changes_is_noticed():
    state = {"calls": 0}

    def region(t):
        state["calls"] += 1
        y = t.exp()
        return y * y if state["calls"] == 1 else y

    x = values(0, 3)
    y = checkpoint(region, x).sum()
    with pytest.raises(InputError, match="must do the same each time"):
        y.backward()


def test_an_argument_modified_in_place_is_noticed():
    x = values(0, 3)
    y = x * 1
    z = checkpoint(lambda t: t.exp().sum(), y)
    with no_grad():
        y.zero_()
    with pytest.raises(InputError, match="argument was modified in place"):
        z.backward()
