"""PRelu of codes: the exact rule, ONNX Runtime's bits, and the C's."""

from fractions import Fraction

import numpy as np
import pytest

from midge.convert.build import host_program
from midge.convert.compile import arrange
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.select import select
from midge.convert.target import C99, X86_64, host_target

rng = np.random.default_rng(4)
CASES = [
    # shape of x, shape of the slopes
    ([2, 6, 5, 4], (6, 1, 1)),
    ([1, 6, 5, 4], (1, 6, 1, 1)),
    ([2, 5, 3, 4], (4,)),
    ([2, 5, 9], (5, 1)),
    ([3, 7], (7,)),
    ([3, 2, 2, 3, 5], (3, 1)),
]


def slopes(shape):
    """Slopes of both signs, 0, and one above 1."""
    array = rng.uniform(-0.5, 0.9, shape).astype(np.float32)
    array.reshape(-1)[:2] = 0, 1.7
    return array


def model_of(graph, shape, slope, params=(0.0213, 120), y=(0.0171, 90)):
    low = graph.low
    x = graph.input(shape, (np.float32(params[0]), low + params[1]))
    node = graph.node("PRelu", [x, graph.constant(slope)])
    return graph.output(graph.quantized(node, (np.float32(y[0]), low + y[1]))).model()


def steps(model):
    return [type(o.params).__name__ for o in lower(model, name="g").ops]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("case", CASES)
def test_slopes_along_any_axis_give_onnx_runtimes_bits(qdq, compare, case, dtype):
    model = model_of(qdq(0, dtype), case[0], slopes(case[1]))
    assert compare(model) == {}
    assert "BinaryF32" not in steps(model)
    assert "Add" in steps(model)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_a_single_slope_is_a_table(qdq, compare, shape):
    model = model_of(qdq(0), [2, 3, 4, 5], np.full(shape, 0.3, np.float32))
    assert compare(model) == {}
    assert steps(model) == ["Quantize", "Table", "Dequantize"]


@pytest.mark.parametrize("zero_point", [0, 120, 255])
@pytest.mark.parametrize("scales", [(0.05, 0.05), (0.03, 0.013), (0.125, 0.25)])
def test_every_code_of_every_channel_is_what_the_exact_rule_says(qdq, scales, zero_point):
    slope = np.array([0, 1.7, 0.25, -0.5, 0.01, 1e-9], np.float32)
    params, y = (scales[0], zero_point), (scales[1], 77)
    model = model_of(qdq(1), [1, 6, 256, 1], slope.reshape(6, 1, 1), params, y)
    s_x, s_y = (np.float32(s) for s in scales)
    codes = np.arange(256)
    real = np.tile((codes - zero_point).astype(np.float32) * s_x, (6, 1)).reshape(1, 6, 256, 1)
    (got,) = Executor(lower(model, name="g")).run([real])
    for c, row in enumerate(got.reshape(6, 256)):
        m = np.float32(np.float32(s_x * slope[c]) / s_y)
        for code, value in zip(codes.tolist(), row, strict=True):
            if code < zero_point:
                exact = np.float64(code - zero_point) * np.float64(m)  # 8 by 24 bits: exact
                v = round(Fraction(float(np.float32(exact))))
            else:
                v = round(Fraction(float(np.float32(np.float64(code - zero_point) * s_x) / s_y)))
            want = min(max(v + 77, 0), 255) - 77
            assert value == np.float32(want) * s_y


@pytest.mark.parametrize(
    ("target", "optimize"),
    [(C99, "size"), (X86_64, "speed"), (X86_64, "size")],
    ids=["c99", "x86", "x86 small"],
)
def test_the_c_gives_the_executors_bits_on_every_instruction_set(qdq, tmp_path, target, optimize):
    if target == X86_64 and host_target() != X86_64:
        pytest.skip("this machine is no x86-64")
    graph = qdq(2)
    outputs, feeds = [], []
    for shape, slope in CASES:
        x = graph.input(shape, (0.03, 119))
        y = graph.node("PRelu", [x, graph.constant(slopes(slope))])
        outputs.append(graph.quantized(y, graph.wider(x, 0.4, 1)))
        feeds.append((3 * rng.standard_normal((2, *shape))).astype(np.float32))
    plan = lower(graph.output(*outputs).model(), name="net")
    arrange(plan, target, optimize=optimize)
    emit(plan, tmp_path, "net", target=target)
    want = Executor(plan).run_batch(feeds)
    program = host_program(tmp_path, "net")
    samples = b"".join(x[i].tobytes() for i in range(2) for x in feeds)
    expected = b"".join(y[i].tobytes() for i in range(2) for y in want)
    for level in program.levels(len(target.levels)) if target == X86_64 else [None]:
        assert program.run(samples, level) == expected, level


NET = """(float[N,3,6,6] x) => (float[N,4,6,6] y) {
    a = Conv(x, w) b = PRelu(a, s) c = Conv(b, v) y = PRelu(c, t) }"""


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
def test_quantize_writes_it_for_integers_behind_a_convolution(
    build, quantized, compare, activation_type
):
    w, v = (rng.standard_normal((4, c, 1, 1)).astype(np.float32) for c in (3, 4))
    model = build(NET, w=w, v=v, s=slopes((4, 1, 1)), t=np.full((1, 1, 1), 0.2, np.float32))
    result, sqnr = quantized(model, activation_type=activation_type)
    assert {c.state for c in result.coverage} == {"quantized"}
    assert [c.reason for c in result.coverage if c.op_type == "PRelu"] == ["prelu", "prelu"]
    assert sqnr > 25
    assert compare(result.model, samples=32) == {}


def test_a_bound_behind_it_saturates(qdq, compare):
    graph = qdq(3)
    x = graph.input([1, 5, 4, 4], (0.031, 117))
    y = graph.node("PRelu", [x, graph.constant(slopes((5, 1, 1)))])
    limits = [graph.constant(np.float32(v)) for v in (-0.4, 1.1)]
    y = graph.quantized(graph.node("Clip", [y, *limits]), (0.0193, 100))
    assert compare(graph.output(y).model()) == {}


def test_slopes_of_every_element_stay_in_float(build):
    model = build(
        "(float[N,3,6,6] x) => (float[N,4,6,6] y) { a = Conv(x, w) y = PRelu(a, s) }",
        w=rng.standard_normal((4, 3, 1, 1)).astype(np.float32),
        s=slopes((4, 6, 1)),
    )
    assert list(select(model).kept.values()) == ["its slopes are not one a channel"]
