"""Inputs that break quantizers, and variants of them: each goes the whole road.

The file loads in ONNX Runtime, its outputs keep their SQNR, executor, C and ONNX Runtime agree on
every code, and nothing is NaN. What ends in a message is in the tests of the commands.
"""

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest

from midge.convert.calibration_data import InMemory
from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.verify import verify
from midge.core.errors import InputError
from midge.core.native import find_compiler
from midge.quant.analysis import sqnr_db

SAMPLES = 16


def draw(seed, *shape, scale=0.3, shift=0.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale + shift).astype(np.float32)


def norm(channels, seed=1):
    """Parameters of a BatchNormalization: s, t, m, z."""
    rng = np.random.default_rng(seed)
    made = {"s": rng.normal(1, 0.5, channels), "t": rng.normal(0, 1, channels)}
    made |= {"m": rng.normal(0, 1, channels), "z": rng.uniform(0.5, 2, channels)}
    return {name: array.astype(np.float32) for name, array in made.items()}


@dataclass(frozen=True, slots=True)
class Case:
    """One model.

    Args:
        text: graph, as onnx.parser reads it.
        weights: initializers.
        scale: of the inputs; several for several ranges.
        shift: of the inputs.
        least: SQNR in dB that every output keeps.
        states: what coverage may say.
        options: of the quantization.
    """

    text: str
    weights: dict = field(default_factory=dict)
    scale: float = 1.0
    shift: float = 0.0
    least: float = 30.0
    states: tuple = ("quantized", "folded")
    options: dict = field(default_factory=dict)


IMAGE = "(float[N,3,8,8] x)"
BN = "BatchNormalization({}, s, t, m, z)"
DEAD = draw(0, 6, 3, 3, 3)
DEAD[2] = 0
TINY = draw(1, 6, 3, 3, 3)
TINY[4] = 1e-9
COLUMNS = draw(2, 12, 5) * np.logspace(-2, 1, 5).astype(np.float32)
CASES = {
    "1 a dead channel with a bias": Case(
        f"{IMAGE} => (float[N,6,8,8] y) {{ y = Conv<pads=[1,1,1,1]>(x, w, b) }}",
        {"w": DEAD, "b": np.float32([0, 1, 7, 0, -1, 2])},
    ),
    "1 a dead column of a Gemm": Case(
        "(float[N,12] x) => (float[N,5] y) { y = Gemm(x, w, b) }",
        {"w": COLUMNS * np.float32([1, 0, 1, 1, 1]), "b": np.float32([0, 7, 0, 0, 0])},
    ),
    "2 a tiny channel with a huge bias": Case(
        f"{IMAGE} => (float[N,6,6,6] y) {{ y = Conv(x, w, b) }}",
        {"w": TINY, "b": np.float32([0, 0, 0, 0, 500, 0])},
        scale=40,
    ),
    "2 the same depthwise": Case(
        f"{IMAGE} => (float[N,3,6,6] y) {{ y = Conv<group=3>(x, w, b) }}",
        {"w": np.concatenate([draw(1, 2, 1, 3, 3), np.full((1, 1, 3, 3), 1e-9, np.float32)])}
        | {"b": np.float32([0, 0, -500])},
        scale=40,
    ),
    "3 ConvTranspose in groups": Case(
        "(float[N,4,5,5] x) => (float[N,6,10,10] y) "
        "{ y = ConvTranspose<group=2, strides=[2,2], pads=[1,1,1,1], output_padding=[1,1], "
        "kernel_shape=[3,3]>(x, w, b) }",
        {"w": draw(3, 4, 3, 3, 3) * np.logspace(-1, 1, 3).reshape(1, 3, 1, 1).astype(np.float32)}
        | {"b": draw(4, 6)},
    ),
    "3 ConvTranspose, depthwise": Case(
        "(float[N,4,5,5] x) => (float[N,4,9,9] y) "
        "{ y = ConvTranspose<group=4, strides=[2,2], pads=[1,1,1,1]>(x, w) }",
        {"w": draw(5, 4, 1, 3, 3)},
    ),
    **{
        f"4 Gemm, transB={t}": Case(
            f"(float[N,12] x) => (float[N,5] y) {{ y = Gemm<transB={t}>(x, w) }}",
            {"w": np.ascontiguousarray(COLUMNS.T) if t else COLUMNS},
        )
        for t in (0, 1)
    },
    **{
        f"5 Gemm, bias {list(shape)}": Case(
            "(float[4,12] x) => (float[4,5] y) { y = Gemm(x, w, b) }",
            {"w": draw(6, 12, 5), "b": draw(7, *shape)},
        )
        for shape in [(1,), (1, 5), (5,), (4, 5), (4, 1)]
    },
    "6 Gemm, alpha, beta and transA": Case(
        "(float[12,4] x) => (float[4,5] y) { y = Gemm<alpha=0.5, beta=2.0, transA=1>(x, w, b) }",
        {"w": draw(8, 12, 5), "b": draw(9, 5)},
    ),
    "6 Gemm, negative alpha, beta 0": Case(
        "(float[N,12] x) => (float[N,5] y) { y = Gemm<alpha=-2.0, beta=0.0>(x, w, b) }",
        {"w": draw(8, 12, 5), "b": draw(9, 5)},
    ),
    "7 a weight behind Transpose and Identity": Case(
        "(float[N,12] x) => (float[N,5] y) "
        "{ i = Identity(w) t = Transpose<perm=[1,0]>(i) y = MatMul(x, t) }",
        {"w": np.ascontiguousarray(COLUMNS.T)},
    ),
    "7 a weight behind Reshape and Mul": Case(
        "(float[N,12] x) => (float[N,5] y) "
        "{ r = Reshape(w, shape) k = Mul(r, two) y = MatMul(x, k) }",
        {"w": COLUMNS.reshape(-1), "shape": np.array([12, 5]), "two": np.float32(2)},
    ),
    "8 a constant stack of matrices": Case(
        "(float[2,6,16] x) => (float[2,6,8] y) { y = MatMul(x, w) }", {"w": draw(10, 2, 16, 8)}
    ),
    "8 the same behind a batch of 1": Case(
        "(float[1,6,16] x) => (float[3,6,8] y) { y = MatMul(x, w) }",
        {"w": draw(10, 3, 16, 8)},
        states=("quantized", "folded", "float"),
    ),
    "9 a weight and a bias shared by two Convs": Case(
        f"{IMAGE} => (float[N,3,8,8] y, float[N,3,8,8] z) {{ k = Mul(x, c) "
        "y = Conv<pads=[1,1,1,1]>(x, w, b) z = Conv<pads=[1,1,1,1]>(k, w, b) }",
        {"w": draw(11, 3, 3, 3, 3), "b": draw(12, 3), "c": np.float32(50)},
    ),
    "11 an even kernel, SAME_UPPER, stride 2": Case(
        f'{IMAGE} => (float[N,4,4,4] y) {{ y = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w) }}',
        {"w": draw(13, 4, 3, 4, 4)},
    ),
    "11 SAME_LOWER, one axis": Case(
        "(float[N,3,9] x) => (float[N,4,5] y) "
        '{ y = Conv<auto_pad="SAME_LOWER", strides=[2]>(x, w) }',
        {"w": draw(13, 4, 3, 4)},
    ),
    **{
        f"12 uneven pads around values near {shift}": Case(
            f"{IMAGE} => (float[N,4,9,8] y) {{ y = Conv<pads=[1,0,2,2]>(x, w) }}",
            {"w": draw(14, 4, 3, 3, 3)},
            shift=shift,
        )
        for shift in (7.0, -5.0)
    },
    **{
        name: Case(f"{IMAGE} => (float[N,{c},{size},{size}] y) {{ {body} }}", {**w, **norm(k)})
        for name, (c, size, k), body, w in [
            (
                "13 Conv, Relu, norm",
                (4, 6, 4),
                f"c = Conv(x, w) r = Relu(c) y = {BN.format('r')}",
                {"w": draw(15, 4, 3, 3, 3)},
            ),
            (
                "13 Conv, Relu, norm, Conv",
                (5, 4, 4),
                f"c = Conv(x, w) r = Relu(c) n = {BN.format('r')} y = Conv(n, v)",
                {"w": draw(15, 4, 3, 3, 3), "v": draw(16, 5, 4, 3, 3)},
            ),
            (
                "14 a norm before a padded Conv",
                (4, 8, 3),
                f"n = {BN.format('x')} y = Conv<pads=[1,1,1,1]>(n, w)",
                {"w": draw(17, 4, 3, 3, 3)},
            ),
            (
                "15 a Conv that a norm and a sum read",
                (3, 8, 3),
                f"c = Conv<pads=[1,1,1,1]>(x, w) n = {BN.format('c')} r = Relu(n) y = Add(r, c)",
                {"w": draw(18, 3, 3, 3, 3)},
            ),
            (
                "16 a weight shared by two Convs with norms",
                (3, 8, 3),
                f"c = Conv<pads=[1,1,1,1]>(x, w) n = {BN.format('c')} r = Relu(n) "
                "d = Conv<pads=[1,1,1,1]>(r, w) y = BatchNormalization(d, t, s, m, z)",
                {"w": draw(19, 3, 3, 3, 3)},
            ),
            (
                "16 Concat, norm",
                (5, 8, 5),
                f"c = Conv<pads=[1,1,1,1]>(x, w) k = Concat<axis=1>(c, x) y = {BN.format('k')}",
                {"w": draw(19, 2, 3, 3, 3)},
            ),
        ]
    },
    "17 Gemm, norm": Case(
        f"(float[N,12] x) => (float[N,5] y) {{ h = Gemm(x, w, b) y = {BN.format('h')} }}",
        {"w": draw(20, 12, 5), "b": draw(21, 5), **norm(5)},
    ),
    "17 MatMul, Add, norm": Case(
        f"(float[N,12] x) => (float[N,5] y) "
        f"{{ h = MatMul(x, w) a = Add(h, b) y = {BN.format('a')} }}",
        {"w": draw(20, 12, 5), "b": draw(21, 5), **norm(5)},
    ),
    "18 negative and zero gamma, a tiny variance": Case(
        f"{IMAGE} => (float[N,4,6,6] y) {{ c = Conv(x, w) y = {BN.format('c')} }}",
        {"w": draw(22, 4, 3, 3, 3), **norm(4)}
        | {"s": np.float32([-1, 0, 2, 0.5]), "z": np.float32([1, 1, 1e-12, 2])},
    ),
    "22 an unknown size": Case(
        "(float[N,3,H,W] x) => (float[N,2] y) "
        "{ c = Conv(x, w) p = GlobalAveragePool(c) f = Flatten(p) y = Gemm(f, v) }",
        {"w": draw(23, 4, 3, 3, 3), "v": draw(24, 4, 2)},
        options={"input_shapes": {"x": (1, 3, 9, 7)}},
    ),
    "24 names like our own": Case(
        f"{IMAGE} => (float[N,4,6,6] y_QuantizeLinear_Output) "
        "{ x_quantized = Relu(x) x_scale = Conv(x_quantized, w_quantized) "
        "y_QuantizeLinear_Output = Relu(x_scale) }",
        {"w_quantized": draw(25, 4, 3, 3, 3)},
    ),
    "26 a Pad of -inf before MaxPool": Case(
        f"{IMAGE} => (float[N,4,2,2] y) {{ p = Pad(x, pads, low) "
        "m = MaxPool<kernel_shape=[3,3], strides=[2,2]>(p) y = Conv(m, w) }",
        {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "low": np.float32(-np.inf)}
        | {"w": draw(26, 4, 3, 3, 3)},
    ),
    "26 a Pad of the smallest number, all negative": Case(
        f"{IMAGE} => (float[N,4,2,2] y) {{ p = Pad(x, pads, low) "
        "m = MaxPool<kernel_shape=[3,3], strides=[2,2]>(p) y = Conv(m, w) }",
        {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "low": np.finfo(np.float32).min}
        | {"w": draw(26, 4, 3, 3, 3)},
        shift=-9,
    ),
    **{
        f"27 a mask of {value}, by {how.split('(')[0]}": Case(
            "(float[1,6,8] x) => (float[1,6,8] y) { q = MatMul(x, w) "
            f"k = Transpose<perm=[0,2,1]>(x) s = MatMul(q, k) a = {how} p = Softmax<axis=-1>(a) "
            "y = MatMul(p, x) }",
            {"w": draw(27, 8, 8)}
            | (
                {"mask": np.where(np.tri(6) > 0, np.float32(0), np.float32(value))}
                if how.startswith("Add")
                else {"hidden": np.tri(6) == 0, "value": np.float32(value)}
            ),
        )
        for value in (-1e9, -np.inf, np.finfo(np.float32).min)
        for how in ("Add(s, mask)", "Where(hidden, value, s)")
    },
    "a chain of reshapes": Case(
        f"{IMAGE} => (float[N,4] y) {{ a = Reshape(x, one) t = Transpose<perm=[0,2,1]>(a) "
        "u = Transpose<perm=[0,2,1]>(t) f = Flatten(u) y = Gemm(f, w) }",
        {"one": np.array([0, 3, -1]), "w": draw(28, 192, 4)},
    ),
    "a Relu6 of a sum behind a MaxPool": Case(
        f"{IMAGE} => (float[N,3,4,4] y) {{ c = Conv<pads=[1,1,1,1]>(x, w) s = Add(c, x) "
        "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s) y = Clip(m, zero, six) }",
        {"w": draw(29, 3, 3, 3, 3), "zero": np.float32(0), "six": np.float32(6)},
    ),
}


def data_of(model, case):
    """Samples of the case's range, by input name."""
    rng = np.random.default_rng(9)
    given = case.options.get("input_shapes", {})
    shapes = {
        v.name: given.get(v.name) or [d if isinstance(d, int) else 1 for d in v.shape]
        for v in model.graph.inputs
    }
    return [
        {
            n: (rng.standard_normal(s) * case.scale + case.shift).astype(np.float32)
            for n, s in shapes.items()
        }
        for _ in range(SAMPLES)
    ]


@pytest.fixture(scope="module")
def has_compiler():
    try:
        find_compiler()
    except InputError:
        return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_it_goes_the_whole_road(build, tmp_path, has_compiler, name):
    case, path, out = CASES[name], tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
    model = build(case.text, **case.weights)
    onnx.save(to_proto(model), path)
    samples = data_of(model, case)
    spec = InMemory([dict(sample) for sample in samples])
    report = quantize_file(path, out, spec, QuantizeOptions(**case.options))
    assert {c.state for c in report.coverage} <= set(case.states)

    floating, executor = make_session(path, threads=1), Executor(read_plan(out, "net"))
    wanted = [run(floating, sample) for sample in samples]
    got = [executor.run(list(sample.values())) for sample in samples]
    for index in range(len(wanted[0])):
        want, have = (np.stack([arrays[index] for arrays in side]) for side in (wanted, got))
        assert np.isfinite(have).all()
        assert sqnr_db(want, have) >= case.least
    checked = verify(out, samples, with_c=has_compiler)
    assert checked.mismatches == 0


@pytest.mark.parametrize(("shape", "output", "axis"), [((2, 4), (4, 6), -2), ((1, 8), (1, 12), -1)])
def test_a_detector_head_keeps_boxes_and_scores_apart(build, tmp_path, shape, output, axis):
    """Case 28: boxes of hundreds and scores of 0 to 1 in one tensor."""
    text = f"""(float[1,{shape[0]},{shape[1]}] x) => (float[1,{output[0]},{output[1]}] y) {{
        b = MatMul(x, w) k = Mul(b, hundred) c = MatMul(x, v) s = Sigmoid(c)
        y = Concat<axis={axis}>(k, s) }}"""
    weights = {"w": draw(30, shape[1], 6), "v": draw(31, shape[1], 6)}
    path, out = tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
    onnx.save(to_proto(build(text, hundred=np.float32(100), **weights)), path)
    rng = np.random.default_rng(2)
    samples = [{"x": rng.standard_normal((1, *shape)).astype(np.float32)} for _ in range(64)]
    quantize_file(path, out, InMemory(samples))
    floating, executor = make_session(path), Executor(read_plan(out, "net"))
    want = np.concatenate([run(floating, sample)[0] for sample in samples])
    got = np.concatenate([executor.run([sample["x"]])[0] for sample in samples])
    boxes, scores = (np.split(y, 2, axis) for y in (want, got)), np.split(got, 2, axis)[1]
    for part, ours in zip(*boxes, strict=True):
        assert sqnr_db(part, ours) >= 25
    assert len(np.unique(scores)) >= 64
