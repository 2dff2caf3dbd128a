"""Tensor: what it is, how it leaves the graph, how it prints and copies."""

import copy
import pickle

import numpy as np
import pytest

from midge.core import Tensor, arange, from_numpy, tensor, zeros
from midge.core.errors import InputError


def test_it_wraps_without_a_copy():
    array = np.zeros((2, 3), np.float32)
    x = Tensor(array)
    assert x.array is array
    assert (x.shape, x.ndim, x.dtype, len(x), x.numel()) == ((2, 3), 2, np.float32, 2, 6)
    assert str(x.device) == "cpu"
    assert x.size() == (2, 3)
    assert x.size(1) == 3


def test_strides_of_numpy_arrays_are_kept():
    array = np.arange(6.0)[::-2]
    assert from_numpy(array).array is array
    assert (from_numpy(array) * 1).tolist() == [5.0, 3.0, 1.0]


def test_only_arrays_are_wrapped():
    with pytest.raises(InputError, match=r"not list; use tensor\(data\)"):
        Tensor([1.0])
    assert Tensor(np.float32(2)).shape == ()


def test_requires_grad_may_be_assigned_on_leaves_only():
    x = tensor([1.0])
    x.requires_grad = True
    y = x * 2
    assert y.requires_grad
    with pytest.raises(InputError, match="leaf tensors only"):
        y.requires_grad = False
    with pytest.raises(InputError, match="only float tensors"):
        tensor([1]).requires_grad_()
    with pytest.raises(InputError, match="only float tensors"):
        Tensor(np.zeros(1, np.int8), requires_grad=True)


def test_detach_shares_memory_and_version_but_no_graph():
    x = tensor([1.0], requires_grad=True)
    y = x * 2
    d = y.detach()
    assert d.array is y.array
    assert (d.grad_fn, d.requires_grad, d.grad) == (None, False, None)
    assert y.requires_grad
    assert y.data.array is y.array


def test_detach_in_place_makes_a_leaf():
    y = tensor([1.0], requires_grad=True) * 2
    y.detach_()
    assert y.is_leaf
    assert not y.requires_grad


def test_assigning_data_keeps_the_tensor():
    x = tensor([1.0], requires_grad=True)
    x.data = tensor([5.0])
    assert x.tolist() == [5.0]
    assert x.requires_grad


def test_clone_copies_and_stays_in_the_graph():
    x = tensor([1.0], requires_grad=True)
    y = x.clone()
    assert y.array is not x.array
    assert y.grad_fn.name == "CloneBackward"


def test_numpy_shares_memory_and_refuses_to_leave_the_graph_silently():
    x = tensor([1.0])
    assert x.numpy() is x.array
    assert np.asarray(x) is x.array
    with pytest.raises(InputError, match=r"use tensor\.detach\(\)\.numpy\(\)"):
        tensor([1.0], requires_grad=True).numpy()


def test_numbers_come_out_of_single_elements():
    assert tensor([2.5]).item() == 2.5
    assert (int(tensor(3)), float(tensor(3)), bool(tensor(0))) == (3, 3.0, False)
    assert [10, 20][tensor(1)] == 20
    with pytest.raises(InputError, match=r"item\(\) of a tensor with 2 elements"):
        bool(tensor([1, 2]))
    with pytest.raises(TypeError, match="integer tensor"):
        [0][tensor(0.0)]
    with pytest.raises(TypeError, match="0-dim"):
        len(tensor(1.0))


def test_it_prints_as_in_torch():
    x = tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x.sum()) == "tensor(3., grad_fn=<SumBackward>)"
    assert repr(tensor([1.0], dtype="float64")) == "tensor([1.], dtype=float64)"
    assert repr(arange(2)) == "tensor([0, 1])"
    assert f"{tensor(3.14159):.2f}" == "3.14"
    assert f"{arange(2)}" == "tensor([0, 1])"


def test_deepcopy_copies_leaves_with_memory_order_and_gradient():
    x = Tensor(np.zeros((2, 3)).T, requires_grad=True)
    (x * 2).sum().backward()
    y = copy.deepcopy(x)
    assert y.array.strides == x.array.strides
    assert y.requires_grad
    assert y.grad is not x.grad
    assert y.grad.tolist() == x.grad.tolist()
    with pytest.raises(InputError, match="only leaf tensors can be deep-copied"):
        copy.deepcopy(x * 2)


def test_pickle_keeps_values_and_requires_grad():
    x = pickle.loads(pickle.dumps(tensor([1.0, 2.0], requires_grad=True)))
    assert x.tolist() == [1.0, 2.0]
    assert x.requires_grad


def test_arrays_on_the_left_leave_the_work_to_the_tensor():
    x = tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    y = np.array([3.0, 4.0]) * x
    assert isinstance(y, Tensor)
    assert (np.float64(2) - x).tolist() == [1.0, 0.0]
    assert (5 - x).tolist() == [4.0, 3.0]
    assert (2 / x).tolist() == [2.0, 1.0]


def test_iteration_gives_the_rows():
    assert [row.tolist() for row in tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="0-dim tensor cannot be iterated"):
        list(tensor(1.0))


def test_equality_is_by_element_and_identity_by_hash():
    x = tensor([1.0, 2.0])
    assert (x == tensor([1.0, 3.0])).tolist() == [True, False]
    assert len({x, x}) == 1
    assert (x == None) is False  # noqa: E711  what is tested
    assert (x != None) is True  # noqa: E711


def test_views_share_memory():
    x = zeros(2, 3)
    for view in (x.t(), x[0], x.reshape(3, 2), x[:, 1:], x.unsqueeze(0), x.expand(4, 2, 3)):
        assert np.shares_memory(view.array, x.array)
