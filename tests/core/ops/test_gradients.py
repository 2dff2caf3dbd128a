"""Each operator's gradient rule against finite differences in float64, first and second order."""

import numpy as np
import pytest

from midge.core import Tensor
from midge.core.autograd import gradcheck, gradgradcheck
from midge.core.ops.samples import as_inputs, outputs, seeded
from midge.core.opspec import OPS

DIFFERENTIABLE = [name for name, spec in OPS.items() if spec.backward is not None]
every_differentiable = pytest.mark.parametrize("name", DIFFERENTIABLE)


def float64_outputs(spec, inputs, attributes):
    return all(o.dtype == np.float64 for o in outputs(spec, inputs, attributes)[:1])


def checked(name):
    """Yield a function and its float64 inputs for every sample that finite differences can see."""
    spec = OPS[name]
    for sample in seeded(OPS[name]):
        inputs = as_inputs(spec, sample.inputs)
        if float64_outputs(spec, inputs, sample.attributes):
            attributes = sample.attributes

            def function(*args, attributes=attributes):
                return outputs(spec, args, attributes)

            yield function, inputs


@every_differentiable
def test_first_order_equals_finite_differences(name):
    for function, inputs in checked(name):
        assert gradcheck(function, inputs)


@every_differentiable
def test_second_order_equals_finite_differences(name):
    for function, inputs in checked(name):
        assert gradgradcheck(function, inputs)


@every_differentiable
def test_gradient_has_the_dtype_and_shape_of_its_input(name):
    spec = OPS[name]
    for sample in seeded(OPS[name]):
        inputs = as_inputs(spec, sample.inputs, np.float32)
        results = outputs(spec, inputs, sample.attributes)
        for output in results:
            if output.requires_grad:
                output.backward(Tensor(np.ones(output.shape, output.dtype)), retain_graph=True)
        for x in inputs:
            if x is not None and x.grad is not None:
                assert (x.grad.shape, x.grad.dtype) == (x.shape, x.dtype)


@every_differentiable
def test_a_gradient_that_is_not_wanted_is_not_computed_wrongly(name):
    """Each input alone gets the same gradient as together with the others."""
    spec = OPS[name]
    for sample in seeded(OPS[name]):
        together = gradients(spec, as_inputs(spec, sample.inputs), sample)
        for position, array in enumerate(sample.inputs):
            alone = as_inputs(spec, sample.inputs)
            if array is None or not alone[position].requires_grad:
                continue
            for other, tensor in enumerate(alone):
                if tensor is not None and other != position:
                    tensor.requires_grad = False
            found = gradients(spec, alone, sample)[position]
            expected = together[position]
            assert (found is None) == (expected is None)
            if found is not None:
                np.testing.assert_array_equal(found, expected)


def gradients(spec, inputs, sample):
    output = outputs(spec, inputs, sample.attributes)[0]
    if output.requires_grad:
        weights = np.random.default_rng(1).standard_normal(output.shape)
        output.backward(Tensor(weights.astype(output.dtype)))
    return [None if x is None or x.grad is None else x.grad.array for x in inputs]
