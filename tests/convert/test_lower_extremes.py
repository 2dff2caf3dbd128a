"""Max and Min of several tensors of codes, and constants among codes that move."""

import numpy as np
import pytest

from midge.convert.build import host_program
from midge.convert.compile import arrange
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.target import C99, X86_64, host_target

rng = np.random.default_rng(6)
SHAPES = [
    [[2, 4, 6, 5], [2, 4, 6, 5]],
    [[2, 4, 6, 5], [4, 1, 1]],
    [[3, 1], [1, 7], [3, 7]],
    [[2, 3, 4]],
]


def steps(model):
    return [type(o.params).__name__ for o in lower(model, name="g").ops]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_codes_of_any_scales_give_onnx_runtimes_bits(qdq, compare, op, shapes, dtype):
    graph = qdq(len(shapes[0]), dtype)
    xs = [graph.input(s) for s in shapes]
    y = graph.quantized(graph.node(op, xs), graph.wider(xs[0], 0.6, 1.4))
    model = graph.output(y).model()
    assert compare(model) == {}
    moving = {"Quantize", "Table", "Slice", "Transpose", "Concat", "Pool2d", "Dequantize"}
    assert set(steps(model)) <= moving


def test_codes_of_one_scale_are_compared_as_they_are(qdq, compare):
    graph = qdq(1)
    a = graph.layer("Conv", graph.input([1, 3, 6, 6]), (4, 3, 3, 3), 27)
    halves = graph.node("Split", [a, graph.constant(np.array([2, 2]))], outputs=2, axis=1)
    y = graph.quantized(graph.node("Max", halves), graph.params[a])
    model = graph.output(y).model()
    assert compare(model) == {}
    assert "Table" not in steps(model)


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_a_function_of_one_tensor_stays_one_table(qdq, compare, op):
    graph = qdq(2)
    x = graph.input([1, 300])
    y = graph.node(op, [x, graph.node("Sigmoid", [x])])
    model = graph.output(graph.quantized(y, graph.wider(x))).model()
    assert compare(model) == {}
    assert steps(model) == ["Quantize", "Table", "Dequantize"]


@pytest.mark.parametrize("dequantized", [False, True])
@pytest.mark.parametrize("op", ["Max", "Concat"])
def test_a_constant_among_codes_is_codes(qdq, compare, op, dequantized):
    graph = qdq(3)
    x = graph.input([2, 4, 3])
    codes = graph.rng.integers(0, 256, (2, 4, 3)).astype(np.uint8)
    c = graph.dequantized(codes, np.float32(0.02), zero=np.uint8(100))
    if not dequantized:
        c = graph.constant((0.02 * (codes.astype(np.float32) - 100)).astype(np.float32))
    how = {"axis": 1} if op == "Concat" else {}
    y = graph.quantized(graph.node(op, [x, c], **how), graph.wider(x, 0.6, 1.4))
    model = graph.output(y).model()
    assert compare(model) == {}
    assert steps(model).count("Quantize") == 1
    assert "Constant" in steps(model)


def test_quantize_gives_both_sides_the_scale_of_the_larger(build, quantized, compare):
    w = rng.standard_normal((8, 3, 1, 1)).astype(np.float32)
    model = build(
        """(float[N,3,6,6] x) => (float[N,4,6,6] y, float[N,4,6,6] z) {
            a = Conv(x, w) b, c = Split<axis=1>(a, half) d = Relu(c)
            y = Max(b, d) z = Min(b, e) }""",
        w=w,
        half=np.array([4, 4]),
        e=rng.standard_normal((4, 1, 1)).astype(np.float32),
    )
    result, sqnr = quantized(model)
    assert {c.state for c in result.coverage} == {"quantized"}
    assert sqnr > 30
    assert compare(result.model, samples=32) == {}


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
    for op in ("Max", "Min"):
        for shapes in SHAPES:
            xs = [graph.input(s) for s in shapes]
            y = graph.node(op, xs)
            outputs.append(graph.quantized(y, graph.wider(xs[0], 0.6, 1.4)))
            feeds += [rng.standard_normal((2, *s)).astype(np.float32) for s in shapes]
    plan = lower(graph.output(*outputs).model(), name="net")
    arrange(plan, target, optimize=optimize)
    emit(plan, tmp_path, "net", target=target)
    want = Executor(plan).run_batch(feeds)
    program = host_program(tmp_path, "net")
    samples = b"".join(x[i].tobytes() for i in range(2) for x in feeds)
    expected = b"".join(y[i].tobytes() for i in range(2) for y in want)
    for level in program.levels(len(target.levels)) if target == X86_64 else [None]:
        assert program.run(samples, level) == expected, level
