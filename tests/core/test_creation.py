"""Creation functions: shapes, dtypes, copies and errors."""

import numpy as np
import pytest

from midge import core
from midge.core import Tensor, tensor
from midge.core.errors import InputError


def test_shapes_are_numbers_or_one_sequence():
    for function in (core.zeros, core.ones, core.rand, core.randn, core.empty):
        assert function(2, 3).shape == function((2, 3)).shape == (2, 3)
        assert function(2).dtype == np.float32
        assert function(2, dtype="float64", requires_grad=True).requires_grad
    with pytest.raises(InputError, match="negative size"):
        core.zeros(-1)


def test_values():
    assert core.full((2,), 3).tolist() == [3, 3]
    assert core.full((1,), 0.5).dtype == np.float32
    assert core.arange(3).tolist() == [0, 1, 2]
    assert core.arange(1, 2, 0.5).tolist() == [1.0, 1.5]
    assert core.arange(0.0, 1).dtype == np.float32
    assert core.linspace(0, 1, 3).tolist() == [0.0, 0.5, 1.0]
    assert core.eye(2).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert core.zeros_like(tensor([1, 2])).dtype == np.int64
    assert core.ones_like(tensor([1, 2]), dtype="float32").tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match="step must not be 0"):
        core.arange(0, 1, 0)


def test_tensor_copies_and_from_numpy_shares():
    array = np.zeros(2)
    copied, shared = tensor(array), core.from_numpy(array)
    array[0] = 1
    assert copied.tolist() == [0.0, 0.0]
    assert shared.tolist() == [1.0, 0.0]
    x = tensor([1.0])
    assert tensor(x).array is not x.array
    with pytest.raises(InputError, match="not list"):
        core.from_numpy([1])


def test_nested_data():
    assert tensor([[1, 2], (3, 4)]).shape == (2, 2)
    assert tensor([tensor(1.0), 2.0]).tolist() == [1.0, 2.0]
    assert tensor([1.7], dtype="int32").tolist() == [1]
    with pytest.raises(InputError, match="no regular array"):
        tensor([[1, 2], [3]])
    with pytest.raises(InputError):
        tensor(["a"])


def test_random_numbers_repeat_with_the_seed():
    core.manual_seed(7)
    first = core.randn(4), core.rand(4), core.randint(0, 10, (4,)), core.randperm(5)
    core.manual_seed(7)
    again = core.randn(4), core.rand(4), core.randint(0, 10, (4,)), core.randperm(5)
    for a, b in zip(first, again, strict=True):
        assert a.tolist() == b.tolist()
    assert sorted(first[3].tolist()) == [0, 1, 2, 3, 4]
    assert first[2].dtype == np.int64


def test_generators_are_independent_of_the_default_one():
    core.manual_seed(1)
    expected = core.rand(3).tolist()
    core.manual_seed(1)
    generator = core.Generator(5)
    own = core.rand(3, generator=generator).tolist()
    assert core.rand(3).tolist() == expected
    state = generator.get_state()
    following = core.rand(3, generator=generator).tolist()
    generator.set_state(state)
    assert core.rand(3, generator=generator).tolist() == following
    assert core.rand(3, generator=core.Generator(5)).tolist() == own
    with pytest.raises(InputError, match="must not be negative"):
        core.manual_seed(-1)


def test_random_numbers_of_every_float_type():
    for dtype in ("float16", "float32", "float64"):
        x = core.rand(1000, dtype=dtype)
        assert x.dtype == dtype
        assert 0.4 < float(x.to("float64").mean()) < 0.6


def test_the_public_names_exist():
    for name in core.__all__:
        assert hasattr(core, name)
    assert isinstance(core.zeros(1), Tensor)
