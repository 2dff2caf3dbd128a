"""ReduceMean, ReduceSum, ReduceMax and ReduceMin of codes: bits of ONNX Runtime and of the C."""

from fractions import Fraction

import numpy as np
import onnx
import pytest

from midge.convert.build import host_program
from midge.convert.compile import arrange
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.lower_reductions import LARGEST_SIDE, Tiles
from midge.convert.onnx_out import to_proto
from midge.convert.plan import Pool2d
from midge.convert.target import C99, X86_64, host_target
from midge.core.errors import UnsupportedError

rng = np.random.default_rng(8)
MOVING, SUMMING = ("ReduceMax", "ReduceMin"), ("ReduceMean", "ReduceSum")
CASES = [
    # shape, axes (None: all), keepdims
    ([2, 5, 7, 3], [1], 1),
    ([2, 5, 7, 3], [-1], 0),
    ([2, 5, 7, 3], [0, 2], 1),
    ([2, 5, 7, 3], [1, 2, 3], 0),
    ([2, 5, 7, 3], None, 0),
    ([3, 40], [1], 1),
    ([4, 6, 9], [0, -1], 0),
    ([2, 3, 2, 4, 3], [1, 4], 1),
]
FINITE_SHARE = 0.9  # of codes that must not be at an end, or a test of rounding tests little


def reduced(graph, op, x, axes, keep, opset=17):
    """Add a reduction of axes; they are an attribute until opset 18 (ReduceSum: 13)."""
    inputs, how = [x], {"keepdims": keep}
    if axes is not None and (op == "ReduceSum" or opset >= 18):
        inputs.append(graph.constant(np.array(axes)))
    elif axes is not None:
        how["axes"] = axes
    return graph.node(op, inputs, **how)


def model_of(graph, op, shape, axes, keep, opset=17, params=None):
    x = graph.input(shape, params)
    count = np.prod(shape) if axes is None else np.prod([shape[a] for a in axes])
    y = reduced(graph, op, x, axes, keep, opset)
    if op in MOVING:
        return graph.output(graph.quantized(y, graph.params[x])).model(opset)
    scale, zero = graph.wider(x, 0.3, 1.3)
    scale = np.float32(scale * (np.sqrt(count) if op == "ReduceSum" else 1))
    return graph.output(graph.quantized(y, (scale, zero))).model(opset)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("op", [*MOVING, *SUMMING])
def test_reductions_over_any_axes_give_onnx_runtimes_bits(qdq, compare, op, case, dtype):
    model = model_of(qdq(len(case[0]), dtype), op, *case)
    assert compare(model) == {}
    steps = {type(o.params).__name__ for o in lower(model, name="g").ops}
    assert "Pool2d" in steps
    assert steps <= {"Quantize", "Transpose", "Table", "Pool2d", "Dequantize"}


@pytest.mark.parametrize("op", [*MOVING, *SUMMING])
def test_axes_that_are_an_input_mean_the_same(qdq, compare, op):
    assert compare(model_of(qdq(3), op, [2, 5, 7], [1], 0, opset=18)) == {}


@pytest.mark.parametrize("axes", [[1], [2], [2, 3], [1, 2, 3]])
@pytest.mark.parametrize("op", [*MOVING, *SUMMING])
def test_reductions_behind_a_convolution_read_its_order(qdq, compare, op, axes):
    graph = qdq(1)
    x = graph.layer("Conv", graph.input([1, 3, 8, 7]), (6, 3, 3, 3), 27)
    y = reduced(graph, op, x, axes, 1)
    params = graph.params[x] if op in MOVING else graph.wider(x, 0.4, 1)
    model = graph.output(graph.quantized(y, params)).model()
    assert compare(model) == {}
    moved = [o for o in lower(model, name="g").ops if type(o.params).__name__ == "Transpose"]
    assert len(moved) <= (axes == [2]) + 2  # the input, the output, and columns between channels


def test_bare_codes_are_reduced_as_they_are(qdq, compare):
    for op in MOVING:
        graph = qdq(4)
        scale, zero = (graph.constant(a) for a in (np.float32(0.05), np.uint8(77)))
        x = graph.input([3, 9], quantized=False)
        codes = graph.node("QuantizeLinear", [x, scale, zero])
        least = graph.node(op, [codes], axes=[1])
        y = graph.node("DequantizeLinear", [least, scale, zero])
        assert compare(graph.output(y).model()) == {}


def test_a_bound_behind_a_sum_is_its_saturation(qdq, compare):
    graph = qdq(6)
    x = graph.input([4, 12], (0.04, 100))
    y = graph.node("Relu", [reduced(graph, "ReduceSum", x, [1], 1)])
    model = graph.output(graph.quantized(y, (0.11, 0))).model()
    assert compare(model) == {}
    names = [type(o.params).__name__ for o in lower(model, name="g").ops]
    assert names == ["Quantize", "Pool2d", "Dequantize"]


def nearest32(value):
    """Round a rational to float32: float64 holds every product and quotient of this test."""
    exact = np.float64(float(value))
    assert Fraction(float(exact)) == value or abs(value) < 2**53
    return Fraction(float(np.float32(exact)))


@pytest.mark.parametrize("scales", [(0.03, 0.03), (0.02, 0.013), (0.125, 0.25)])
@pytest.mark.parametrize("op", SUMMING)
def test_sums_and_means_are_requantized_as_the_exact_rule_says(qdq, op, scales):
    graph = qdq(0)
    x = graph.input([64, 6], (np.float32(scales[0]), 90))
    s_x = Fraction(float(np.float32(scales[0])))
    y_scale = np.float32(scales[1] * (8 if op == "ReduceSum" else 2))
    s_y = Fraction(float(y_scale))
    y = graph.quantized(reduced(graph, op, x, [1], 0), (y_scale, 120))
    plan = lower(graph.output(y).model(), name="g")
    codes = rng.integers(0, 256, (64, 6))
    real = (codes - 90).astype(np.float32) * np.float32(scales[0])
    (got,) = Executor(plan).run([real])
    m = nearest32(s_x / nearest32(s_y * (6 if op == "ReduceMean" else 1)))
    inside = 0
    for row, value in zip(codes.tolist(), got.tolist(), strict=True):
        acc = sum(q - 90 for q in row)
        code = min(max(round(nearest32(acc * m)) + 120, 0), 255)
        inside += 0 < code < 255
        assert value == np.float32(code - 120) * y_scale
    assert inside >= FINITE_SHARE * len(codes)


def every_reduction(qdq):
    """A graph with an output for every operator and some cases, and random inputs."""
    graph = qdq(2)
    shapes, outputs = [], []
    for op in (*MOVING, *SUMMING):
        for shape, axes, keep in CASES[1:4]:
            x = graph.input(shape, (0.03, 119))
            y = reduced(graph, op, x, axes, keep)
            params = graph.params[x] if op in MOVING else graph.wider(x, 0.4, 1)
            outputs.append(graph.quantized(y, params))
            shapes.append(shape)
    model = graph.output(*outputs).model()
    feeds = [(3 * rng.standard_normal((2, *s))).astype(np.float32) for s in shapes]
    return model, feeds


@pytest.mark.parametrize(
    ("target", "optimize"),
    [(C99, "size"), (X86_64, "speed"), (X86_64, "size")],
    ids=["c99", "x86", "x86 small"],
)
def test_the_c_gives_the_executors_bits_on_every_instruction_set(qdq, tmp_path, target, optimize):
    if target == X86_64 and host_target() != X86_64:
        pytest.skip("this machine is no x86-64")
    model, feeds = every_reduction(qdq)
    plan = lower(model, name="net")
    arrange(plan, target, optimize=optimize)
    emit(plan, tmp_path, "net", target=target)
    want = Executor(plan).run_batch(feeds)
    program = host_program(tmp_path, "net")
    samples = b"".join(x[i].tobytes() for i in range(2) for x in feeds)
    expected = b"".join(y[i].tobytes() for i in range(2) for y in want)
    for level in program.levels(len(target.levels)) if target == X86_64 else [None]:
        assert program.run(samples, level) == expected, level


@pytest.mark.parametrize(
    "storage",
    [(1, 5, 1), (70_000, 3, 2), (4, 70_000, 2), (3, 4, 70_000), (LARGEST_SIDE, 2, 1)],
)
def test_no_side_is_longer_than_a_record_of_the_runtime_takes(storage):
    tiles = Tiles.of(storage)
    assert max(*tiles.windows, *tiles.kernel, *tiles.image) <= LARGEST_SIDE
    assert tiles.windows[0] * tiles.windows[1] <= LARGEST_SIDE  # rows
    assert np.prod(tiles.kernel) == storage[1]
    assert np.prod(tiles.image) == np.prod(storage)
    n, h, w, c = tiles.windows
    kh, kw = tiles.kernel
    # As NumPy sees it: the windows of the image are the runs of the storage.
    x = rng.integers(0, 9, np.prod(storage)).astype(np.int32)
    want = x.reshape(storage).sum(axis=1)
    got = x.reshape(n, h, kh, w, kw, c).sum(axis=(2, 4))
    assert np.array_equal(got.reshape(want.shape), want)


def test_a_sum_that_could_leave_int32_is_refused_by_name(qdq):
    graph = qdq(0)
    x = graph.input([1, 2**24], (0.01, 0))
    y = graph.quantized(graph.node("ReduceMean", [x], axes=[1]), (0.01, 0))
    with pytest.raises(UnsupportedError, match="can reach 4278190080, beyond int32"):
        lower(graph.output(y).model(), name="g")


FLOAT = """(float[N,6,5,4] x) =>
    (float[N,1,5,4] a, float[N,6,5] b, float[N,6] c, float[N,6,1,1] d) {
    r = Conv<group=6>(x, w)
    a = ReduceMean<axes=[1]>(r) b = ReduceMax<axes=[3], keepdims=0>(r)
    c = ReduceSum<keepdims=0>(r, last) d = ReduceMin<axes=[2,3]>(r) }"""


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
def test_quantize_writes_reductions_that_onnx_runtime_computes_alike(
    build, quantized, compare, activation_type
):
    w = rng.standard_normal((6, 1, 1, 1)).astype(np.float32)
    model = build(FLOAT, w=w, last=np.array([2, 3]))
    result, sqnr = quantized(model, activation_type=activation_type)
    assert {c.state for c in result.coverage} == {"quantized"}
    assert [c.reason for c in result.coverage[1:]] == ["average", "same_scale", "sum", "same_scale"]
    assert sqnr > 30
    assert compare(result.model, samples=32) == {}


def test_axes_that_are_computed_keep_a_reduction_in_float(build, quantized, ops):
    model = build(
        """(float[N,6] x, int64[1] axes) => (float[N,M] y) {
            h = Gemm(x, w) y = ReduceSum(h, axes) }""",
        w=rng.standard_normal((6, 6)).astype(np.float32),
    )
    onnx.checker.check_model(to_proto(model))
    from midge.convert.select import select

    reasons = select(model).kept
    assert list(reasons.values()) == ["its axes are computed"]


def test_a_pool_of_a_whole_row_sums_no_other(qdq):
    graph = qdq(5)
    x = graph.input([3, 4], (1.0, 0))
    plan = lower(
        graph.output(graph.quantized(reduced(graph, "ReduceSum", x, [1], 1), (4.0, 0))).model(),
        name="g",
    )
    (pool,) = (o.params for o in plan.ops if isinstance(o.params, Pool2d))
    assert (pool.kernel, pool.stride) == ((1, 4), (1, 4))
    (y,) = Executor(plan).run([np.arange(12, dtype=np.float32).reshape(3, 4) * 4])
    assert y.reshape(-1).tolist() == [24, 88, 152]
