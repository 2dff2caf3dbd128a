"""Dilated pools, in codes and in float: ONNX Runtime, executor and C agree."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.verify import verify

FORMS = {  # shape, kernel, strides, pads, dilations
    "of images": ([2, 3, 11, 12], [3, 2], [2, 1], [2, 1, 1, 0], [2, 3]),
    "of sequences": ([1, 5, 20], [3], [2], [1, 2], [4]),
    "of one axis": ([1, 4, 9, 9], [3, 1], [1, 1], [0, 0, 0, 0], [3, 2]),
}


def options(form, **more):
    names = ("kernel_shape", "strides", "pads", "dilations")
    return dict(zip(names, form[1:], strict=True)) | more


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", FORMS)
def test_dilated_max_pools_of_codes_give_onnx_runtimes_bits(qdq, compare, name, dtype):
    graph, form = qdq(4, dtype), FORMS[name]
    x = graph.input(form[0], (0.0213, graph.low + 100))
    y = graph.quantized(graph.node("MaxPool", [x], **options(form)), graph.params[x])
    assert compare(graph.output(y).model(opset=19)) == {}


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize("name", FORMS)
def test_dilated_average_pools_of_codes_are_the_rounded_means(qdq, name, counted):
    graph, form = qdq(4), FORMS[name]
    x = graph.input(form[0], (0.0213, 100))
    pooled = graph.node("AveragePool", [x], **options(form, count_include_pad=counted))
    model = graph.output(graph.quantized(pooled, (0.0171, 77))).model(opset=19)
    plan = lower(model, name="net")
    assert [type(op.params).__name__ for op in plan.ops].count("Pool2d") == 1
    x = np.random.default_rng(1).uniform(-3, 4, form[0]).astype(np.float32)
    feeds = {plan.tensors[plan.inputs[0]].name: x}
    # The 8-bit average pool of ONNX Runtime has no dilations: compare with its float one.
    (want,) = run(make_session(to_proto(model), level="none"), feeds)
    (got,) = Executor(plan).run([x])
    steps = np.abs(got - want) / np.float32(0.0171)
    assert (steps.max() < 1.5, np.mean(steps > 0.5) < 0.01) == (True, True)


def test_a_dilated_average_pool_stays_in_float_as_onnx_runtime_has_no_such_8_bit_pool(quantized):
    model = ir.from_proto(
        network(
            [
                onnx.helper.make_node("Conv", ["x", "w"], ["a"]),
                onnx.helper.make_node(
                    "AveragePool", ["a"], ["y"], kernel_shape=[2, 2], dilations=[2, 2]
                ),
            ],
            [1, 3, 9, 9],
            w=np.ones((4, 3, 1, 1), np.float32),
        )
    )
    result, sqnr_db = quantized(model)
    reasons = {c.op_type: c.reason for c in result.coverage if c.state == "float"}
    assert list(reasons) == ["AveragePool"]
    assert "dilated" in reasons["AveragePool"]
    assert sqnr_db > 30


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("name", FORMS)
def test_dilated_pools_of_real_values_agree_in_all_engines(tmp_path, name, ceil):
    form = FORMS[name]
    kinds = [("MaxPool", {}), ("AveragePool", {})]
    kinds += [] if ceil else [("AveragePool", {"count_include_pad": 1})]
    nodes = [
        onnx.helper.make_node(op, ["x"], [f"y{i}"], **options(form, ceil_mode=ceil, **more))
        for i, (op, more) in enumerate(kinds)
    ]
    path = tmp_path / "net.onnx"
    onnx.save(network(nodes, form[0]), path)
    report = verify(path, count=3)
    assert (report.mismatches, report.elements > 30) == (0, True), report.checks


def network(nodes, shape, **constants):
    """A model of one input x; what no node reads is an output."""
    read = {name for node in nodes for name in node.input}
    outputs = [name for node in nodes for name in node.output if name not in read]
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
        [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 22)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(model)
