"""What a quantized graph becomes, step by step, and what is refused by name."""

import numpy as np
import onnx_ir as ir
import pytest

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.plan import Conv2d, FullyConnected, Table
from midge.core.errors import InputError, UnsupportedError


def steps(plan):
    """The names of the plan's steps in order."""
    return [type(op.params).__name__ for op in plan.ops]


def lowered(graph, *values):
    return lower(graph.output(*values).model(), name="graph")


def test_a_channels_last_file_needs_no_transpose(qdq):
    graph = qdq(0)
    x = graph.input([1, 6, 6, 3])
    rows = graph.node("Transpose", [x], perm=[0, 3, 1, 2])
    graph.params[rows] = graph.params[x]
    y = graph.layer("Conv", rows, (4, 3, 3, 3), 27)
    plan = lowered(graph, graph.node("Transpose", [y], perm=[0, 2, 3, 1]))
    assert steps(plan) == ["Quantize", "Conv2d", "Dequantize"]


def test_a_channels_first_file_is_reordered_once_as_bytes(qdq):
    graph = qdq(0)
    y = graph.layer("Conv", graph.input([1, 3, 6, 6]), (4, 3, 3, 3), 27)
    y = graph.layer("Conv", y, (4, 4, 3, 3), 36)
    pooled = graph.quantized(graph.node("GlobalAveragePool", [y]), graph.wider(y))
    plan = lowered(graph, graph.node("Flatten", [pooled]))
    names = ["Quantize", "Transpose", "Conv2d", "Conv2d", "Pool2d", "Dequantize"]
    assert steps(plan) == names
    assert plan.tensors[plan.ops[1].inputs[0]].dtype == "int8"


def test_one_channel_needs_no_reordering_at_all(qdq):
    graph = qdq(0)
    x = graph.input([1, 8, 8], quantized=False)
    image = graph.node("Reshape", [x, graph.constant(np.array([1, 1, 8, 8]))])
    y = graph.layer("Conv", graph.quantized(image), (4, 1, 3, 3), 9)
    assert steps(lowered(graph, graph.node("Flatten", [y])))[:2] == ["Quantize", "Conv2d"]


def test_a_flatten_before_a_product_permutes_its_weights(qdq):
    graph = qdq(0)
    y = graph.layer("Conv", graph.input([1, 3, 6, 6]), (4, 3, 3, 3), 27)
    flat = graph.node("Flatten", [y])
    graph.params[flat] = graph.params[y]
    model = graph.output(graph.layer("Gemm", flat, (64, 5), 64, axis=1)).model()
    plan = lower(model, name="graph")
    assert steps(plan) == ["Quantize", "Transpose", "Conv2d", "FullyConnected", "Dequantize"]
    weight = plan.ops[3].params.weight
    gemm = next(n for n in model.graph if n.op_type == "Gemm")
    codes = gemm.inputs[1].producer().inputs[0].const_value.numpy()
    by_channel = codes.T.reshape(5, 4, 4, 4).transpose(0, 2, 3, 1).reshape(5, 64)
    assert np.array_equal(weight, by_channel)


def test_reshapes_share_the_bytes_of_their_input(qdq):
    graph = qdq(0)
    x = graph.input([1, 12])
    y = graph.quantized(
        graph.node("Reshape", [x, graph.constant(np.array([1, 3, 4]))]), graph.params[x]
    )
    plan = lowered(graph, y)
    shared = [t.name for t in plan.tensors if t.buffer == plan.tensors[plan.ops[0].output].buffer]
    assert len(shared) == 2
    assert set(Executor(plan).tensors([np.ones((2, 1, 12), np.float32)])) >= set(shared)


def test_a_line_of_samples_is_an_image_of_height_one(qdq):
    graph = qdq(0)
    y = graph.layer("Conv", graph.input([1, 2, 20]), (4, 2, 5), 10, strides=[2], pads=[2, 1])
    plan = lowered(graph, y)
    op = next(op for op in plan.ops if isinstance(op.params, Conv2d))
    assert plan.tensors[op.inputs[0]].shape == (1, 1, 20, 2)
    assert (op.params.stride, op.params.pads) == ((1, 2), (0, 2, 0, 1))
    assert op.macs == 10 * 4 * 10


def test_a_clip_moves_the_saturation_limits_to_its_bounds_codes(qdq):
    graph = qdq(0)
    x = graph.input([1, 3, 5, 5], (0.05, 128))
    w, scale = graph.weight((4, 3, 3, 3))
    y = graph.node("Conv", [x, w, graph.bias(4, x, scale)])
    bounds = [graph.constant(np.float32(v)) for v in (-1, 6)]
    y = graph.quantized(graph.node("Clip", [y, *bounds]), (np.float32(0.1), 30))
    plan = lowered(graph, graph.node("Flatten", [y]))
    r = next(op.params for op in plan.ops if isinstance(op.params, Conv2d)).requantization
    assert (r.zero_point, r.low, r.high) == (30 - 128, 20 - 128, 90 - 128)


def test_two_parameters_of_one_tensor_are_a_table_between_them(qdq):
    graph = qdq(0)
    x = graph.input([1, 9], (0.05, 100))
    plan = lowered(graph, graph.quantized(x, (0.1, 90)))
    assert steps(plan) == ["Quantize", "Table", "Dequantize"]
    table = plan.ops[1].params
    assert isinstance(table, Table)
    assert int(table.table[100]) == 90 - 128  # the real value 0


def test_equal_parameters_cost_nothing(qdq):
    graph = qdq(0)
    x = graph.input([1, 9], (0.05, 100))
    plan = lowered(graph, graph.quantized(x, (0.05, 100)))
    assert steps(plan) == ["Quantize", "Dequantize"]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_inputs_and_outputs_in_codes_keep_the_files_type(build, dtype):
    low = np.iinfo(dtype).min
    text = f"""({dtype}[N, 4] q) => ({dtype}[N, 4] y) {{
        x = DequantizeLinear(q, s, z)
        r = Relu(x)
        y = QuantizeLinear(r, t, z)
    }}"""
    zero = np.array(low + 60, dtype)
    plan = lower(build(text, s=np.float32(0.1), t=np.float32(0.2), z=zero), name="graph")
    flips = ["FlipSign"] if dtype == "uint8" else []
    assert steps(plan) == [*flips, "Table", *flips]
    assert [plan.tensors[t].dtype for t in (*plan.inputs, *plan.outputs)] == [dtype] * 2
    x = np.arange(4, dtype=dtype)[None] + dtype_step(dtype)
    (y,) = Executor(plan).run([x])
    real = np.maximum(x.astype(int) - int(zero), 0) * 0.1
    assert np.array_equal(y, np.rint(real / 0.2).astype(int) + int(zero))


def dtype_step(dtype):
    """Move small codes around the zero-point of the test above."""
    return np.array(60 if dtype == "uint8" else -70, dtype)


def test_an_unknown_batch_is_bound_with_a_notice(qdq):
    graph = qdq(0)
    model = graph.output(graph.input(["N", 5])).model()
    plan = lower(model, name="graph", batch=3)
    assert plan.notices == ["input 'input_1': the leading dimension N is bound to 3."]
    assert plan.tensors[plan.inputs[0]].file_shape == (3, 5)
    assert model.graph.inputs[0].shape[0] != 3


def test_the_model_is_left_as_it_was(qdq):
    graph = qdq(0)
    y = graph.layer("Gemm", graph.input(["N", 5]), (5, 2), 5, axis=1)
    model = graph.output(y).model()
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    lower(model, name="graph")
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_asymmetric_weights_are_folded_where_their_codes_stay_in_int8(qdq, compare):
    graph = qdq(0)
    x = graph.input([2, 8])
    codes = graph.rng.integers(60, 180, (8, 3)).astype(np.uint8)
    w = graph.dequantized(codes, 0.02, zero=np.array(120, np.uint8))
    model = graph.output(graph.quantized(graph.node("MatMul", [x, w]), graph.wider(x))).model()
    plan = lower(model, name="graph")
    fc = next(op.params for op in plan.ops if isinstance(op.params, FullyConnected))
    assert np.array_equal(fc.weight, (codes.astype(int) - 120).T)
    assert compare(model) == {}


def refusal(graph, *values):
    with pytest.raises(UnsupportedError) as caught:
        lowered(graph, *values)
    return str(caught.value)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_asymmetric_weights_beyond_int8_keep_their_zero_point(qdq, compare, groups):
    graph = qdq(groups)
    x = graph.input([2, 6, 7, 5])
    codes = graph.rng.integers(0, 256, (6, 6 // groups, 3, 2)).astype(np.uint8)
    w = graph.dequantized(codes, 0.02, zero=np.array(200, np.uint8))
    y = graph.node("Conv", [x, w], group=groups, pads=[1, 0, 1, 1])
    model = graph.output(graph.quantized(y, graph.wider(x, 2, 4))).model()
    plan = lower(model, name="graph")
    params = next(op.params for op in plan.ops if isinstance(op.params, Conv2d))
    assert params.weight_zero_point == 200 - 128
    assert compare(model) == {}


def test_asymmetric_weights_of_a_product_keep_their_zero_point(qdq, compare):
    graph = qdq(0)
    x = graph.input([2, 8])
    codes = np.arange(24, dtype=np.uint8).reshape(8, 3) * 10
    w = graph.dequantized(codes, 0.02, zero=np.array(200, np.uint8))
    y = graph.quantized(graph.node("MatMul", [x, w]), graph.wider(x, 2, 4))
    assert compare(graph.output(y).model()) == {}


def test_weights_with_several_zero_points_beyond_int8_are_refused_by_name(qdq):
    graph = qdq(0)
    x = graph.input([2, 8])
    codes = np.arange(24, dtype=np.uint8).reshape(8, 3) * 10
    w = graph.dequantized(codes, [0.02] * 3, axis=1, zero=np.array([0, 128, 200], np.uint8))
    message = refusal(graph, graph.quantized(graph.node("MatMul", [x, w])))
    assert message.startswith("MatMul_")
    assert "reach -180..210, outside int8" in message


def test_a_sum_that_could_leave_int32_is_refused_by_channel(qdq):
    graph = qdq(0)
    x = graph.input([2, 8], (0.1, 0))
    w, scale = graph.weight((8, 3), 1, per_channel=False)
    bias = np.array([0, 2**31 - 1, 0], np.int32)
    b = graph.dequantized(bias, np.float32(0.1) * scale)
    message = refusal(graph, graph.quantized(graph.node("Gemm", [x, w, b])))
    assert "output channel 1 can reach" in message


def test_a_softmax_of_another_scale_is_computed_in_float_and_said(qdq):
    graph = qdq(0)
    y = graph.node("Softmax", [graph.input([4, 8])], axis=-1)
    model = graph.output(graph.quantized(y, (np.float32(1 / 255), 0))).model()
    plan = lower(model, name="g")
    x = np.random.default_rng(1).normal(0, 2, (4, 8)).astype(np.float32)
    want = run(make_session(to_proto(model), level="none"), {model.graph.inputs[0].name: x})
    # Not its own integer form, which cuts 1 / scale to a whole number.
    np.testing.assert_array_equal(Executor(plan).run([x])[0], want[0])
    assert "SoftmaxF32" in [type(op.params).__name__ for op in plan.ops]
    assert any("not 1/256" in line for line in plan.notices)


def test_a_bias_of_another_scale_is_refused(qdq):
    graph = qdq(0)
    x = graph.input([2, 8])
    w, scale = graph.weight((8, 3), 1)
    b = graph.dequantized(np.array([1, 2, 3], np.int32), scale * 7, axis=0)
    message = refusal(graph, graph.quantized(graph.node("Gemm", [x, w, b])))
    assert "scale of its bias" in message


def test_weights_with_scales_along_the_input_are_refused(qdq):
    graph = qdq(0)
    x = graph.input([2, 8])
    w, _ = graph.weight((8, 3), 0)
    message = refusal(graph, graph.quantized(graph.node("MatMul", [x, w])))
    assert "scales lie along axis 0, not the output channels' axis 1" in message


@pytest.mark.parametrize("size", [(1, 4), (0, 4)])
def test_empty_or_unknown_sizes_are_refused(build, size):
    text = """(float[a, 4] x) => (float[a, 4] y) {
        q = QuantizeLinear(x, s, z)
        y = DequantizeLinear(q, s, z)
    }"""
    model = build(text, s=np.float32(0.1), z=np.uint8(0))
    if size[0]:
        assert lower(model, name="graph").ops
    else:
        with pytest.raises(InputError, match="needs known sizes above 0"):
            lower(model, name="graph", batch=0)


def test_a_layer_with_several_quantizers_is_computed_once(qdq):
    graph = qdq(2)
    x = graph.input([2, 8])
    w, scale = graph.weight((8, 3), 1)
    y = graph.node("Gemm", [x, w, graph.bias(3, x, scale)])
    a, b = graph.quantized(y, (0.1, 99)), graph.quantized(y, (0.1, 99))
    plan = lowered(graph, graph.quantized(graph.node("Add", [a, b]), (0.3, 77)))
    assert steps(plan) == ["Quantize", "FullyConnected", "Add", "Dequantize"]
    names = Executor(plan).tensors([np.zeros((1, 2, 8), np.float32)])
    assert len(names) == 4
