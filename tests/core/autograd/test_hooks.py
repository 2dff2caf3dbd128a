"""Tensor hooks, retain_grad and post-accumulate hooks."""

import pytest

from midge.core import tensor
from midge.core.errors import InputError


def leaf(*values):
    return tensor(list(values), requires_grad=True)


def test_a_hook_sees_and_replaces_the_gradient():
    x = leaf(1.0)
    y = x * 3
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    assert x.grad.item() == 6.0


def test_hooks_run_in_order_and_can_be_removed():
    x, seen = leaf(1.0), []
    first = x.register_hook(lambda g: seen.append("first"))
    x.register_hook(lambda g: seen.append("second"))
    (x * 1).sum().backward()
    first.remove()
    first.remove()
    (x * 1).sum().backward()
    assert seen == ["first", "second", "second"]


def test_a_handle_removes_its_hook_at_the_end_of_a_block():
    x, seen = leaf(1.0), []
    with x.register_hook(lambda g: seen.append(1)):
        x.sum().backward()
    x.sum().backward()
    assert seen == [1]


def test_a_hook_on_a_leaf_sees_the_sum_of_all_uses():
    x, seen = leaf(2.0), []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * x + x).sum().backward()
    assert seen == [5.0]


def test_retain_grad_keeps_the_gradient_after_the_hooks():
    x = leaf(1.0)
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    assert y.grad.item() == 2.0
    assert x.grad.item() == 6.0


def test_retain_grad_of_a_dead_tensor_is_harmless():
    x = leaf(1.0)
    y = x * 3
    y.retain_grad()
    z = y.sum()
    del y
    z.backward()
    assert x.grad.item() == 3.0


def test_a_post_accumulate_hook_runs_when_grad_is_updated():
    x, seen = leaf(1.0), []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert seen == [2.0, 4.0]


def test_hooks_need_a_tensor_with_gradients():
    constant = tensor([1.0])
    with pytest.raises(InputError, match="register_hook"):
        constant.register_hook(lambda g: g)
    with pytest.raises(InputError, match="retain_grad"):
        constant.retain_grad()
    with pytest.raises(InputError, match="needs a leaf"):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(lambda t: None)
