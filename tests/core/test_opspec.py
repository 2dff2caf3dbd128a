"""The registry: one record per operator, and how a new one is added."""

import numpy as np
import pytest

from midge.core import Tensor, no_grad
from midge.core.autograd import gradcheck, gradgradcheck
from midge.core.errors import InputError
from midge.core.opspec import OPS, OpSpec, Sample, apply, register


def _scale(ctx, x, *, factor):
    return x * x.dtype.type(factor)


def _scale_backward(ctx, grad):
    return grad * ctx.attributes["factor"]


def _square(ctx, x):
    ctx.save(0)
    ctx.mask = x > 0
    return x * x


def _square_backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * 2 * x


SCALE = OpSpec("scale", "", _scale, _scale_backward, lambda rng: [Sample((rng.random(3),))])
SQUARE = OpSpec("square", "", _square, _square_backward, lambda rng: [])


def test_a_new_operator_needs_two_functions():
    x = Tensor(np.array([1.0, 2.0]), True)
    assert gradgradcheck(lambda t: apply(SCALE, (t,), {"factor": 3.0}), [x])
    assert gradcheck(lambda t: apply(SQUARE, (t,)), [x])
    assert apply(SCALE, (x,), {"factor": 3.0}).grad_fn.name == "ScaleBackward"


def test_an_operator_is_registered_once():
    with pytest.raises(ValueError, match="'add' is registered twice"):
        register(OPS["add"])


def test_every_operator_has_samples_and_a_unique_name():
    for name, spec in OPS.items():
        assert spec.name == name
        assert list(spec.samples(np.random.default_rng(0)))


def test_samples_are_the_same_for_the_same_seed():
    for spec in OPS.values():
        first, again = (list(spec.samples(np.random.default_rng(1))) for _ in range(2))
        for a, b in zip(first, again, strict=True):
            for x, y in zip(a.inputs, b.inputs, strict=True):
                np.testing.assert_array_equal(x, y)


def test_an_operator_records_one_node_or_none():
    x = Tensor(np.ones(2), True)
    y = apply(SQUARE, (x,))
    ((source, index),) = y.grad_fn.next_functions
    assert source is x
    assert index == 0
    with no_grad():
        assert apply(SQUARE, (x,)).grad_fn is None
    assert apply(SQUARE, (x.detach(),)).grad_fn is None


def test_arrays_kept_on_ctx_are_freed_with_the_rest():
    y = apply(SQUARE, (Tensor(np.ones(2), True),)).sum()
    node = y.grad_fn.next_functions[0][0]
    assert node.mask.all()
    y.backward()
    with pytest.raises(InputError, match="a second time through SquareBackward"):
        _ = node.mask
