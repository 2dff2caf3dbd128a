"""Small ONNX graphs written as text, and the question whether two of them compute the same."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.passes.infer_shapes import InferShapes

FLOAT_TOLERANCE = 2e-5  # relative to the largest output: float32 sums in another order


def build_model(text, opset=17, **weights):
    """Return a model from the text of a graph, as onnx.parser reads it, and its initializers."""
    graph = onnx.parser.parse_graph("g " + text)
    for name, array in weights.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    opsets = [onnx.helper.make_opsetid("", opset)]
    for index, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type.lower()}{index}"
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(proto)
    model = ir.from_proto(proto)
    InferShapes()(model)
    return model


def feeds_for(model, rng, batch=3, scale=1.0):
    """Return random inputs; unknown dimensions are `batch`."""
    feeds = {}
    for value in model.graph.inputs:
        shape = [d if isinstance(d, int) else batch for d in value.shape]
        array = rng.standard_normal(shape) * scale
        feeds[value.name] = np.asarray(array, value.dtype.numpy())
    return feeds


@pytest.fixture(scope="session")
def build():
    """The function build_model."""
    return build_model


@pytest.fixture(scope="session")
def random_feeds():
    """The function feeds_for."""
    return feeds_for


@pytest.fixture(scope="session")
def agree():
    """A function that runs two models on random and extreme inputs and compares every output."""

    def check(before, after, tolerance=FLOAT_TOLERANCE):
        rng = np.random.default_rng(7)
        sessions = [make_session(to_proto(m), level="none") for m in (before, after)]
        for scale in (1.0, 0.0, 1e-6, 1e4):
            feeds = feeds_for(before, rng, scale=scale)
            for want, got in zip(*(run(s, feeds) for s in sessions), strict=True):
                assert want.shape == got.shape
                assert want.dtype == got.dtype
                limit = tolerance * max(np.abs(want).max(initial=0), 1e-30)
                np.testing.assert_allclose(got, want, rtol=0, atol=limit)

    return check


@pytest.fixture
def apply(agree):
    """A function that runs a pass, checks that the model computes the same, and returns both."""

    def check(make, model):
        before = model.clone()
        result = make()(model)
        onnx.checker.check_model(to_proto(model), full_check=True)
        agree(before, model)
        for old, new in (
            (before.graph.inputs, model.graph.inputs),
            (before.graph.outputs, model.graph.outputs),
        ):
            assert [v.name for v in old] == [v.name for v in new]
        return result

    return check


@pytest.fixture(scope="session")
def ops():
    """A function that lists a model's operators in order."""
    return lambda model: [n.op_type for n in model.graph]
