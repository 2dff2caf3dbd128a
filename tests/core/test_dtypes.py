"""Default dtypes and promotion equal PyTorch's."""

import itertools

import numpy as np
import pytest

from midge.core import Tensor, dtypes, from_numpy, ops, tensor
from midge.core.errors import InputError
from midge.core.ops.operands import result_type

ALL = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def test_python_data_gets_the_default_types():
    assert tensor([1.5]).dtype == np.float32
    assert tensor([1]).dtype == np.int64
    assert tensor([True]).dtype == np.bool_
    assert tensor([1, 2.5]).dtype == np.float32
    assert tensor([]).dtype == np.float32
    assert tensor(3.0).shape == ()


def test_arrays_keep_their_types():
    assert from_numpy(np.zeros(2)).dtype == np.float64
    assert tensor(np.zeros(2)).dtype == np.float64
    assert tensor(np.float64(1)).dtype == np.float64
    assert tensor(np.int8([1])).dtype == np.int8


def test_every_pair_promotes_as_in_torch():
    torch = pytest.importorskip("torch")
    kinds = {
        "tensor": (lambda t: Tensor(np.ones(2, t)), lambda t: torch.ones(2, dtype=t)),
        "0-dim": (lambda t: Tensor(np.ones((), t)), lambda t: torch.ones((), dtype=t)),
    }
    numbers = [True, 2, 0.5]
    for (a, b), (x, y) in itertools.product(
        itertools.product(ALL, ALL), itertools.product(kinds.values(), kinds.values())
    ):
        found = result_type(x[0](a), y[0](b))
        expected = torch.result_type(x[1](getattr(torch, a)), y[1](getattr(torch, b)))
        assert f"torch.{found}" == str(expected), (a, b)
    for a, x, number in itertools.product(ALL, kinds.values(), numbers):
        found = result_type(x[0](a), number)
        expected = torch.result_type(x[1](getattr(torch, a)), number)
        assert f"torch.{found}" == str(expected), (a, number)


@pytest.mark.parametrize("operator", ["add", "mul", "div", "maximum", "where", "concat", "eq"])
def test_results_have_the_promoted_type(operator):
    torch = pytest.importorskip("torch")
    for a, b in itertools.product(ALL, ALL):
        ours = [Tensor(np.ones(2, a)), Tensor(np.ones(2, b))]
        theirs = [torch.ones(2, dtype=getattr(torch, t)) for t in (a, b)]
        if operator == "where":
            found = ops.where(Tensor(np.array([True, False])), *ours)
            expected = torch.where(torch.tensor([True, False]), *theirs)
        elif operator == "concat":
            found, expected = ops.concat(ours), torch.cat(theirs)
        else:
            found = getattr(ops, operator)(*ours)
            expected = getattr(torch, operator)(*theirs)
        assert f"torch.{found.dtype}" == str(expected.dtype), (a, b)
        np.testing.assert_array_equal(found.array, expected.numpy())


def test_a_number_never_widens():
    x = tensor([1.0])
    assert (x * 2.0).dtype == np.float32
    assert (x * tensor(2.0, dtype="float64")).dtype == np.float32
    assert (tensor([1], dtype="int8") + 1000 * 0).dtype == np.int8
    assert (tensor([1]) * 0.5).dtype == np.float32
    assert (x * np.float64(2)).dtype == np.float32


def test_limits_of_an_integer_tensor_may_be_floats():
    assert tensor([1, 5]).clip(2.5, 3).tolist() == [2.5, 3.0]
    assert tensor([1, 5]).clip(2, 3).dtype == np.int64


def test_mixed_gradients_return_in_the_type_of_each_input():
    a = tensor([1.0], requires_grad=True)
    b = tensor([2.0], dtype="float64", requires_grad=True)
    (a * b).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (np.float32, np.float64)


def test_unknown_types_are_named():
    with pytest.raises(InputError, match=r"'floa32' is not supported.*Did you mean 'float32'"):
        dtypes.as_dtype("floa32")
    with pytest.raises(InputError, match="complex64"):
        from_numpy(np.zeros(1, np.complex64))
    with pytest.raises(InputError, match="300 does not fit into uint8"):
        tensor([1], dtype="uint8") + 300
