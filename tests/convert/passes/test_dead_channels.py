"""Channels that no output depends on: they go, and no bit changes, in ONNX Runtime and executor."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert import graph as g
from midge.convert.compile import random_inputs, read_plan
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.onnx_in import read_model
from midge.convert.passes.dead_channels import remove_dead_channels
from midge.convert.reference import Reference
from midge.convert.verify import verify

MODELS = os.environ.get("MIDGE_MODELS")
S = np.float32(0.02)  # scale of most tensors here
ONES = np.float32(0.5)  # of weights


@pytest.fixture(scope="module")
def planted(qdq):
    """A QdqGraph whose random layers have dead filters and unread inputs."""

    class Planted(qdq):
        """Layers with given codes, or random ones with planted zeros."""

        def weight(self, shape, axis=0, per_channel=True):
            codes = self.rng.integers(-127, 128, shape)
            for a in {axis, 1 - axis}:
                dead = self.rng.random(shape[a]) < self.rng.choice([0, 0.4, 0.9])
                np.moveaxis(codes, a, 0)[dead] = 0
            scale = self.rng.uniform(0.001, 0.02, shape[axis] if per_channel else ())
            scale = np.asarray(scale, np.float32)
            return self.dequantized(codes.astype(np.int8), scale, axis), scale

        def given(self, op, x, W, B=None, *, params=(S, 0), relu=False, **attributes):
            """Add a layer of these codes, with one weight scale, and quantize its output."""
            operands = [x, self.dequantized(np.asarray(W, np.int8), ONES)]
            if B is not None:
                scale = np.float32(self.params[x][0] * ONES)
                operands.append(self.dequantized(np.asarray(B, np.int32), scale))
            y = self.node(op, operands, **attributes)
            return self.quantized(self.node("Relu", [y]) if relu else y, params)

    return Planted


def widths(model):
    """Return the output channels of every layer, in order."""
    layers = [n for n in model.graph if n.op_type in ("Conv", "Gemm", "MatMul")]
    return [g.static_dims(n.inputs[1])[g.channel_axis(n, g.rank(n.inputs[1]))] for n in layers]


def biases(model):
    """Return the bias codes of the last layer."""
    last = [n for n in model.graph if n.op_type in ("Conv", "Gemm")][-1]
    return g.constant(last.inputs[2].producer().inputs[0]).tolist()


def run(model, inputs):
    plan = lower(model, name="graph")
    return Executor(plan).observe(inputs)


@pytest.fixture(scope="module")
def shrink(compare):
    """A function that removes dead channels, proves that no bit changed, and returns the model."""

    def check(model, samples=6):
        before = model.clone()
        reduction = remove_dead_channels(model)
        assert compare(model, samples=samples) == {}
        plan = lower(before, name="graph")
        inputs = random_inputs(plan, samples, 1)
        names = [plan.tensors[t].name for t in plan.inputs]
        old, new = run(before, inputs), run(model, inputs)
        reference, _ = Reference(before, show=False).run_batch(names, inputs)
        for a, b, c in zip(old.outputs, new.outputs, reference, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(b, c)
        for name, codes in new.tensors.items():
            if codes.shape == old.tensors[name].shape:
                np.testing.assert_array_equal(codes, old.tensors[name])
        assert reduction.after.macs <= reduction.before.macs
        assert bool(reduction.notices()) == (reduction.after != reduction.before)
        return model

    return check


def ramp(*shape):
    """Return weight codes without a zero."""
    return (np.arange(np.prod(shape)) % 100 + 1).reshape(shape).astype(np.int8)


def with_dead(W, *rows):
    """Return weight codes with some filters at zero."""
    W = W.copy()
    W[list(rows)] = 0
    return W


def test_a_dead_channel_goes_and_its_constant_moves_into_the_next_bias(planted, shrink):
    graph = planted(0)
    x = graph.input([2, 2, 4, 4], (S, 128))
    # R1 of channel 1: acc = 300, m = 0.02 * 0.5 / 0.02, so the code is 150.
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [10, 300, -10], relu=True)
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), [5, 6], params=(np.float32(4), 3))
    model = shrink(graph.output(z).model())
    assert widths(model) == [2, 2]
    assert biases(model) == [5 + 150 * 2, 6 + 150 * 5]


def test_a_layer_without_a_bias_gets_one_for_the_constant(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 2, 4, 4], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 0), [300, 10, -10])
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), params=(np.float32(4), 3))
    assert biases(shrink(graph.output(z).model())) == [150, 600]


@pytest.mark.parametrize(("bias", "width"), [(300, 3), (-300, 2)])
def test_padding_keeps_a_channel_unless_it_is_zero(planted, shrink, bias, width):
    graph = planted(0)
    x = graph.input([1, 2, 5, 5], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 2), [1, 2, bias], relu=True)
    z = graph.given("Conv", y, ramp(2, 3, 3, 3), [5, 6], params=(S * 300, 9), pads=[1, 1, 1, 1])
    assert widths(shrink(graph.output(z).model())) == [width, 2]


@pytest.mark.parametrize(
    ("bias", "follow", "width"),
    [(-300, 10, 2), (300, 10, 3), (300, 10**6, 2), (300, -(10**6), 2)],
    ids=["zero", "borders differ", "all saturate high", "all saturate low"],
)
def test_a_padded_depthwise_filter_passes_what_is_one_code_everywhere(
    planted, shrink, bias, follow, width
):
    graph = planted(0)
    x = graph.input([1, 2, 5, 5], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [1, bias, 2], relu=True)
    pads = [1, 1, 1, 1]
    d = graph.given(
        "Conv", y, np.ones((3, 1, 3, 3)), [3, follow, 4], group=3, pads=pads, params=(S * 30, 5)
    )
    z = graph.given("Conv", d, ramp(2, 3, 1, 1), [5, 6], params=(S * 300, 9))
    assert widths(shrink(graph.output(z).model())) == [width, width, 2]


def test_a_dead_depthwise_filter_frees_the_channel_before_it(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 2, 5, 5], (S, 128))
    y = graph.given("Conv", x, ramp(3, 2, 1, 1), [1, 2, 3], relu=True)
    W = with_dead(np.ones((6, 1, 3, 3)), 2, 3, 4)  # both filters of channel 1, one of channel 2
    d = graph.given("Conv", y, W, [3, 4, 50, 60, 70, 80], group=3, params=(S * 9, 5))
    z = graph.given("Conv", d, ramp(2, 6, 1, 1), [5, 6], params=(S * 300, 9))
    assert widths(shrink(graph.output(z).model())) == [2, 4, 2]


def test_a_group_goes_as_a_whole_or_not_at_all(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 2, 5, 5], (S, 128))
    y = graph.given("Conv", x, ramp(6, 2, 1, 1), np.arange(6), relu=True)
    W = with_dead(ramp(6, 2, 1, 1), 0, 1, 2)  # both filters of group 0, one of group 1
    d = graph.given("Conv", y, W, np.arange(6) * 50, group=3, params=(S * 9, 5))
    z = graph.given("Conv", d, ramp(2, 6, 1, 1), [5, 6], params=(S * 300, 9))
    model = shrink(graph.output(z).model())
    assert widths(model) == [4, 4, 2]
    assert [g.attribute(n, "group", 1) for n in model.graph if n.op_type == "Conv"] == [1, 2, 1]


def test_a_channel_that_no_filter_weighs_goes(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 2, 5, 5], (S, 128))
    y = graph.given("Conv", x, ramp(3, 2, 1, 1), [1, 2, 3])
    W = ramp(2, 3, 3, 3)
    W[:, 1] = 0
    z = graph.given("Conv", y, W, [5, 6], pads=[1, 1, 1, 1], params=(S * 300, 9))
    assert widths(shrink(graph.output(z).model())) == [2, 2]


def test_dead_channels_free_others_back_to_the_first_layer(planted, shrink):
    graph = planted(0)
    y = graph.input([1, 2, 4, 4], (S, 128))
    for depth in range(4):
        W = np.zeros((4, 2 if depth == 0 else 4, 1, 1))
        np.fill_diagonal(W[:, :, 0, 0], 2)
        if depth == 3:
            W = with_dead(W, 0, 1)
        y = graph.given("Conv", y, W, [1, 2, 3, 4])
    z = graph.given("Conv", y, ramp(2, 4, 1, 1), [5, 6], params=(S * 300, 9))
    # Filters 2 and 3 of the first layer weigh no input: they are constant, all the way down.
    assert widths(shrink(graph.output(z).model())) == [1, 1, 1, 1, 2]


def test_what_an_output_shows_stays(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 2, 4, 4], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [10, 300, -10])
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), [5, 6], params=(S * 300, 9))
    assert widths(shrink(graph.output(y, z).model())) == [3, 2]


@pytest.mark.parametrize(("dead", "width"), [((0,), 3), ((0, 1), 2)])
def test_a_sum_keeps_a_channel_unless_both_sides_are_constant(planted, shrink, dead, width):
    graph = planted(0)
    x = graph.input([1, 2, 4, 4], (S, 128))
    W = ramp(3, 2, 1, 1)
    a, b = (graph.given("Conv", x, with_dead(W, 1) if i in dead else W, [9, 70, 3]) for i in (0, 1))
    y = graph.quantized(graph.node("Relu", [graph.node("Add", [a, b])]), (S * 2, 0))
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), [5, 6], params=(S * 300, 9))
    assert widths(shrink(graph.output(z).model())) == [width, width, 2]


def test_a_layer_keeps_one_channel_when_all_are_dead(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 2, 4, 4], (S, 128))
    y = graph.given("Conv", x, np.zeros((3, 2, 1, 1)), [10, 300, -10])
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), [5, 6], params=(S * 300, 9))
    assert widths(shrink(graph.output(z).model())) == [1, 2]


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "AveragePool counted", "Global"])
@pytest.mark.parametrize("pad", [0, 1])
def test_constants_pass_pools_also_where_borders_count_fewer(planted, shrink, kind, pad):
    graph = planted(0)
    x = graph.input([1, 2, 6, 6], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [10, 300, -10])
    if kind == "Global":
        pooled = graph.node("GlobalAveragePool", [y])
    else:
        how = {"count_include_pad": 1} if kind.endswith("counted") else {}
        how |= {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [pad] * 4}
        pooled = graph.node(kind.split()[0], [y], **how)
    y = graph.quantized(pooled, graph.params[y] if kind == "MaxPool" else (S * 1.1, 2))
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), [5, 6], params=(S * 300, 9))
    stays = pad and kind.endswith("counted")
    assert widths(shrink(graph.output(z).model())) == [3 if stays else 2, 2]


@pytest.mark.parametrize("first", ["Reshape", "Flatten", "Transpose"])
@pytest.mark.parametrize("op", ["Gemm", "Gemm transB", "MatMul", "MatMul Add"])
def test_a_channel_goes_with_all_its_features(planted, shrink, first, op):
    graph = planted(0)
    x = graph.input([1, 2, 2, 3], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [10, -300, -10], relu=True)
    if first == "Flatten":
        y2 = graph.node("Flatten", [y])
    else:
        source = graph.node("Transpose", [y], perm=[0, 2, 3, 1]) if first == "Transpose" else y
        y2 = graph.node("Reshape", [source, graph.constant(np.array([1, 18]))])
    graph.params[y2] = graph.params[y]
    W = ramp(4, 18) if "transB" in op else ramp(18, 4)
    how = {"transB": 1} if "transB" in op else {}
    if op == "MatMul Add":
        product = graph.node("MatMul", [y2, graph.dequantized(W, ONES)])
        bias = graph.dequantized(np.arange(4, dtype=np.int32), np.float32(S * ONES))
        z = graph.quantized(graph.node("Add", [bias, product]), (S * 500, 3))
    else:
        z = graph.given(op.split()[0], y2, W, params=(S * 500, 3), **how)
    assert widths(shrink(graph.output(z).model())) == [2, 4]


def test_a_product_without_a_bias_keeps_what_it_would_have_to_add(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 6], (S, 128))
    y = graph.given("Gemm", x, with_dead(ramp(3, 6), 0, 1), [300, -300, 7], transB=1)
    z = graph.given("MatMul", y, ramp(3, 4), params=(S * 500, 3))
    assert widths(shrink(graph.output(z).model())) == [2, 4]


def test_a_constant_that_would_push_a_bias_beyond_its_limit_stays(planted, shrink):
    graph = planted(0)
    x = graph.input([1, 2, 3, 3], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [10, 300, -10])
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), [2**30 - 100, 6], params=(S * 10**8, 9))
    assert widths(shrink(graph.output(z).model())) == [3, 2]


def test_a_layer_in_float_keeps_every_channel(planted, compare):
    graph = planted(0)
    x = graph.input([1, 2, 3, 3], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [10, 300, -10])
    W = graph.constant(np.ones((2, 3, 1, 1), np.float32))
    model = graph.output(graph.node("Conv", [y, W])).model()
    assert remove_dead_channels(model).notices() == []
    assert widths(model) == [3, 2]


def branch(graph, x, channels, draw):
    """Add one random operator of a network of images; returns (value, channels)."""
    kind = draw(
        st.sampled_from(["dense", "pointwise", "depthwise", "grouped", "residual", "pool", "max"])
    )
    relu = draw(st.booleans())
    outputs = draw(st.sampled_from([2, 4, 6]))
    if kind == "pool":
        how = {"count_include_pad": draw(st.sampled_from([0, 1]))}
        pooled = graph.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1] * 4, **how)
        return graph.quantized(pooled, graph.wider(x, 0.6, 1.1)), channels
    if kind == "max":
        pooled = graph.node("MaxPool", [x], kernel_shape=[3, 3], pads=[1] * 4)
        return graph.quantized(pooled, graph.params[x]), channels
    if kind == "residual":
        how = {"pads": [1] * 4, "relu": relu}
        y = graph.layer("Conv", x, (channels, channels, 3, 3), 9 * channels, **how)
        return graph.quantized(graph.node("Add", [x, y]), graph.wider(y)), channels
    groups = {"depthwise": channels, "grouped": 2}.get(kind, 1)
    outputs = channels * draw(st.sampled_from([1, 2])) if kind == "depthwise" else outputs
    size = 1 if kind == "pointwise" else 3
    pads = draw(st.sampled_from([[0] * 4, [1] * 4, [2, 0, 1, 3]])) if size == 3 else [0] * 4
    how = {"pads": pads, "group": groups, "relu": relu}
    if size == 3 and pads[0]:  # the image never gets smaller than the kernel
        how["dilations"] = draw(st.sampled_from([[1, 1], [2, 1]]))
    shape = (outputs, channels // groups, size, size)
    return graph.layer("Conv", x, shape, size * size * shape[1], **how), outputs


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_random_networks_keep_their_bits(planted, shrink, data):
    draw = data.draw
    graph = planted(draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from(["uint8", "int8"])))
    channels = 4
    x = graph.input([1, 3, 11, 11])
    x = graph.layer("Conv", x, (channels, 3, 3, 3), 27, pads=[1] * 4, relu=draw(st.booleans()))
    shown = []
    for _ in range(draw(st.integers(1, 4))):
        x, channels = branch(graph, x, channels, draw)
        if draw(st.integers(0, 5)) == 0:
            shown.append(x)
    if draw(st.booleans()):
        pooled = graph.node("GlobalAveragePool", [x])
        x2 = graph.quantized(pooled, graph.wider(x, 0.3, 1))
        flat = graph.node("Flatten", [x2])
        graph.params[flat] = graph.params[x2]
        x = graph.layer("Gemm", flat, (5, channels), channels, transB=1)
    else:
        x = graph.layer("Conv", x, (3, channels, 1, 1), channels)
    shrink(graph.output(*dict.fromkeys([*shown, x])).model(), samples=3)


@pytest.mark.skipif(not MODELS, reason="MIDGE_MODELS names no folder of real networks")
def test_the_person_detector_keeps_half_its_products_and_a_seventh_of_its_weights(shrink):
    path = Path(MODELS) / "mlperf_tiny" / "vww_mnv1_025_96_int8_qdq.onnx"
    reduction = remove_dead_channels(read_model(path))
    before, after = reduction.before, reduction.after
    assert after.macs / before.macs < 0.52
    assert after.conv_weights / before.conv_weights < 0.17
    shrink(read_model(path), samples=4)


def test_the_c_of_a_file_leaves_dead_channels_out_and_gives_the_files_bits(planted, tmp_path):
    graph = planted(0)
    x = graph.input([1, 2, 4, 4], (S, 128))
    y = graph.given("Conv", x, with_dead(ramp(3, 2, 1, 1), 1), [10, 300, -10], relu=True)
    z = graph.given("Conv", y, ramp(2, 3, 1, 1), [5, 6], params=(np.float32(4), 3))
    path = tmp_path / "dead.onnx"
    onnx.save(graph.output(z).proto(), path)
    plan = read_plan(path, "dead")
    assert [op.macs for op in plan.ops if op.macs] == [2 * 2 * 16, 2 * 2 * 16]
    assert "1 of 5 output channels are gone" in plan.notices[0]
    report = verify(path, count=20)
    assert report.notices == plan.notices
    assert report.holds
    assert {c.kind for c in report.checks if c.ort_mismatches is not None} == {"output", "tensor"}
