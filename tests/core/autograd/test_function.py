"""Custom functions: saving, several outputs, second derivatives."""

import pytest

from midge.core import Tensor, autograd, tensor
from midge.core.autograd import Function, gradcheck, gradgradcheck, once_differentiable
from midge.core.errors import InputError


def leaf(*values):
    return tensor(list(values), dtype="float64", requires_grad=True)


class Cube(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x * ctx.scale, None


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).to("float64")

    @staticmethod
    def backward(ctx, grad):
        return grad


class SumAndProduct(Function):
    @staticmethod
    def forward(ctx, a, b):
        assert ctx.needs_input_grad == (True, False)
        total, product = a + b, a * b
        ctx.save_for_backward(b, product)
        return total, product

    @staticmethod
    def backward(ctx, grad_sum, grad_product):
        b, _ = ctx.saved_tensors
        return grad_sum + grad_product * b, None


class Raw(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mask = x.array > 0
        return Tensor(x.array * ctx.mask)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return Tensor(grad.array * ctx.mask)


def test_gradients_of_any_order_pass_through():
    x = leaf(1.5, -2.0)
    assert gradcheck(lambda t: Cube.apply(t, 2.0), [x])
    assert gradgradcheck(lambda t: Cube.apply(t, 2.0), [x])


def test_forward_runs_without_recording():
    x = leaf(1.0)
    y = Cube.apply(x, 1.0)
    assert y.grad_fn.name == "CubeBackward"
    assert y.grad_fn.next_functions[0][0] is x


def test_a_straight_through_estimator_passes_the_gradient():
    x = leaf(-1.0, 1.0)
    StraightThrough.apply(x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_several_outputs_and_a_constant_input():
    a, b = leaf(2.0), tensor([5.0], dtype="float64")
    total, product = SumAndProduct.apply(a, b)
    (total + product).sum().backward()
    assert a.grad.item() == 6.0


def test_an_unused_output_has_a_zero_gradient():
    a, b = leaf(2.0), tensor([5.0], dtype="float64")
    _, product = SumAndProduct.apply(a, b)
    product.sum().backward()
    assert a.grad.item() == 5.0


def test_once_differentiable_works_once():
    x = leaf(-1.0, 2.0)
    y = Raw.apply(x)
    (g,) = autograd.grad(y.sum(), x)
    assert g.tolist() == [0.0, 1.0]


def test_once_differentiable_refuses_a_second_derivative():
    x = leaf(-1.0, 2.0)
    (g,) = autograd.grad((Raw.apply(x) * x).sum(), x, create_graph=True)
    with pytest.raises(InputError, match="RawBackward is marked once_differentiable"):
        g.sum().backward()


def test_attributes_are_freed_after_backward():
    x = leaf(-1.0, 2.0)
    y = Raw.apply(x)
    y.sum().backward()
    with pytest.raises(InputError, match="a second time through RawBackward"):
        y.sum().backward()


def test_nothing_is_recorded_without_a_gradient_to_compute():
    assert Cube.apply(tensor([1.0]), 2.0).grad_fn is None


def test_a_marked_output_has_no_gradient():
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            y, z = x * 2, x * 3
            ctx.mark_non_differentiable(z)
            return y, z

        @staticmethod
        def backward(ctx, grad_y, grad_z):
            return grad_y * 2

    y, z = Both.apply(leaf(1.0))
    assert (y.requires_grad, z.requires_grad) == (True, False)


def test_an_input_handed_through_becomes_a_new_tensor():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 10

    x = leaf(1.0)
    y = Same.apply(x)
    y.sum().backward()
    assert y is not x
    assert x.grad.item() == 10.0


def test_a_forward_that_returns_no_tensor_is_named():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x.array

    with pytest.raises(InputError, match=r"Wrong\.forward must return Tensors"):
        Wrong.apply(leaf(1.0))


def test_a_saved_output_makes_no_cycle_and_comes_back():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    assert gradgradcheck(Exp.apply, [leaf(0.5, 1.0)])
