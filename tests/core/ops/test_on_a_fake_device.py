"""Every operator on a strict stand-in for CuPy: no array of the host slips into device code.

The stand-in keeps NumPy arrays inside and refuses what CuPy refuses: NumPy arrays as operands and
silent conversion to NumPy. It says nothing about speed, streams or the GPU's own arithmetic.
"""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from midge.core import Tensor, backend, device
from midge.core.errors import InputError
from midge.core.ops.samples import outputs, seeded
from midge.core.opspec import OPS


def unwrap(value):
    if isinstance(value, FakeArray):
        return value.inner
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, list | tuple):
        return type(value)(unwrap(v) for v in value)
    return value


def wrap(value):
    if isinstance(value, np.ndarray | np.generic):
        return FakeArray(np.asarray(value))
    if isinstance(value, list | tuple) and any(isinstance(v, np.ndarray) for v in value):
        return type(value)(wrap(v) for v in value)
    return value


def on_device(function):
    def call(*args, **kwargs):
        return wrap(
            function(*map(unwrap, args), **{key: unwrap(value) for key, value in kwargs.items()})
        )

    return call


class FakeArray:
    """Stands in for cupy.ndarray."""

    device = SimpleNamespace(id=0)
    __hash__ = object.__hash__

    def __init__(self, inner):
        self.inner = inner

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return on_device(getattr(ufunc, method))(*inputs, **kwargs)

    def get(self):
        return self.inner.copy()

    def __bool__(self):
        return bool(self.inner)

    def __int__(self):
        return int(self.inner)

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, key):
        return wrap(self.inner[unwrap(key)])

    def __setitem__(self, key, value):
        self.inner[unwrap(key)] = unwrap(value)

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        return on_device(value) if callable(value) else wrap(value)


def _operator(name):
    def method(self, *others):
        return on_device(getattr(self.inner, name))(*others)

    return method


_NAMES = [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "pow",
    "rpow",
    "matmul",
    "and",
    "or",
    "invert",
    "neg",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "iadd",
    "isub",
    "imul",
]
for _name in _NAMES:
    setattr(FakeArray, f"__{_name}__", _operator(f"__{_name}__"))


class Grid:
    """Stands in for cupy.ogrid."""

    def __getitem__(self, key):
        return tuple(wrap(g) for g in np.ogrid[key])


class CurrentDevice:
    """Stands in for cupy.cuda.Device."""

    def __init__(self, index):
        self.index = index

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class FakeCupy(ModuleType):
    """Stands in for the cupy module: NumPy's functions on FakeArrays only."""

    ndarray = FakeArray
    cuda = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 1), Device=CurrentDevice)
    ogrid = Grid()

    def asarray(self, value, dtype=None):
        if isinstance(value, FakeArray):
            return value if dtype is None else value.astype(dtype, copy=False)
        return FakeArray(np.array(value, dtype))

    def __getattr__(self, name):
        value = getattr(np, name)
        if name == "add":
            return SimpleNamespace(at=on_device(np.add.at))
        return on_device(value) if callable(value) and not isinstance(value, type) else value


@pytest.fixture
def cuda(monkeypatch):
    """Let "cuda" be the stand-in for the length of a test."""
    fake = FakeCupy("cupy")
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(backend, "_cupy", None)
    return device.as_device("cuda")


def place(spec, arrays, target):
    tensors = []
    for position, array in enumerate(arrays):
        if array is None:
            tensors.append(None)
            continue
        x = Tensor(np.array(array)).to(target)
        if x.dtype.kind == "f" and position not in spec.constants:
            x.requires_grad_()
        tensors.append(x)
    return tensors


def results(spec, sample, target):
    inputs = place(spec, sample.inputs, target)
    assert all(x is None or x.device.type == target for x in inputs)
    attributes = {k: target if k == "device" else v for k, v in sample.attributes.items()}
    found = outputs(spec, inputs, attributes)
    values = [o.detach().cpu().array for o in found]
    if found[0].requires_grad:
        weights = np.random.default_rng(1).standard_normal(found[0].shape)
        found[0].backward(Tensor(weights.astype(found[0].dtype)).to(target))
        values += [x.grad.cpu().array for x in inputs if x is not None and x.grad is not None]
    return values


@pytest.mark.parametrize("name", list(OPS))
def test_device_and_host_agree_bit_for_bit(name, cuda):
    for sample in seeded(OPS[name]):
        expected = results(OPS[name], sample, "cpu")
        found = results(OPS[name], sample, "cuda")
        for a, b in zip(expected, found, strict=True):
            assert a.tobytes() == b.tobytes()


def test_tensors_know_their_device(cuda):
    x = Tensor(np.zeros(2)).to(cuda)
    assert str(x.device) == "cuda:0"
    assert x.to("cuda") is x
    assert (x + 1).device == cuda
    assert "device='cuda:0'" in repr(x)


def test_devices_do_not_mix(cuda):
    x = Tensor(np.zeros(2))
    with pytest.raises(InputError, match="lie on different devices"):
        x.to(cuda) + x


def test_gradients_travel_back_to_the_host(cuda):
    x = Tensor(np.ones(2), requires_grad=True)
    (x.to(cuda) * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
