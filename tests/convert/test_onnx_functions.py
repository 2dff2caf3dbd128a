"""Operators that ONNX defines by others are read as those, and compute what the operator does."""

import numpy as np
import onnx
import pytest

from midge.convert.calibration_data import RANDOM
from midge.convert.canonical import canonicalize
from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.onnx_functions import expand_functions
from midge.convert.onnx_in import notices, read_model
from midge.convert.ort import make_session, run
from midge.convert.pipeline import quantize_file

MODELS = {
    "Attention": "q = MatMul(x, w) y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, x, x)",
    "RMSNormalization": "y = RMSNormalization (x, scale)",
    "CastLike": "i = ArgMax <axis = -1, keepdims = 1> (x) f = CastLike (i, x) y = Mul (f, x)",
    "NegativeLogLikelihoodLoss": "y = NegativeLogLikelihoodLoss (x, t)",
}
OPSET = 24
rng = np.random.default_rng(0)


def written(tmp_path, body, opset=OPSET):
    """Write a graph of x float32[1,6,8] and y."""
    graph = onnx.parser.parse_graph(f"g (float[1,6,8] x) => (float[1,6,8] y) {{ {body} }}")
    if "Loss" in body:
        del graph.output[0].type.tensor_type.shape.dim[:]  # one number
    constants = {
        "w": rng.normal(0, 0.5, (8, 8)).astype(np.float32),
        "scale": rng.uniform(0.5, 2, 8).astype(np.float32),
        "t": rng.integers(0, 6, (1, 8)),
    }
    for name, array in constants.items():
        if any(name in node.input for node in graph.node):
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return path, model


def in_onnx(model, x):
    """What onnx's own reference implementation makes of x."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, {"x": x})[0]


@pytest.mark.parametrize("name", MODELS)
def test_an_operator_becomes_those_that_define_it(tmp_path, name):
    path, given = written(tmp_path, MODELS[name])
    model = read_model(path)
    assert f"{name}" in notices(model)[0]
    canonicalize(model)
    assert name not in {node.op_type for node in model.graph}
    plan = read_plan(path, "m")
    x = rng.normal(size=(1, 6, 8)).astype(np.float32)
    np.testing.assert_allclose(Executor(plan).run([x])[0], in_onnx(given, x), rtol=2e-5, atol=2e-6)


def test_nodes_of_a_body_are_named_after_the_operator(tmp_path):
    path, _ = written(tmp_path, MODELS["RMSNormalization"])
    model = read_model(path)
    assert {node.name.split("/")[0] for node in model.graph} == {"RMSNormalization_0"}


def test_an_attention_is_quantized_like_the_products_that_it_is(tmp_path):
    path, _ = written(tmp_path, MODELS["Attention"])
    report = quantize_file(path, tmp_path / "m.int8.onnx", RANDOM)
    states = [c.state for c in report.coverage if c.op_type in ("MatMul", "Softmax")]
    assert states == ["quantized"] * 4
    x = rng.normal(size=(1, 6, 8)).astype(np.float32)
    want = run(make_session(path, threads=1), {"x": x})[0]
    got = Executor(read_plan(report.output, "m")).run([x])[0]
    assert 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()) > 25


def test_a_model_without_such_operators_is_handed_on_as_it_is(tmp_path):
    path, given = written(tmp_path, "y = Gelu (x)")
    assert expand_functions(given)[0] is given
    assert notices(read_model(path)) == []


def test_a_body_that_needs_a_type_that_is_not_known_leaves_the_operator(tmp_path):
    _, given = written(tmp_path, "a = Nobody (x) y = CastLike (x, a)")
    left, replaced = expand_functions(given)
    assert [n.op_type for n in left.graph.node] == ["Nobody", "CastLike"]
    assert replaced == []
