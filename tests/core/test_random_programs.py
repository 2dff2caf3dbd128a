"""Random programs of operators, views and in-place writes against PyTorch."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midge.core import Tensor, ops

torch = pytest.importorskip("torch")

RTOL, ATOL = 1e-9, 1e-11

# Each step takes the array module, the tensors so far and a generator, and gives a tensor.
STEPS = {
    "add": lambda m, a, b: a + b,
    "sub": lambda m, a, b: a - b * 0.5,
    "mul": lambda m, a, b: a * b,
    "div": lambda m, a, b: a / (b * b + 1),
    "tanh": lambda m, a, b: m.tanh(a),
    "sigmoid": lambda m, a, b: m.sigmoid(a),
    "relu": lambda m, a, b: m.relu(a),
    "matmul": lambda m, a, b: m.tanh(a @ b),
    "transpose": lambda m, a, b: a.t() + b,
    "softmax": lambda m, a, b: m.softmax(a, 1),
    "mean": lambda m, a, b: a.mean(1, True) + b,
    "sum": lambda m, a, b: m.tanh(a.sum(0)) * b,
    "max": lambda m, a, b: a.max(1, True)[0] * b,
    "slice": lambda m, a, b: a[1:, :].sum() + b,
    "row": lambda m, a, b: a[0] * b,
    "reshape": lambda m, a, b: a.reshape(9)[3:6] + b,
    "expand": lambda m, a, b: a[:, :1].expand(3, 3) * b,
    "where": lambda m, a, b: m.where(a > b, a, b * 2),
    "clone": lambda m, a, b: a.clone(),
    "view": lambda m, a, b: a.t(),
}
WRITES = {
    "add_": lambda m, a, b: a.add_(b),
    "mul_": lambda m, a, b: a.mul_(b * 0.5),
    "row_add_": lambda m, a, b: a[0].add_(b[1]),
    "column_mul_": lambda m, a, b: a[:, 1].mul_(b[0]),
    "set": lambda m, a, b: a[1:].copy_(b[:2]),
    "zero_": lambda m, a, b: a[2].zero_(),
}


def run(module, leaves, program):
    """Run a program; the leaves are multiplied by 1 first so that they can be written to."""
    tensors = [leaf * 1 for leaf in leaves]
    for name, i, j in program:
        a, b = tensors[i % len(tensors)], tensors[j % len(tensors)]
        if name in WRITES:
            # A copy is written to, so that no saved tensor is hit; its views stay linked.
            fresh = a.clone()
            view = fresh.t()
            WRITES[name](module, fresh, b)
            tensors += [fresh, view]
        else:
            tensors.append(STEPS[name](module, a, b))
    total = tensors[-1]
    for t in tensors[-4:-1]:
        total = total + t
    return (total * total).mean()


class Ours:
    """The functions of midge under PyTorch's names."""

    tanh, sigmoid, relu = staticmethod(ops.tanh), staticmethod(ops.sigmoid), staticmethod(ops.relu)
    softmax, where = staticmethod(ops.softmax), staticmethod(ops.where)


programs = st.lists(
    st.tuples(st.sampled_from([*STEPS, *WRITES]), st.integers(0, 50), st.integers(0, 50)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs, st.integers(0, 1000))
def test_random_programs_equal_torch(program, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((3, 3)) for _ in range(2)]
    ours = [Tensor(a.copy(), True) for a in arrays]
    theirs = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
    found, expected = run(Ours, ours, program), run(torch, theirs, program)
    np.testing.assert_allclose(found.item(), expected.item(), rtol=RTOL, atol=ATOL)
    found.backward()
    expected.backward()
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            np.testing.assert_allclose(a.grad.array, b.grad.numpy(), rtol=1e-7, atol=1e-9)
