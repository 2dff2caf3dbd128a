"""gradcheck finds wrong gradients of first and second order and says where."""

import numpy as np
import pytest

from midge.core import Tensor, ops
from midge.core.autograd import Function, gradcheck, gradgradcheck
from midge.core.errors import CheckError, InputError


class Off(Function):
    """x ** 2 whose gradient is wrong for the last element only."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        factor = np.full(x.shape, 2.0)
        factor[-1] = 2.01
        return grad * x * Tensor(factor)


class FirstOrderOnly(Function):
    """x ** 2 whose gradient is right but forgets how it depends on x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.saved_tensors[0].detach()


def point(*shape):
    return Tensor(np.random.default_rng(0).uniform(0.5, 1, shape), requires_grad=True)


def test_a_wrong_gradient_is_located():
    with pytest.raises(CheckError, match=r"d output 0 by input 0, elements \(2, 2\)"):
        gradcheck(Off.apply, [point(3)])


def test_a_wrong_second_derivative_is_found():
    x = point(3)
    assert gradcheck(FirstOrderOnly.apply, [x])
    with pytest.raises(CheckError, match="d output 0 by input 0"):
        gradgradcheck(FirstOrderOnly.apply, [x])


def test_a_missing_gradient_is_found():
    with pytest.raises(CheckError):
        gradcheck(lambda x: x.detach() * 2, [point(2)])


def test_several_inputs_and_outputs_and_constants():
    constant = Tensor(np.ones(3))

    def function(x, y, c, number):
        return x * y + c, (x - y) * number

    assert gradcheck(function, [point(3), point(3), constant, 2.0])
    assert gradgradcheck(function, [point(3), point(3), constant, 2.0])


def test_empty_and_zero_dim_inputs():
    assert gradcheck(ops.exp, [point(0, 2)])
    assert gradcheck(ops.exp, [point()])


def test_it_needs_float64_and_something_to_check():
    with pytest.raises(InputError, match="input 0 is float32"):
        gradcheck(ops.exp, [Tensor(np.ones(2, np.float32), requires_grad=True)])
    with pytest.raises(InputError, match="no input requires gradients"):
        gradcheck(ops.exp, [Tensor(np.ones(2))])
