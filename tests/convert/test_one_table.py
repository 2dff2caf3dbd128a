"""Functions of one tensor in several nodes: one table in codes, the codes of ONNX Runtime."""

import re

import numpy as np
import onnx
import pytest

from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.plan import Quantize, Table
from midge.convert.plan_float import BinaryF32, UnaryF32

NUMBERS = {"half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "root2": 2**0.5}
NUMBERS |= {"c": 0.044715, "k": (2 / np.pi) ** 0.5, "q": 1.702, "zero": 0.0, "low": -0.5}
SPELLINGS = {
    "GELU": "a = Div(x, root2) b = Erf(a) d = Add(b, one) e = Mul(x, d) y = Mul(e, half)",
    "GELU, tanh": "a = Pow(x, three) b = Mul(a, c) d = Add(x, b) e = Mul(d, k) i = Tanh(e) "
    "j = Add(i, one) l = Mul(half, j) y = Mul(x, l)",
    "GELU, x * x * x": "a = Mul(x, x) b = Mul(a, x) d = Mul(b, c) e = Add(x, d) i = Mul(e, k) "
    "j = Tanh(i) l = Add(one, j) m = Mul(x, l) y = Mul(m, half)",
    "GELU, quick": "a = Mul(x, q) b = Sigmoid(a) y = Mul(x, b)",
    "SiLU": "a = Sigmoid(x) y = Mul(a, x)",
    "SiLU by exp": "a = Neg(x) b = Exp(a) d = Add(b, one) y = Div(x, d)",
    "Mish": "a = Softplus(x) b = Tanh(a) y = Mul(x, b)",
    "Mish by log": "a = Exp(x) b = Add(a, one) d = Log(b) e = Tanh(d) y = Mul(x, e)",
    "hard-swish": "a = Add(x, three) b = Clip(a, zero, six) d = Mul(x, b) y = Div(d, six)",
    "hard-sigmoid": "a = Add(x, three) b = Clip(a, zero, six) y = Div(b, six)",
    "softshrink": "a = Greater(x, half) b = Sub(x, half) d = Where(a, b, zero) e = Less(x, low) "
    "g = Add(x, half) i = Where(e, g, zero) y = Add(d, i)",
    "squared ReLU": "a = Relu(x) y = Pow(a, two)",
    "tanhshrink": "a = Tanh(x) y = Sub(x, a)",
    "logsigmoid": "a = Sigmoid(x) y = Log(a)",
    "x / sqrt(x^2 + 1)": "a = Mul(x, x) b = Add(a, one) d = Sqrt(b) y = Div(x, d)",
}


@pytest.fixture
def quantize(build, tmp_path):
    """A function that quantizes a graph of x float32[N,256], calibrated on `span`; the report."""

    def call(body, span=(-6, 6), options=None, outputs=("y",), **constants):
        words = re.findall(r"\w+", body)
        named = {k: np.float32(v) for k, v in {**NUMBERS, **constants}.items() if k in words}
        made = ", ".join(f"float[N,256] {name}" for name in outputs)
        model = to_proto(build(f"(float[N,256] x) => ({made}) {{ {body} }}", **named))
        onnx.save(model, tmp_path / "net.onnx")
        np.save(tmp_path / "data.npy", np.linspace(*span, 1024, dtype=np.float32).reshape(4, 256))
        source, out = tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
        return quantize_file(source, out, str(tmp_path / "data.npy"), options)

    return call


def plan_of(report):
    return read_plan(report.output, "net")


def kinds(report):
    return [type(op.params) for op in plan_of(report).ops]


def every_code(plan):
    """Return the 256 real values that the first quantized tensor's codes stand for."""
    quantizer = next(op.params for op in plan.ops if isinstance(op.params, Quantize))
    codes = np.arange(-128, 128, dtype=np.int32) - quantizer.y.zero_point
    return (codes * quantizer.y.scale).astype(np.float32)[None]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_of_an_activation_is_one_table_with_the_codes_of_onnx_runtime(quantize, name):
    report = quantize(SPELLINGS[name])
    assert {c.state for c in report.coverage} <= {"quantized", "folded"}
    assert kinds(report).count(Table) == 1
    assert not {BinaryF32, UnaryF32} & set(kinds(report))
    x = every_code(plan_of(report))
    (ours,) = Executor(plan_of(report)).run([x])
    (theirs,) = run(make_session(report.output, exact=True), {"x": x})
    np.testing.assert_array_equal(ours, theirs)


def test_nodes_within_a_table_say_whose_they_are(quantize):
    report = quantize(SPELLINGS["SiLU"])
    reasons = {c.op_type: c.reason for c in report.coverage}
    assert reasons == {"Sigmoid": "in the table of mul1", "Mul": "table"}


def test_a_function_that_one_code_moves_far_stays_in_float_and_says_how_far(quantize):
    report = quantize("a = Abs(x) b = Add(a, tiny) y = Log(b)", tiny=1e-6)
    states = {c.op_type: (c.state, c.reason) for c in report.coverage}
    assert states["Log"] == ("float", "one code of its input moves it by 30% of its range")


def test_a_function_without_a_finite_number_everywhere_stays_in_float(quantize):
    report = quantize("y = Log(x)", span=(0.5, 8))
    assert report.coverage[0].reason == "it gives no finite number at some code of its input"


def test_a_single_operator_becomes_a_table_where_it_has_no_other_form(quantize):
    report = quantize("y = Exp(x)", span=(-3, 1))
    assert report.coverage[0].state == "quantized"
    assert kinds(report) == [Quantize, Table, *kinds(report)[2:]]


@pytest.mark.parametrize(
    ("op", "span"),
    [
        ("Acos", (-0.9, 0.9)),
        ("Asin", (-0.9, 0.9)),
        ("Asinh", (-4, 4)),
        ("Atan", (-4, 4)),
        ("Atanh", (-0.8, 0.8)),
        ("Cos", (-3, 3)),
        ("Cosh", (-2, 2)),
        ("Shrink<lambd=0.5, bias=0.5>", (-4, 4)),
        ("Sin", (-3, 3)),
        ("Sinh", (-2, 2)),
        ("Sqrt", (0, 4)),
        ("Tan", (-1, 1)),
    ],
)
def test_a_function_of_the_library_has_the_codes_of_onnx_runtime(quantize, op, span):
    report = quantize(f"y = {op}(x)", span=span)
    assert kinds(report).count(Table) == 1
    x = every_code(plan_of(report))
    (ours,) = Executor(plan_of(report)).run([x])
    (theirs,) = run(make_session(report.output, exact=True), {"x": x})
    np.testing.assert_array_equal(ours, theirs)


def test_a_value_that_somebody_else_reads_stays_a_tensor_of_its_own(quantize):
    report = quantize("z = Sigmoid(x) a = Mul(z, x) y = Tanh(a)", outputs=("y", "z"))
    names = {plan_of(report).tensors[op.output].name for op in plan_of(report).ops}
    assert {"z_quantized", "y_quantized"} <= names


def test_a_node_that_the_user_excludes_is_in_no_table(quantize):
    options = QuantizeOptions(nodes_to_exclude=("sigmoid0",))
    report = quantize(SPELLINGS["SiLU"], options=options)
    states = {c.op_type: c.state for c in report.coverage}
    assert states["Sigmoid"] == "float"


def test_a_constant_of_each_channel_is_no_part_of_a_table(quantize):
    slopes = np.linspace(0.5, 2, 256)
    report = quantize("a = Tanh(x) b = Mul(a, slopes) y = Tanh(b)", slopes=slopes)
    assert [c.reason for c in report.coverage] == ["table", "multiply", "table"]


def test_a_relu_that_is_the_saturation_of_a_layer_stays_one(build, tmp_path):
    w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    text = """(float[N,256] x) => (float[N,256] y)
        { h = MatMul(x, w) r = Relu(h) a = Tanh(r) y = Mul(a, r) }"""
    onnx.save(to_proto(build(text, w=w / 16)), tmp_path / "net.onnx")
    np.save(tmp_path / "data.npy", np.random.default_rng(1).standard_normal((8, 256), np.float32))
    source, out = tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
    report = quantize_file(source, out, str(tmp_path / "data.npy"))
    reasons = {c.op_type: c.reason for c in report.coverage}
    assert reasons["Relu"] == "saturation of matmul0"
    assert kinds(report).count(Table) == 1
