"""The integer arithmetic against independent oracles: exact rationals and ONNX Runtime."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.quant import arithmetic
from midge.quant.scheme import QuantParams, activation_params

finite32 = st.floats(-1e6, 1e6, width=32)


def round_to_float32(value: Fraction) -> np.float32:
    """Round a rational to the nearest float32, ties to even, by comparing neighbours exactly."""
    near = np.float32(float(value))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    gaps = [abs(Fraction(float(a)) - value) for a in around]
    best = min(gaps)
    ties = [a for a, gap in zip(around, gaps, strict=True) if gap == best]
    if len(ties) > 1:
        ties = [a for a in ties if int(a.view(np.int32)) % 2 == 0]
    return np.float32(ties[0])


@given(finite32, finite32, finite32)
@settings(max_examples=300)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact != 0 and abs(exact) < Fraction(2) ** -120:
        return  # subnormal results are outside the operator's range
    got = arithmetic.fma32(np.float32([a]), np.float32(b), np.float32(c))[0]
    assert np.float32(got) == round_to_float32(exact)


def test_fma_differs_from_two_roundings_where_it_must() -> None:
    a, b, c = np.float32(1 + 2**-13), np.float32(1 - 2**-13), np.float32(-1)
    assert arithmetic.fma32(a, b, c) == np.float32(-(2.0**-26))
    assert np.float32(a * b) + c == 0


def test_fma_survives_double_rounding() -> None:
    # In float64 the sum ties to 1 + 2^-24 exactly, and then to even; the tiny term must decide.
    a, b, c = np.float32(2.0**-40), np.float32(2.0**-30), np.float32(1 + 2**-23)
    half = np.float32(2.0**-24)
    got = arithmetic.fma32(np.float32(1), half, np.float32(1))
    assert got == 1  # the tie itself goes to even
    assert arithmetic.fma32(a, b, c) == c


@pytest.mark.parametrize(("acc", "code"), [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2), (300, 127)])
def test_requantization_rounds_ties_to_even_before_the_zero_point(acc: int, code: int) -> None:
    y = QuantParams(np.float32(1), 0, "int8")
    assert arithmetic.requantize(np.array([acc]), np.float32(0.5), y)[0] == code
    odd = QuantParams(np.float32(1), 1, "int8")
    assert arithmetic.requantize(np.array([acc]), np.float32(0.5), odd)[0] == min(code + 1, 127)


def test_requantization_rounds_a_large_accumulator_to_float32_first() -> None:
    y = QuantParams(np.float32(1), 0, "uint8")
    acc = np.array([2**24 + 1, 2**24 + 3])
    m = np.float32(2.0**-18)
    assert list(arithmetic.requantize(acc, m, y)) == [64, 64]


def test_a_raised_lower_limit_is_a_relu() -> None:
    y = QuantParams(np.float32(1), 10, "int8")
    codes = arithmetic.requantize(np.array([-50, 5]), np.float32(1), y, low=10)
    assert list(codes) == [10, 15]


def test_quantize_divides() -> None:
    # 1/s rounds; x * (1/s) would give another code here.
    s = np.float32(0.1)
    x = np.arange(-2000, 2000, dtype=np.float32) * np.float32(0.05)
    want = np.rint((x / s).astype(np.float32))
    got = arithmetic.quantize(x, QuantParams(s, 0, "int8"))
    assert np.array_equal(got, np.clip(want, -128, 127))


@pytest.mark.parametrize("x", [np.inf, -np.inf, 3e38, -3e38])
def test_quantize_saturates_without_a_warning(x: float) -> None:
    got = arithmetic.quantize(np.array([x], np.float32), QuantParams(np.float32(1e-3), 7, "uint8"))
    assert got[0] == (255 if x > 0 else 0)


@given(st.integers(1, 4000))
def test_softmax_sums_stay_in_uint32(n: int) -> None:
    k = arithmetic.softmax_bits(n)
    assert n * 2**k < 2**32
    assert 256 * 2**k + (n * 2**k >> 1) < 2**32


def test_softmax_is_close_to_the_real_one() -> None:
    rng = np.random.default_rng(0)
    x = activation_params(-8, 8)
    codes = rng.integers(0, 256, (200, 10)).astype(np.uint8)
    real = np.exp(arithmetic.dequantize(codes, x).astype(np.float64))
    real /= real.sum(axis=1, keepdims=True)
    got = arithmetic.softmax(codes, x) / 256
    assert np.abs(got - np.minimum(real, 255 / 256)).max() <= 0.5 / 256 + 1e-4


def test_a_table_is_the_function_between_codes() -> None:
    x, y = activation_params(-4, 4), activation_params(0, 1)
    t = arithmetic.table(lambda v: 1 / (1 + np.exp(-v)), x, y)
    codes = np.arange(256, dtype=np.uint8)
    real = 1 / (1 + np.exp(-arithmetic.dequantize(codes, x).astype(np.float64)))
    assert np.abs(arithmetic.dequantize(t, y) - real).max() <= y.scale / 2 * 1.001


def test_float32_is_refused_where_a_sum_could_be_inexact() -> None:
    small = np.full((4, 3, 3, 8), 127, np.int8)
    large = np.full((4, 3, 3, 64), 127, np.int8)
    assert arithmetic.accumulation_dtype(small, 0) is np.float32
    assert arithmetic.accumulation_dtype(large, 0) is np.float64


def ort_difference(a: QuantParams, b: QuantParams, y: QuantParams) -> np.ndarray:
    """Every pair of codes through ONNX Runtime's DequantizeLinear, Sub and QuantizeLinear."""
    onnx = pytest.importorskip("onnx")
    import onnxruntime as rt

    h = onnx.helper
    kinds = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8}
    inits = []
    for key, p in (("a", a), ("b", b), ("y", y)):
        inits.append(onnx.numpy_helper.from_array(np.float32(p.scale), f"{key}_scale"))
        zero_point = np.array(p.zero_point, p.dtype)
        inits.append(onnx.numpy_helper.from_array(zero_point, f"{key}_zp"))
    graph = h.make_graph(
        [
            h.make_node("DequantizeLinear", ["A", "a_scale", "a_zp"], ["ra"]),
            h.make_node("DequantizeLinear", ["B", "b_scale", "b_zp"], ["rb"]),
            h.make_node("Sub", ["ra", "rb"], ["ry"]),
            h.make_node("QuantizeLinear", ["ry", "y_scale", "y_zp"], ["Y"]),
        ],
        "difference",
        [h.make_tensor_value_info(n, kinds[p.dtype], [256, 256]) for n, p in (("A", a), ("B", b))],
        [h.make_tensor_value_info("Y", kinds[y.dtype], [256, 256])],
        inits,
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    session = rt.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    grid = [v + p.qmin for v, p in zip(PAIRS, (a, b), strict=True)]
    feeds = {n: v.astype(p.dtype) for n, v, p in zip("AB", grid, (a, b), strict=True)}
    return np.asarray(session.run(None, feeds)[0])


def ort_binary(op: str, a: QuantParams, b: QuantParams, y: QuantParams) -> np.ndarray:
    """Every pair of codes through ONNX Runtime's integer kernel, [256 of A, 256 of B]."""
    onnx = pytest.importorskip("onnx")
    import onnxruntime as rt

    def const(name: str, value: np.ndarray) -> object:
        return onnx.numpy_helper.from_array(value, name)

    h = onnx.helper
    u8 = onnx.TensorProto.UINT8
    names = ["A", "a_scale", "a_zp", "B", "b_scale", "b_zp", "y_scale", "y_zp"]
    node = h.make_node(op, names, ["Y"], domain="com.microsoft")
    inits = []
    for key, p in (("a", a), ("b", b), ("y", y)):
        inits.append(const(f"{key}_scale", np.float32(p.scale)))
        inits.append(const(f"{key}_zp", np.uint8(p.zero_point)))
    graph = h.make_graph(
        [node],
        "binary",
        [h.make_tensor_value_info(n, u8, [65536]) for n in "AB"],
        [h.make_tensor_value_info("Y", u8, [65536])],
        inits,
    )
    opsets = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
    model = h.make_model(graph, opset_imports=opsets, ir_version=8)
    session = rt.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    A = np.repeat(np.arange(256, dtype=np.uint8), 256)
    B = np.tile(np.arange(256, dtype=np.uint8), 256)
    return np.asarray(session.run(None, {"A": A, "B": B})[0]).reshape(256, 256)


SUMS = [
    # scales and zero-points of a, b, y
    ((0.1, 0.2, 0.25), (16, 7, 211)),
    ((0.5, 0.25, 0.5), (128, 3, 77)),
    ((0.013, 0.4, 0.3), (250, 100, 31)),
    ((0.02, 0.02, 0.037), (12, 140, 255)),
    ((0.02256663, 0.02373289, 0.01367026), (162, 137, 0)),  # not portable as it stands
    ((0.0625, 0.071, 0.031), (201, 190, 5)),
]
PAIRS = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")


def sum_params(scales: tuple[float, ...], zero_points: tuple[int, ...]) -> list[QuantParams]:
    pairs = zip(scales, zero_points, strict=True)
    return [QuantParams(np.float32(s), z, "uint8") for s, z in pairs]


@pytest.mark.parametrize(("scales", "zero_points"), SUMS)
def test_a_portable_sum_equals_onnx_runtime_s_on_all_pairs(
    scales: tuple[float, ...], zero_points: tuple[int, ...]
) -> None:
    cpu = Path("/proc/cpuinfo")
    if not (cpu.exists() and "avx2" in cpu.read_text()):
        pytest.skip("ONNX Runtime's Add follows this formula on x86 with AVX2 only")
    a, b, y = sum_params(scales, zero_points)
    y = arithmetic.portable_sum_params(a, b, y)
    assert arithmetic.is_portable_sum(a, b, y)
    got = arithmetic.add(*PAIRS, a, b, y)
    assert np.array_equal(got, ort_binary("QLinearAdd", a, b, y))


def test_a_scale_rises_by_a_few_steps_only_where_it_must() -> None:
    rng = np.random.default_rng(0)
    raised = 0
    for _ in range(200):
        a, b, y = sum_params(tuple(rng.uniform(0.01, 0.1, 3)), tuple(rng.integers(0, 256, 3)))
        new = arithmetic.portable_sum_params(a, b, y)
        raised += new != y
        assert arithmetic.is_portable_sum(a, b, new)
        assert 1 <= new.scale / y.scale < 1.0001
    assert 0 < raised < 100


def test_the_constant_of_a_sum_is_rounded_after_every_product() -> None:
    a, b, y = sum_params(*SUMS[4])
    ra, rb, c = arithmetic.add_coefficients(a, b, y)
    exact = [Fraction(float(r)) * z for r, z in ((ra, 162), (rb, 137))]
    total = round_to_float32(sum(Fraction(float(round_to_float32(e))) for e in exact))
    assert c == -total
    assert not arithmetic.is_portable_sum(a, b, y)


DIFFERENCES = [
    *SUMS,
    ((0.05, 0.05, 0.05), (128, 128, 128)),  # no rounding at all
    ((0.03, 0.03, 0.06), (101, 7, 99)),  # ties on half of all pairs
    ((0.0625, 0.03125, 0.125), (3, 250, 128)),
]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("scales", "zero_points"), DIFFERENCES)
def test_a_portable_difference_equals_onnx_runtime_s_on_all_pairs(
    scales: tuple[float, ...], zero_points: tuple[int, ...], dtype: str
) -> None:
    a, b, y = (p.as_dtype(dtype) for p in sum_params(scales, zero_points))
    new = arithmetic.portable_sum_params(a, b, y, subtract=True)
    assert 1 <= new.scale / y.scale < 1.0001
    got = arithmetic.sub(PAIRS[0] + a.qmin, PAIRS[1] + b.qmin, a, b, new)
    assert np.array_equal(got, ort_difference(a, b, new))


def test_a_difference_whose_ties_go_apart_needs_its_scale_raised() -> None:
    a, b, y = sum_params(*DIFFERENCES[-2])
    assert np.any(arithmetic.sub(*PAIRS, a, b, y) != ort_difference(a, b, y))
    assert arithmetic.portable_sum_params(a, b, y, subtract=True) != y


def test_scales_that_float32_cannot_relate_are_left_alone() -> None:
    a, b, y = sum_params((2.0**100, 1.0, 2.0**-60), (0, 0, 0))
    assert arithmetic.portable_sum_params(a, b, y, subtract=True) == y


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize(("scales", "zero_points"), DIFFERENCES)
def test_sums_and_differences_round_as_the_exact_formula(
    scales: tuple[float, ...], zero_points: tuple[int, ...], subtract: bool
) -> None:
    a, b, y = sum_params(scales, zero_points)
    ra, rb = (Fraction(float(np.float32(p.scale / y.scale))) for p in (a, b))
    rb = -rb if subtract else rb
    za, zb = (round_to_float32(r * p.zero_point) for r, p in ((ra, a), (rb, b)))
    total = round_to_float32(Fraction(float(za)) + Fraction(float(zb)))
    c = Fraction(float(round_to_float32(y.zero_point - Fraction(float(total)))))
    A, B = np.random.default_rng(1).integers(0, 256, (2, 60))
    formula = arithmetic.sub if subtract else arithmetic.add
    for i, j, code in zip(A.tolist(), B.tolist(), formula(A, B, a, b, y).tolist(), strict=True):
        inner = Fraction(float(round_to_float32(j * rb + c)))
        outer = Fraction(float(round_to_float32(i * ra + inner)))
        assert code == min(max(round(outer), 0), 255)
