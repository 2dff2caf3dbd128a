"""no_grad, enable_grad, inference_mode: nesting, decorators, threads."""

import threading

import pytest

from midge.core import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
    tensor,
)
from midge.core.errors import InputError


def leaf():
    return tensor([1.0, 2.0], requires_grad=True)


def test_no_grad_records_nothing():
    with no_grad():
        y = leaf() * 2
    assert y.grad_fn is None
    assert not y.requires_grad


def test_a_result_of_no_grad_may_start_to_require_gradients():
    with no_grad():
        y = leaf() * 2
    y.requires_grad_()
    y.sum().backward()
    assert y.grad.tolist() == [1.0, 1.0]


def test_modes_nest_and_return():
    with no_grad():
        assert not is_grad_enabled()
        with enable_grad():
            assert is_grad_enabled()
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_a_mode_object_is_reentrant():
    mode = no_grad()
    with mode, mode:
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_modes_return_after_an_exception():
    with pytest.raises(RuntimeError), no_grad():
        raise RuntimeError
    assert is_grad_enabled()


def test_modes_decorate_functions():
    @no_grad()
    def off(x):
        """Doc."""
        return x * 2, is_grad_enabled()

    y, enabled = off(leaf())
    assert (y.requires_grad, enabled, off.__name__, off.__doc__) == (False, False, "off", "Doc.")
    assert is_grad_enabled()


def test_a_decorated_function_may_call_itself():
    @no_grad()
    def countdown(n):
        return is_grad_enabled() if n == 0 else countdown(n - 1)

    assert countdown(3) is False
    assert is_grad_enabled()


def test_set_grad_enabled_acts_at_once_and_as_a_block():
    set_grad_enabled(False)
    assert not is_grad_enabled()
    set_grad_enabled(True)
    with set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_each_thread_has_its_own_mode():
    seen = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_inference_tensors_stay_out_of_autograd():
    with inference_mode():
        x = tensor([1.0]) * 2
        x.add_(1)
    w = tensor([1.0], requires_grad=True)
    with pytest.raises(InputError, match="inference_mode cannot be saved"):
        x * w
    with pytest.raises(InputError, match="cannot require gradients"):
        x.requires_grad_()
    with pytest.raises(InputError, match="in-place update of a tensor made in inference_mode"):
        x.add_(1)
    assert (x.clone() * w).requires_grad
    assert not (x + 1).requires_grad
