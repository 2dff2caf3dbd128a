"""In-place writes: values, versions, gradients through views, and what is refused."""

import numpy as np
import pytest

from midge.core import Tensor, arange, no_grad, ones, tensor, zeros
from midge.core.errors import InputError


def leaf(*values):
    return tensor(list(values), dtype="float64", requires_grad=True)


def test_values_are_written_into_the_same_memory():
    x = tensor([1.0, 2.0])
    array = x.array
    x.add_(1).mul_(3).sub_(2).div_(2)
    x += 1
    assert x.array is array
    assert x.tolist() == [3.0, 4.5]


def test_add_takes_a_factor():
    assert tensor([1.0]).add_(tensor([2.0]), alpha=-0.5).tolist() == [0.0]


def test_copy_fill_and_zero_broadcast_and_cast():
    x = zeros(2, 2)
    x.copy_(tensor([1, 2]))
    assert x.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert x.fill_(3).sum().item() == 12.0
    assert x.zero_().sum().item() == 0.0


def test_each_write_raises_the_version_once():
    x = tensor([1.0, 2.0])
    y = x.detach()
    for write in (lambda: x.add_(1), lambda: y.mul_(2), lambda: x[:1].zero_()):
        before = x._version[0]
        write()
        assert x._version[0] == before + 1 == y._version[0]


def test_gradients_flow_through_writes():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x * 1
    y.mul_(w).add_(x)
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 5.0]
    assert w.grad.tolist() == [1.0, 2.0]


def test_a_constant_starts_to_require_gradients():
    w, x = leaf(2.0), tensor([1.0], dtype="float64")
    x.add_(w)
    assert x.requires_grad
    x.sum().backward()
    assert w.grad.item() == 1.0


def test_a_write_through_a_view_reaches_the_base():
    x, w = leaf(1.0, 2.0, 3.0, 4.0), leaf(10.0)
    y = x * 1
    y[1:3].mul_(w)
    (y * y).sum().backward()
    assert y.tolist() == [1.0, 20.0, 30.0, 4.0]
    assert x.grad.tolist() == [2.0, 400.0, 600.0, 8.0]
    assert w.grad.item() == 2 * 20 * 2 + 2 * 30 * 3


def test_a_write_into_the_base_reaches_a_view():
    x = leaf(1.0, 2.0)
    y = x * 1
    part = y[0]
    y.mul_(5)
    assert part.item() == 5.0
    part.backward()
    assert x.grad.tolist() == [5.0, 0.0]


def test_two_views_see_each_other():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    first, last = y[:2], y[1:]
    first.mul_(10)
    last.mul_(100)
    (first.sum() + last.sum()).backward()
    assert first.tolist() == [10.0, 2000.0]
    assert x.grad.tolist() == [10.0, 2000.0, 100.0]


def test_a_view_of_a_view_through_permute_and_reshape():
    x = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    y = x * 1
    y.t()[1:].reshape(2, 2)[0].mul_(10)
    y.sum().backward()
    assert x.grad.tolist() == [[1.0, 10.0, 1.0], [1.0, 10.0, 1.0]]


def test_a_view_of_a_constant_base_that_gets_gradients():
    base, w = zeros(3, dtype="float64"), leaf(2.0)
    part = base[1:]
    base[0].add_(w[0])
    assert base.requires_grad
    assert part.requires_grad
    base.sum().backward()
    assert w.grad.item() == 1.0


def test_assignment_by_slices_is_recorded():
    x, w = leaf(1.0, 2.0, 3.0), leaf(7.0)
    y = x * 1
    y[1] = w[0]
    y[2:] = 0
    assert y.tolist() == [1.0, 7.0, 0.0]
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 0.0, 0.0]
    assert w.grad.item() == 1.0


def test_assignment_by_arrays_outside_of_recording():
    x = arange(4)
    x[[0, 2]] = 9
    x[x == 1] = 5
    assert x.tolist() == [9, 5, 9, 3]


def test_assignment_by_arrays_is_refused_while_recording():
    y = leaf(1.0, 2.0) * 1
    with pytest.raises(InputError, match="index assignment by arrays"):
        y[[0]] = 1.0


def test_a_write_with_itself_is_right():
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    x.add_(x.t())
    assert x.tolist() == [[2.0, 5.0], [5.0, 8.0]]


def test_second_derivatives_pass_through_a_write_into_a_view():
    from midge.core.autograd import gradgradcheck

    def function(x, w):
        y = x * x
        y[0].mul_(w)
        return y * y

    x = Tensor(np.array([[0.5, 1.5], [2.0, -1.0]]), requires_grad=True)
    assert gradgradcheck(function, [x, leaf(1.0, 2.0)])


def test_a_leaf_refuses_writes_while_recording_and_allows_them_in_no_grad():
    x = leaf(1.0)
    with pytest.raises(InputError, match="in-place update of a leaf that requires gradients"):
        x.add_(1)
    with pytest.raises(InputError, match="in-place update of a view of a leaf"):
        x[0].add_(1)
    with no_grad():
        x.add_(1)
        x[0].add_(1)
    assert x.tolist() == [3.0]
    assert x.is_leaf


def test_a_view_made_in_no_grad_refuses_a_recorded_write():
    y = leaf(1.0, 2.0) * 1
    with no_grad():
        part = y[:1]
    with pytest.raises(InputError, match="view made in no_grad"):
        part.mul_(leaf(2.0))


def test_an_expanded_tensor_refuses_writes():
    with pytest.raises(InputError, match="elements share memory"):
        ones(1).expand(3).add_(1)


def test_a_write_cannot_grow_the_tensor_or_change_its_kind():
    with pytest.raises(InputError, match=r"add_: the result has shape \[2\]"):
        ones(1).add_(ones(2))
    with pytest.raises(InputError, match="float32 result does not fit into a int64"):
        arange(3).mul_(0.5)
    with pytest.raises(InputError, match="float32 result does not fit into a int64"):
        arange(3).div_(2)


def test_limits_in_place():
    x = leaf(-1.0, 0.5, 2.0)
    y = x * 1
    y.relu_().clip_(max=1.0)
    assert y.tolist() == [0.0, 0.5, 1.0]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]
