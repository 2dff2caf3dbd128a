"""The backward pass: order, accumulation, freeing, graph of higher order, and its errors."""

import gc
import sys
import weakref

import numpy as np
import pytest

from midge.core import Tensor, autograd, no_grad, ones, tensor
from midge.core.errors import InputError
from midge.core.ops.shape import narrow


def leaf(*values):
    return tensor(list(values), dtype="float64", requires_grad=True)


def test_a_diamond_is_run_once_with_both_gradients():
    x = leaf(3.0)
    calls = []
    y = x * 2
    y.register_hook(lambda g: calls.append(g.item()))
    (y * y + y).sum().backward()
    assert calls == [13.0]
    assert x.grad.tolist() == [26.0]


def test_gradients_accumulate_over_passes():
    x = leaf(1.0, 2.0)
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def test_accumulation_keeps_the_memory_of_grad():
    x = leaf(1.0)
    x.sum().backward()
    first = x.grad
    x.sum().backward()
    assert x.grad is first
    assert first.tolist() == [2.0]


def test_leaves_never_share_gradient_memory():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x + y).sum().backward()
    x.grad.zero_()
    assert y.grad.tolist() == [1.0, 1.0]


def test_a_leaf_used_twice_gets_the_sum():
    x = leaf(2.0)
    (x * x).backward(ones(1, dtype="float64"))
    assert x.grad.item() == 4.0


def test_a_chain_of_ten_thousand_nodes_needs_no_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(10_000):
        y = y * 1.0
    assert sys.getrecursionlimit() < 10_000
    y.sum().backward()
    assert x.grad.item() == 1.0


def test_a_long_chain_is_freed_without_recursion():
    y = leaf(1.0)
    for _ in range(20_000):
        y = y + 0.0
    del y


def test_second_backward_raises_where_something_was_saved():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(
        InputError, match=r"backward a second time through MulBackward.*retain_graph"
    ):
        y.backward()


def test_second_backward_works_where_nothing_was_saved():
    x = leaf(1.0, 2.0)
    y = (x + x).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_retain_graph_allows_a_second_pass():
    x = leaf(3.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 12.0


def test_saved_data_is_freed_as_backward_goes():
    x = leaf(1.0, 2.0)
    middle = x * 2
    array = weakref.ref(middle.array)
    y = middle.exp().log().sum()
    freed = []
    x.register_hook(lambda g: freed.append(array() is None))
    del middle
    assert array() is None or y.grad_fn is not None
    y.backward()
    assert freed == [True]


def test_the_graph_dies_by_reference_counting():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = (x.exp() * x).softmax(0)
        node = weakref.ref(y.grad_fn)
        array = weakref.ref(y.array)
        z = y.sum()
        del y, z
        assert node() is None
        assert array() is None
    finally:
        gc.enable()


def test_the_graph_of_a_backward_pass_dies_by_reference_counting():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = (x.tanh() * x.sigmoid()).sum()
        (g,) = autograd.grad(y, x, create_graph=True)
        node = weakref.ref(g.grad_fn)
        del g, y
        assert node() is None
    finally:
        gc.enable()


def test_in_place_writes_leave_no_reference_cycle():
    gc.collect()
    gc.disable()
    try:
        w = leaf(1.0, 2.0)
        base = tensor([1.0, 2.0], dtype="float64")
        part = base[0]
        loss = (part * w[0]).sum()
        base.add_(loss)
        base.mul_(w)
        node = weakref.ref(base.grad_fn)
        del base, part, loss
        assert node() is None
    finally:
        gc.enable()


def test_create_graph_gives_derivatives_of_any_order():
    x = leaf(2.0)
    g = x**4
    for expected in (32.0, 48.0, 48.0, 24.0):
        (g,) = autograd.grad(g.sum(), x, create_graph=True)
        assert g.item() == pytest.approx(expected)


def test_a_gradient_of_a_gradient_step_reaches_the_first_weights():
    w = leaf(0.5)
    (g,) = autograd.grad((w**3).sum(), w, create_graph=True)
    adapted = w - 0.1 * g
    (adapted**2).sum().backward()
    expected = 2 * (0.5 - 0.1 * 3 * 0.25) * (1 - 0.1 * 6 * 0.5)
    assert w.grad.item() == pytest.approx(expected)


def test_grad_returns_gradients_of_inner_tensors_and_changes_no_leaf():
    x = leaf(3.0)
    y = x * x
    gx, gy = autograd.grad((y * 2).sum(), (x, y))
    assert (gx.item(), gy.item(), x.grad) == (12.0, 2.0, None)


def test_grad_runs_only_the_nodes_that_lead_to_the_inputs():
    x, w = leaf(3.0), leaf(5.0)
    expensive = (w * w).exp()
    ran = []
    expensive.register_hook(lambda g: ran.append(1))
    autograd.grad((x * expensive).sum(), x)
    assert ran == []


def test_grad_names_an_unused_input():
    x, y = leaf(1.0), leaf(1.0)
    with pytest.raises(InputError, match="input 1 was not used"):
        autograd.grad(x.sum(), (x, y))
    assert autograd.grad(x.sum(), (x, y), allow_unused=True)[1] is None


def test_backward_into_chosen_inputs_only():
    x, y = leaf(2.0), leaf(3.0)
    (x * y).sum().backward(inputs=[y])
    assert (x.grad, y.grad.item()) == (None, 2.0)


def test_gradients_of_several_roots_are_added():
    x = leaf(2.0)
    autograd.backward([(x * 2).sum(), (x * x).sum()], [None, None])
    assert x.grad.item() == 6.0


def test_an_unused_output_of_a_node_counts_as_zero():
    x = tensor([[1.0, 5.0, 2.0]], dtype="float64", requires_grad=True)
    values, indices = x.max(1)
    values.sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0]]
    assert not indices.requires_grad


def test_backward_needs_a_gradient_for_more_than_one_element():
    with pytest.raises(InputError, match=r"shape \[2\] needs a gradient"):
        (leaf(1.0, 2.0) * 2).backward()


def test_backward_checks_the_shape_of_the_gradient():
    with pytest.raises(InputError, match=r"gradient has shape \[3\], the output \[2\]"):
        (leaf(1.0, 2.0) * 2).backward(ones(3, dtype="float64"))


def test_backward_without_a_graph_says_why():
    with pytest.raises(InputError, match="does not require gradients"):
        tensor([1.0]).sum().backward()


def test_a_modified_saved_tensor_is_noticed():
    x = leaf(1.0, 2.0)
    y = x * 2
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(InputError, match=r"MulBackward.*modified by an in-place operation"):
        z.backward()


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.detach().zero_(),
        lambda t: t.data.mul_(2),
        lambda t: t[:1].fill_(7),
        lambda t: t.reshape(2, 1).zero_(),
    ],
)
def test_a_write_through_another_tensor_on_the_same_memory_is_noticed(write):
    x = leaf(1.0, 2.0)
    y = x * 2
    z = y.exp().sum() + (y * y).sum()
    with no_grad():
        write(y)
    with pytest.raises(InputError, match="modified by an in-place operation"):
        z.backward()


def test_a_saved_leaf_whose_data_was_replaced_is_noticed():
    x, w = leaf(1.0), leaf(2.0)
    y = (x * w).sum()
    w.data = tensor([5.0], dtype="float64")
    with pytest.raises(InputError, match="modified"):
        y.backward()


def test_retain_graph_of_a_pass_frees_nothing():
    x = leaf(2.0)
    y = x.exp().sum()
    first = autograd.grad(y, x, retain_graph=True)[0].item()
    assert autograd.grad(y, x)[0].item() == first


def test_grad_fn_has_a_name_and_edges():
    x = leaf(1.0)
    y = (x * 2).sum()
    assert repr(y.grad_fn) == "<SumBackward>"
    ((node, index),) = y.grad_fn.next_functions
    assert (node.name, index) == ("MulBackward", 0)
    assert node.next_functions[0][0] is x
    assert x.grad_fn is None
    assert x.is_leaf
    assert not y.is_leaf


def test_a_rule_with_the_wrong_number_of_gradients_is_named():
    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad):
            return grad

    with pytest.raises(InputError, match="WrongBackward returned 1 gradients for 2 inputs"):
        Wrong.apply(leaf(1.0), leaf(2.0)).sum().backward()


def test_a_gradient_of_the_wrong_shape_is_named():
    class Wrong(autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, grad):
            return narrow(grad, 0, 0, 1).expand(5)

    with pytest.raises(InputError, match=r"shape \[5\] for a tensor of shape \[2\]"):
        Wrong.apply(leaf(1.0, 2.0) * 1).sum().backward()


def test_gradients_keep_the_memory_order_of_the_leaf():
    nhwc = np.zeros((2, 4, 5, 3)).transpose(0, 3, 1, 2)
    x = Tensor(nhwc, True)
    (x * Tensor(np.ones((2, 3, 4, 5)))).sum().backward()
    assert x.grad.array.strides == nhwc.strides
