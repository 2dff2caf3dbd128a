"""Dilated pools, pools of powers, windows of channels, running sums: all engines agree."""

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
    assert_agrees(tmp_path, network(nodes, form[0]))


LP_POOLS = {  # shape, attributes
    "of images": ([2, 3, 7, 6], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    "of sequences": ([1, 3, 9], {"kernel_shape": [3], "dilations": [2], "p": 1}),
    "of volumes": ([1, 2, 5, 4, 4], {"kernel_shape": [2, 3, 2], "p": 3}),
    "of the cube": ([1, 3, 6, 6], {"kernel_shape": [2, 2], "p": 3, "auto_pad": "SAME_UPPER"}),
}


@pytest.mark.parametrize("name", LP_POOLS)
def test_pools_of_powers_agree_in_all_engines(tmp_path, name):
    shape, attributes = LP_POOLS[name]
    nodes = [
        onnx.helper.make_node("LpPool", ["x"], ["y"], **attributes),
        onnx.helper.make_node("GlobalLpPool", ["x"], ["z"], p=attributes.get("p", 2)),
    ]
    assert_agrees(tmp_path, network(nodes, shape, opset=18))


@pytest.mark.parametrize(
    ("size", "shape"), [(3, [2, 5, 4, 3]), (5, [1, 6, 5, 1]), (9, [1, 4, 2, 2])]
)
def test_responses_are_normalized_over_near_channels(tmp_path, size, shape):
    how = {"size": size, "alpha": 0.7, "beta": 0.6, "bias": 1.3}
    assert_agrees(tmp_path, network([onnx.helper.make_node("LRN", ["x"], ["y"], **how)], shape))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums_agree_in_all_engines(tmp_path, axis):
    nodes = [
        onnx.helper.make_node("CumSum", ["x", "axis"], [f"y{i}"], exclusive=i % 2, reverse=i // 2)
        for i in range(4)
    ]
    assert_agrees(tmp_path, network(nodes, [3, 1, 7], axis=np.array(axis)))


def assert_agrees(tmp_path, model):
    onnx.save(model, tmp_path / "net.onnx")
    report = verify(tmp_path / "net.onnx", count=3)
    assert (report.mismatches, report.elements > 10) == (0, True), report.checks


def network(nodes, shape, opset=22, **constants):
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
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(model)
