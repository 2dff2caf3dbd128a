"""The memory order of the inputs never changes a bit of a result or of a gradient."""

import numpy as np
import pytest

from midge.core import Tensor
from midge.core.ops.samples import as_inputs, outputs, seeded
from midge.core.opspec import OPS, Sample


def contiguous(x):
    return np.array(x, order="C")


def fortran(x):
    return np.array(x, order="F")


def channels_last(x):
    if x.ndim != 4:
        return fortran(x)
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def reversed_in_memory(x):
    backwards = (..., *(slice(None, None, -1),) * x.ndim)
    return np.array(x[backwards], order="C")[backwards]


def with_gaps(x):
    wide = np.zeros([2 * n for n in x.shape], x.dtype)
    view = wide[(..., *(slice(None, None, 2),) * x.ndim)]
    view[...] = x
    return view


every_operator = pytest.mark.parametrize("name", list(OPS))
LAYOUTS = [fortran, channels_last, reversed_in_memory, with_gaps]


def outputs_and_gradients(spec, sample, layout):
    arrays = [None if a is None else np.asarray(a) for a in sample.inputs]
    arrays = [
        None if a is None else layout(a.astype(np.float32) if a.dtype.kind == "f" else a)
        for a in arrays
    ]
    inputs = as_inputs(spec, arrays, np.float32)
    results = outputs(spec, inputs, sample.attributes)
    result = [o.detach().array.copy() for o in results]
    if results[0].requires_grad:
        weights = np.random.default_rng(1).standard_normal(results[0].shape)
        results[0].backward(Tensor(layout(weights.astype(results[0].dtype))))
        result += [x.grad.array for x in inputs if x is not None and x.grad is not None]
    return result


@every_operator
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_changes_no_bit(name, layout):
    for sample in seeded(OPS[name]):
        expected = outputs_and_gradients(OPS[name], sample, contiguous)
        found = outputs_and_gradients(OPS[name], sample, layout)
        for a, b in zip(expected, found, strict=True):
            assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


@every_operator
def test_inputs_are_left_as_they_were(name):
    for sample in seeded(OPS[name]):
        arrays = [None if a is None else np.array(a) for a in sample.inputs]
        before = [None if a is None else a.copy() for a in arrays]
        for a in arrays:
            if a is not None:
                a.setflags(write=False)
        inputs = as_inputs(OPS[name], arrays)
        output = outputs(OPS[name], inputs, sample.attributes)[0]
        if output.requires_grad:
            output.backward(Tensor(np.ones(output.shape, output.dtype)))
        for a, b in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(a, b)


@every_operator
def test_a_result_shares_no_memory_unless_it_is_a_view(name):
    spec = OPS[name]
    for sample in seeded(OPS[name]):
        inputs = as_inputs(spec, sample.inputs)
        for output in outputs(spec, inputs, sample.attributes):
            for x in inputs:
                if x is not None and not spec.view:
                    assert not np.shares_memory(output.array, x.array)


# Large enough for blocked sums, SIMD and packed matrix products to differ if the order did.
LARGE = [
    ("sum", [(4, 24, 33, 35)], {"dim": (0, 2, 3), "keepdim": False}),
    ("sum", [(4, 24, 33, 35)], {"dim": (1,), "keepdim": True}),
    ("mean", [(4, 24, 33, 35)], {"dim": (0, 1, 2, 3), "keepdim": False}),
    ("sum", [(700, 130)], {"dim": (0,), "keepdim": False}),
    ("mean", [(700, 130)], {"dim": (1,), "keepdim": False}),
    ("softmax", [(300, 70)], {"dim": 1}),
    ("log_softmax", [(4, 24, 9, 10)], {"dim": 1}),
    ("mse_loss", [(70, 50), (70, 50)], {"reduction": "mean"}),
    ("matmul", [(129, 257), (257, 65)], {}),
    ("matmul", [(2, 3, 33, 40), (40, 21)], {}),
    ("linear", [(64, 640), (128, 640), (128,)], {}),
    ("add", [(4, 24, 33, 35), (1, 24, 1, 1)], {}),
]


@pytest.mark.parametrize(("name", "shapes", "attributes"), LARGE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_changes_no_bit_of_large_tensors(name, shapes, attributes, layout):
    rng = np.random.default_rng(0)
    sample = Sample(tuple(rng.standard_normal(s) for s in shapes), attributes)
    expected = outputs_and_gradients(OPS[name], sample, contiguous)
    found = outputs_and_gradients(OPS[name], sample, layout)
    for a, b in zip(expected, found, strict=True):
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
