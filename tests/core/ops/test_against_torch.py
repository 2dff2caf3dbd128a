"""Values, gradients and dtypes of every operator against PyTorch, where it is installed."""

import numpy as np
import pytest

from midge.core import Tensor, ops
from midge.core.ops.samples import as_inputs, outputs, seeded
from midge.core.opspec import OPS

torch = pytest.importorskip("torch")
F = torch.nn.functional

# float64 against float64: only the order of additions differs.
RTOL, ATOL = 1e-10, 1e-12


def slices(starts, stops, steps):
    return tuple(slice(*s) for s in zip(starts, stops, steps, strict=True))


def reduced(function):
    def run(x, *, dim, keepdim):
        return function(x, dim=dim, keepdim=keepdim) if dim else function(x)

    return run


def matmul(a, b, *, transpose_a=False, transpose_b=False):
    return (a.mT if transpose_a else a) @ (b.mT if transpose_b else b)


def pad(x, *, pads, value):
    return F.pad(x, [n for pair in reversed(pads) for n in pair], value=value)


def index_select(x, index, *, dim):
    return x[(slice(None),) * dim + (index,)]


# OpSpec name -> the same in PyTorch, on the same inputs and attributes.
TORCH = {
    "abs": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "add": torch.add,
    "amax": reduced(torch.amax),
    "amin": reduced(torch.amin),
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "cast": lambda x, *, dtype: x.to(getattr(torch, dtype)),
    "ceil": torch.ceil,
    "clip": lambda x, *, min, max: torch.clamp(x, min, max),
    "clone": torch.clone,
    "concat": lambda *xs, dim: torch.cat(xs, dim),
    "contiguous": lambda x: x.contiguous(),
    "copy": lambda old, new: old.clone().copy_(new),
    "cos": torch.cos,
    "cosh": torch.cosh,
    "cross_entropy": F.cross_entropy,
    "div": torch.div,
    "eq": torch.eq,
    "erf": torch.erf,
    "exp": torch.exp,
    "expand": lambda x, *, shape: x.expand(shape),
    "floor": torch.floor,
    "fmod": torch.fmod,
    "gather": lambda x, index, *, dim: torch.gather(x, dim, index),
    "ge": torch.ge,
    "gt": torch.gt,
    "hardtanh": lambda x, *, min, max: F.hardtanh(x, min, max),
    "index_select": index_select,
    "le": torch.le,
    "linear": F.linear,
    "log": torch.log,
    "log_softmax": torch.log_softmax,
    "logical_and": torch.logical_and,
    "logical_not": torch.logical_not,
    "logical_or": torch.logical_or,
    "lt": torch.lt,
    "matmul": matmul,
    "max": lambda x, *, dim, keepdim: tuple(torch.max(x, dim, keepdim)),
    "maximum": torch.maximum,
    "mean": reduced(torch.mean),
    "min": lambda x, *, dim, keepdim: tuple(torch.min(x, dim, keepdim)),
    "minimum": torch.minimum,
    "mse_loss": F.mse_loss,
    "mul": torch.mul,
    "ne": torch.ne,
    "neg": torch.neg,
    "pad": pad,
    "permute": lambda x, *, dims: x.permute(dims),
    "pow": torch.pow,
    "relu": torch.relu,
    "remainder": torch.remainder,
    "reshape": lambda x, *, shape: x.reshape(shape),
    "round": torch.round,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "slice": lambda x, **at: x[slices(**at)],
    "softmax": torch.softmax,
    "sqrt": torch.sqrt,
    "sub": torch.sub,
    "sum": reduced(torch.sum),
    "tan": torch.tan,
    "tanh": torch.tanh,
    "to_device": lambda x, *, device: x.to(device).clone(),
    "where": torch.where,
}
# Gradients of the others have no public PyTorch name; the first-order test covers their use.
GRADIENTS = {"index_add", "scatter_add", "slice_grad"}
# Compared with PyTorch in the tests of their own modules.
WINDOWED = {
    name
    for name, spec in OPS.items()
    if spec.forward.__module__.rsplit(".", 1)[-1] in ("conv", "pool", "norm", "dropout")
}


def test_every_operator_is_compared():
    assert set(OPS) == set(TORCH) | GRADIENTS | WINDOWED


def torch_inputs(tensors):
    made = []
    for t in tensors:
        twin = None if t is None else torch.from_numpy(np.array(t.detach().array))
        if twin is not None and t.requires_grad:
            twin.requires_grad_()
        made.append(twin)
    return made


def as_torch(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("name", list(TORCH))
def test_values_and_gradients_equal_torch(name):
    spec = OPS[name]
    for sample in seeded(spec):
        ours = as_inputs(spec, sample.inputs)
        theirs = torch_inputs(ours)
        found = outputs(spec, ours, sample.attributes)
        expected = as_torch(TORCH[name](*theirs, **sample.attributes))
        for a, b in zip(found, expected, strict=True):
            assert str(a.dtype) == str(b.dtype).removeprefix("torch.")
            assert a.shape == tuple(b.shape)
            assert a.requires_grad == (b.requires_grad and b.dtype.is_floating_point)
            np.testing.assert_allclose(
                a.detach().array, b.detach().numpy(), rtol=RTOL, atol=ATOL, equal_nan=True
            )
        if found[0].requires_grad:
            weights = np.random.default_rng(1).standard_normal(found[0].shape)
            weights = weights.astype(found[0].dtype)
            found[0].backward(Tensor(weights))
            expected[0].backward(torch.from_numpy(weights))
            compare_gradients(ours, theirs)


def compare_gradients(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        if b is not None and b.grad is not None:
            found = np.zeros(a.shape) if a.grad is None else a.grad.array
            np.testing.assert_allclose(found, b.grad.numpy(), rtol=RTOL, atol=ATOL)


KINKS = [
    ("relu", [[-1.0, 0.0, 1.0]], {}),
    ("abs", [[-1.0, 0.0, 1.0]], {}),
    ("clip", [[-1.0, 0.0, 6.0, 7.0]], {"min": 0.0, "max": 6.0}),
    ("hardtanh", [[-1.0, 0.0, 6.0, 7.0]], {"min": 0.0, "max": 6.0}),
    ("maximum", [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], {}),
    ("minimum", [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], {}),
    ("amax", [[[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]], {"dim": (1,), "keepdim": False}),
    ("max", [[[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]], {"dim": 1, "keepdim": False}),
    ("min", [[[2.0, 1.0, 1.0], [3.0, 3.0, 3.0]]], {"dim": 1, "keepdim": True}),
    ("pow", [[0.0, 0.0, 2.0, -2.0], [0.0, 2.0, 0.0, 3.0]], {}),
    ("sqrt", [[0.0, 1.0]], {}),
    ("div", [[1.0, 0.0], [0.0, 2.0]], {}),
    ("log", [[0.0, -1.0, 1.0]], {}),
    ("exp", [[1000.0, -1000.0]], {}),
    ("sigmoid", [[1000.0, -1000.0, 0.0]], {}),
    ("log_softmax", [[1000.0, -1000.0]], {"dim": 0}),
    ("softmax", [[1000.0, 999.0]], {"dim": 0}),
]


@pytest.mark.parametrize(("name", "inputs", "attributes"), KINKS)
def test_kinks_ties_and_poles_equal_torch(name, inputs, attributes):
    spec = OPS[name]
    ours = as_inputs(spec, [np.array(x) for x in inputs])
    theirs = torch_inputs(ours)
    found = outputs(spec, ours, attributes)[0]
    expected = as_torch(TORCH[name](*theirs, **attributes))[0]
    np.testing.assert_allclose(found.detach().array, expected.detach().numpy(), rtol=RTOL)
    found.backward(Tensor(np.ones(found.shape)))
    expected.backward(torch.ones_like(expected))
    compare_gradients(ours, theirs)


def test_nan_goes_where_torch_lets_it_go():
    x = np.array([np.nan, 1.0, -1.0])
    for name in ("relu", "abs", "exp", "maximum", "amax", "clip"):
        inputs = (x, np.zeros(3)) if name == "maximum" else (x,)
        attributes = {"amax": {"dim": (0,), "keepdim": False}, "clip": {"min": 0.0, "max": 1.0}}
        at = attributes.get(name, {})
        found = outputs(OPS[name], [Tensor(a) for a in inputs], at)[0].array
        expected = TORCH[name](*(torch.from_numpy(a) for a in inputs), **at).numpy()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


COMPOSED = [
    lambda m, x: x.var(),
    lambda m, x: x.var(1, unbiased=False),
    lambda m, x: x.std((0, 1), keepdim=True),
    lambda m, x: x.max(),
    lambda m, x: x.min() + x.amax((0, 2)).sum(),
    lambda m, x: x[1:, ..., 0],
    lambda m, x: x[0, :, None, ::2],
    lambda m, x: x[:, [2, 0]],
    lambda m, x: x[-1],
    lambda m, x: x[x > 0],
    lambda m, x: x.flatten(1),
    lambda m, x: x.transpose(0, -1),
    lambda m, x: x.unsqueeze(1).squeeze(1),
    lambda m, x: x.unsqueeze(-1).expand(-1, -1, -1, 2),
    lambda m, x: m.stack([x, x * 2], 1),
    lambda m, x: x.chunk(2, 1)[1],
    lambda m, x: x.split([1, 2], 1)[0],
    lambda m, x: x @ x.transpose(1, 2),
    lambda m, x: x[0, 0] @ x[1, 1],
    lambda m, x: x @ x[0, 0],
    lambda m, x: 1 / (x * x + 1) - 2 + 3 * x**3,
    lambda m, x: 2 ** (x * 0.1),
    lambda m, x: m.relu(x).mean((1, 2)),
    lambda m, x: x.clip(-0.5) + x.clip(max=0.5),
    lambda m, x: m.where(x > 0, x, x * 0.1),
]


class Ours:
    stack, relu, where = staticmethod(ops.stack), staticmethod(ops.relu), staticmethod(ops.where)


@pytest.mark.parametrize("function", COMPOSED)
def test_methods_equal_torch(function):
    x = np.random.default_rng(3).standard_normal((2, 3, 4))
    ours, theirs = Tensor(x, True), torch.from_numpy(x.copy()).requires_grad_()
    a, b = function(Ours, ours), function(torch, theirs)
    np.testing.assert_allclose(a.detach().array, b.detach().numpy(), rtol=RTOL, atol=ATOL)
    (a * a).sum().backward()
    (b * b).sum().backward()
    np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()])
def test_any_and_all_equal_torch(shape):
    for seed in range(5):
        x = np.random.default_rng(seed).random(shape) > 0.3
        ours, theirs = Tensor(np.asarray(x)), torch.from_numpy(np.asarray(x))
        assert (ours.any().item(), ours.all().item()) == (theirs.any().item(), theirs.all().item())
        if shape:
            assert ours.any(0).tolist() == theirs.any(0).tolist()
            assert ours.all(1, keepdim=True).tolist() == theirs.all(1, keepdim=True).tolist()
