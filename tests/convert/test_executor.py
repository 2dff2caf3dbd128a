"""The integer executor against ONNX Runtime, operator by operator and on random graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.core.errors import InputError
from midge.quant.arithmetic import portable_sum_params
from midge.quant.scheme import QuantParams

DTYPES = ("uint8", "int8")
UNARY = ("Sigmoid", "Tanh", "HardSwish", "Elu", "Selu", "Celu", "Softplus", "Softsign", "Erf")
GEOMETRIES = [
    # channels, outputs, groups, kernel, strides, pads, dilations
    (3, 8, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (4, 4, 4, (3, 3), (2, 2), (0, 0, 1, 1), (1, 1)),
    (3, 6, 3, (2, 4), (1, 2), (0, 2, 1, 1), (1, 1)),  # depthwise with multiplier 2
    (6, 4, 2, (3, 1), (1, 1), (2, 0, 2, 0), (2, 1)),
    (8, 5, 1, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    (2, 3, 1, (4, 4), (3, 3), (1, 2, 2, 1), (1, 2)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolutions_of_any_geometry_give_onnx_runtimes_bits(qdq, compare, geometry, dtype):
    channels, outputs, groups, kernel, strides, pads, dilations = geometry
    graph = qdq(sum(kernel) + channels, dtype)
    x = graph.input([2, channels, 9, 8])
    shape = (outputs, channels // groups, *kernel)
    how = {"strides": strides, "pads": pads, "dilations": dilations, "group": groups}
    y = graph.layer("Conv", x, shape, int(np.prod(shape[1:])), **how)
    assert compare(graph.output(y).model()) == {}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_convolution_along_a_line_gives_onnx_runtimes_bits(qdq, compare, dtype):
    graph = qdq(4, dtype)
    x = graph.input([1, 6, 20])
    y = graph.layer("Conv", x, (8, 6, 3), 18, strides=[2], pads=[2, 1], relu=True)
    assert compare(graph.output(y).model()) == {}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["Gemm", "Gemm transB", "MatMul", "MatMul Add"])
def test_matrix_products_give_onnx_runtimes_bits(qdq, compare, op, dtype):
    graph = qdq(5, dtype)
    x = graph.input([3, 40])
    if op == "Gemm transB":
        y = graph.layer("Gemm", x, (7, 40), 40, transB=1)
    elif op == "MatMul Add":
        w, scale = graph.weight((40, 7), 1)
        y = graph.node("Add", [graph.node("MatMul", [x, w]), graph.bias(7, x, scale)])
        y = graph.quantized(y, graph.wider(x, 2, 4))
    else:
        y = graph.layer(op, x, (40, 7), 40, axis=1, bias=op == "Gemm")
    assert compare(graph.output(y).model()) == {}


SHAPES = [
    ([2, 4, 6, 5], [2, 4, 6, 5]),
    ([2, 4, 6, 5], [2, 4, 1, 1]),
    ([1, 1, 6, 5], [2, 4, 1, 5]),
    ([2, 7], [3, 1, 7]),
]


def portable(graph, op, a, b, y):
    """Return (scale, zero-point) y, raised where ONNX Runtime rounds the differences apart."""
    if op != "Sub":
        return y
    a, b, y = (QuantParams(*p, graph.dtype) for p in (a, b, y))
    y = portable_sum_params(a, b, y, subtract=True)
    return y.scale, y.zero_point


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
def test_operands_of_two_shapes_give_onnx_runtimes_bits(qdq, compare, op, shapes, dtype):
    graph = qdq(len(shapes[0]), dtype)
    a, b = graph.input(shapes[0]), graph.input(shapes[1])
    y = graph.node(op, [a, b])
    params = graph.wider(a, *((4, 8) if op == "Mul" else (1, 2)))
    params = portable(graph, op, graph.params[a], graph.params[b], params)
    assert compare(graph.output(graph.quantized(y, params)).model()) == {}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
def test_a_constant_operand_of_any_shape_gives_onnx_runtimes_bits(qdq, compare, op, first):
    graph = qdq(9)
    x = graph.layer("Conv", graph.input([1, 3, 8, 8]), (6, 3, 3, 3), 27)
    codes = graph.rng.integers(0, 256, (6, 1, 6)).astype(np.uint8)
    c = graph.dequantized(codes, np.float32(0.0123), zero=np.uint8(99))
    operands = [(0.0123, 99), graph.params[x]][:: 1 if first else -1]
    c = graph.node(op, [c, x] if first else [x, c])
    y = graph.node("Relu", [c])
    y = graph.quantized(y, portable(graph, op, *operands, graph.wider(x, 0.5, 2, 0)))
    assert compare(graph.output(y).model()) == {}


def test_a_difference_is_one_integer_step(qdq):
    graph = qdq(2)
    y = graph.node("Sub", [graph.input([1, 4, 6, 6]), graph.input([1, 4, 6, 6])])
    plan = lower(graph.output(graph.quantized(graph.node("Relu", [y]), (0.1, 0))).model(), name="g")
    names = [type(o.params).__name__ for o in plan.ops]
    assert names == ["Quantize", "Quantize", "Add", "Dequantize"]
    assert plan.ops[2].params.subtract


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(6))
def test_a_sum_gives_onnx_runtimes_bits_with_and_without_relu(qdq, compare, seed, dtype):
    graph = qdq(seed, dtype)
    a, b = graph.input([1, 4, 16, 16]), graph.input([1, 4, 16, 16])
    total, zero = graph.node("Add", [a, b]), None
    if seed % 2:
        total, zero = graph.node("Relu", [total]), graph.low
    y = graph.quantized(total, graph.wider(a, 0.8, 2, zero))
    assert compare(graph.output(y).model()) == {}


def test_relu_into_codes_with_a_zero_point_inside_their_range_only_saturates(qdq):
    graph = qdq(0)
    x = graph.input([1, 3, 5, 5], (0.05, 128))
    y = graph.layer("Conv", x, (4, 3, 3, 3), 27, relu=True, zero=None)
    total = graph.node("Relu", [graph.node("Add", [y, y])])
    z = graph.quantized(total, (np.float32(graph.params[y][0] * 2), 100))
    plan = lower(graph.output(z).model(), name="graph")
    x = np.random.default_rng(0).uniform(-6, 6, (50, 1, 3, 5, 5)).astype(np.float32)
    codes = Executor(plan).tensors([x])
    assert min(c.min() for c in codes.values()) == 0
    assert list(codes.values())[-1].min() == 100


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("counted", [0, 1])
def test_average_pools_give_onnx_runtimes_bits(qdq, compare, counted, dtype):
    graph = qdq(2, dtype)
    x = graph.input([1, 3, 9, 9], (0.0213, graph.low + 100))
    pads = [1, 0, 0, 1]
    how = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads, "count_include_pad": counted}
    y = graph.quantized(graph.node("AveragePool", [x], **how), (0.0171, graph.low + 77))
    z = graph.quantized(graph.node("GlobalAveragePool", [y]), (0.0092, graph.low + 60))
    assert compare(graph.output(z).model()) == {}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [1, -1])
def test_softmax_gives_onnx_runtimes_bits_along_any_axis(qdq, compare, axis, dtype):
    graph = qdq(1, dtype)
    x = graph.input([2, 10, 3], (0.07, graph.low + 120))
    y = graph.quantized(graph.node("Softmax", [x], axis=axis), (1 / 256, graph.low))
    assert compare(graph.output(y).model()) == {}


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_tensor_become_tables_with_onnx_runtimes_bits(qdq, compare, op):
    graph = qdq(3)
    x = graph.input([1, 256], (0.0437, 121))
    y = graph.quantized(graph.node(op, [x]), (0.0191, 97))
    model = graph.output(y).model()
    assert compare(model, samples=4) == {}
    assert [type(o.params).__name__ for o in lower(model, name="g").ops][1] == "Table"


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub"])
@pytest.mark.parametrize("first", [True, False])
def test_a_scalar_constant_gives_onnx_runtimes_bits(qdq, compare, op, first):
    graph = qdq(9)
    x = graph.input([1, 300])
    c = graph.dequantized(np.array(90, np.uint8), 0.013, zero=np.array(20, np.uint8))
    operands = [(0.013, 20), graph.params[x]][:: 1 if first else -1]
    y = graph.node(op, [c, x] if first else [x, c])
    params = portable(graph, op, *operands, graph.wider(x))
    model = graph.output(graph.quantized(y, params)).model()
    assert compare(model) == {}
    assert [type(o.params).__name__ for o in lower(model, name="g").ops][1] == "Table"


def test_functions_that_meet_again_are_one_table(qdq, compare):
    graph = qdq(11)
    x = graph.input([1, 4, 8, 8])
    swish = graph.node("Mul", [x, graph.node("Sigmoid", [x])])
    model = graph.output(graph.quantized(swish)).model()
    assert compare(model) == {}
    names = [type(op.params).__name__ for op in lower(model, name="g").ops]
    assert names == ["Quantize", "Table", "Dequantize"]


def test_operators_that_move_codes_give_onnx_runtimes_bits(qdq, compare):
    graph = qdq(7)
    x = graph.input([1, 6, 7, 8])
    same = graph.params[x]
    bounds = [graph.constant(np.array(v)) for v in ([1, -1], [5, -9], [1, 3], [2, -1])]
    y = graph.quantized(graph.node("Slice", [x, *bounds]), same)
    a, b = graph.node("Split", [y, graph.constant(np.array([1, 1]))], outputs=2, axis=1)
    joined = graph.quantized(graph.node("Concat", [a, b], axis=2), same)
    widths = graph.constant(np.array([0, 1, 2, 0, 0, 0, 1, 3]))
    padded = graph.node("Pad", [joined, widths, graph.constant(np.float32(0))])
    pooled = graph.node("MaxPool", [graph.quantized(padded, same)], kernel_shape=[2, 2])
    assert compare(graph.output(graph.quantized(pooled, same)).model()) == {}


def test_a_concat_of_different_scales_rescales_each_part_by_a_table(qdq, compare):
    graph = qdq(8)
    a, b = graph.input([1, 3, 5, 5]), graph.input([1, 2, 5, 5])
    y = graph.quantized(graph.node("Concat", [a, b], axis=1), graph.wider(a, 1.2, 1.5))
    assert compare(graph.output(y).model()) == {}


def test_a_float_bias_is_quantized_as_onnx_runtime_does(qdq, compare):
    graph = qdq(6)
    x = graph.input([1, 6, 5, 5], (0.031, 117))
    w, scale = graph.weight((4, 6, 2, 2))
    bias = graph.constant(graph.rng.standard_normal(4).astype(np.float32))
    y = graph.node("Conv", [x, w, bias])
    y = graph.quantized(y, (np.float32(0.031 * scale.mean() * 400), 90))
    assert compare(graph.output(y).model()) == {}


STEPS = ("conv", "conv", "add", "sub", "average", "max", "concat", "relu", "clip", "pooled")
STEPS += ("flatten",)


class Chain:
    """A random graph, grown at its end."""

    def __init__(self, graph, lines):
        self.graph, self.rng = graph, graph.rng
        size = [int(n) for n in self.rng.integers(4, 11, 1 if lines else 2)]
        self.shape = [int(self.rng.integers(1, 3)), int(self.rng.choice([1, 2, 3, 8])), *size]
        self.value = graph.input(self.shape)

    def grow(self, step):
        """Add one step; behind a flatten, products only."""
        step = "product" if len(self.shape) == 2 else step
        self.value, self.shape = getattr(self, step)(self.value, self.shape)

    def window(self, sizes):
        kernel = [int(self.rng.integers(1, min(4, s + 1))) for s in sizes]
        strides = [int(self.rng.integers(1, 3)) for _ in sizes]
        pads = [int(self.rng.integers(0, k)) for k in kernel * 2]
        return kernel, strides, pads

    def reach(self, sizes, kernel, strides, pads):
        n = len(sizes)
        return [(sizes[i] + pads[i] + pads[n + i] - kernel[i]) // strides[i] + 1 for i in range(n)]

    def conv(self, x, shape):
        channels, sizes = shape[1], shape[2:]
        groups = int(self.rng.choice([g for g in (1, 2, channels) if channels % g == 0]))
        outputs = groups * int(self.rng.integers(1, 5))
        kernel, strides, pads = self.window(sizes)
        weight = (outputs, channels // groups, *kernel)
        how = {"strides": strides, "pads": pads, "group": groups}
        relu, bias = self.rng.random(2) < 0.5
        depth = int(np.prod(weight[1:]))
        y = self.graph.layer("Conv", x, weight, depth, bias=bias, relu=relu, **how)
        return y, [shape[0], outputs, *self.reach(sizes, kernel, strides, pads)]

    def branch(self, x, shape):
        kernel = [1] * (len(shape) - 2)
        return self.graph.layer("Conv", x, (shape[1], shape[1], *kernel), shape[1])

    def add(self, x, shape):
        operands = [x, self.branch(x, shape)]
        self.rng.shuffle(operands)
        y = self.graph.node("Add", operands)
        return self.graph.quantized(y, self.graph.wider(operands[0], 0.8, 2)), shape

    def sub(self, x, shape):
        operands = [x, self.branch(x, shape)]
        self.rng.shuffle(operands)
        a, b = (self.graph.params[v] for v in operands)
        y = portable(self.graph, "Sub", a, b, self.graph.wider(operands[0], 0.8, 2))
        return self.graph.quantized(self.graph.node("Sub", operands), y), shape

    def concat(self, x, shape):
        b = self.branch(x, shape)
        params = self.graph.params[b if self.rng.random() < 0.5 else x]
        y = self.graph.quantized(self.graph.node("Concat", [x, b], axis=1), params)
        return y, [shape[0], 2 * shape[1], *shape[2:]]

    def average(self, x, shape):
        kernel, strides, pads = self.window(shape[2:])
        counted = int(self.rng.integers(2))
        how = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        y = self.graph.node("AveragePool", [x], count_include_pad=counted, **how)
        y = self.graph.quantized(y, self.graph.wider(x, 0.4, 0.95))
        return y, [*shape[:2], *self.reach(shape[2:], kernel, strides, pads)]

    def max(self, x, shape):
        kernel, strides, pads = self.window(shape[2:])
        how = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        y = self.graph.quantized(self.graph.node("MaxPool", [x], **how), self.graph.params[x])
        return y, [*shape[:2], *self.reach(shape[2:], kernel, strides, pads)]

    def relu(self, x, shape):
        return self.graph.quantized(self.graph.node("Relu", [x]), self.graph.params[x]), shape

    def clip(self, x, shape):
        bounds = [self.graph.constant(np.float32(v)) for v in (-0.4, 0.7)]
        y = self.graph.node("Clip", [x, *bounds])
        return self.graph.quantized(y, self.graph.params[x]), shape

    def pooled(self, x, shape):
        y = self.graph.node("GlobalAveragePool", [x])
        y = self.graph.quantized(y, self.graph.wider(x, 0.2, 0.95))
        return y, [*shape[:2], *[1] * (len(shape) - 2)]

    def flatten(self, x, shape):
        y = self.graph.quantized(self.graph.node("Flatten", [x]), self.graph.params[x])
        return y, [shape[0], int(np.prod(shape[1:]))]

    def product(self, x, shape):
        outputs = int(self.rng.integers(1, 9))
        y = self.graph.layer("Gemm", x, (shape[1], outputs), shape[1], axis=1)
        return y, [shape[0], outputs]


@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=6),
    lines=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_random_graphs_give_onnx_runtimes_bits_also_inside_one_arena(
    qdq, compare, seed, steps, lines, dtype
):
    chain = Chain(qdq(seed, dtype), lines)
    for step in steps:
        chain.grow(step)
    assert compare(chain.graph.output(chain.value).model(), seed, samples=6) == {}


@pytest.fixture(scope="module")
def small(qdq):
    graph = qdq(1)
    x = graph.input(["N", 3, 6, 6])
    y = graph.layer("Conv", x, (4, 3, 3, 3), 27)
    return lower(graph.output(graph.node("Flatten", [y])).model(), name="small")


def test_many_samples_at_once_are_the_same_as_one_by_one(small):
    x = np.random.default_rng(0).standard_normal((9, 1, 3, 6, 6)).astype(np.float32)
    executor = Executor(small)
    (whole,) = executor.run_batch([x])
    assert whole.shape == (9, 1, 64)
    assert np.array_equal(whole, np.stack([executor.run([sample])[0] for sample in x]))


def test_chunks_that_bound_memory_change_nothing(small, monkeypatch):
    x = np.random.default_rng(0).standard_normal((9, 1, 3, 6, 6)).astype(np.float32)
    whole = Executor(small).observe([x])
    monkeypatch.setattr("midge.convert.executor.WORKSPACE_BYTES", 1)
    for a, b in zip(whole.steps, Executor(small).observe([x]).steps, strict=True):
        assert np.array_equal(a, b)


def test_an_input_that_does_not_fit_is_named(small):
    with pytest.raises(InputError, match=r"'input_1': got float64\[1, 3, 6, 6\] a sample"):
        Executor(small).run([np.zeros((1, 3, 6, 6))])
    with pytest.raises(InputError, match="got 2 inputs; the model has 1"):
        Executor(small).run([np.zeros((1, 3, 6, 6))] * 2)
    with pytest.raises(InputError, match="no samples"):
        Executor(small).run_batch([np.zeros((0, 1, 3, 6, 6), np.float32)])


@pytest.mark.parametrize("op", UNARY)
def test_tables_of_huge_values_saturate_without_a_warning(qdq, op):
    graph = qdq(1)
    x = graph.input([1, 2], (50.0, 128))
    plan = lower(graph.output(graph.quantized(graph.node(op, [x]), (0.01, 128))).model(), name="g")
    (y,) = Executor(plan).run([np.array([[-6400, 6350]], np.float32)])
    assert np.all(np.isfinite(y))
