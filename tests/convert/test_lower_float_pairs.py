"""Products of vectors and of stacks, and remainders, of real values: all engines agree."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.verify import verify

PRODUCTS = {  # shape of A, shape of B
    "two vectors": ([4], [4]),
    "a vector and a matrix": ([4], [4, 3]),
    "a matrix and a vector": ([3, 4], [4]),
    "a vector and a stack": ([4], [2, 4, 3]),
    "a stack and a vector": ([2, 5, 3, 4], [4]),
    "stacks that repeat each other": ([3, 1, 2, 4], [1, 2, 4, 3]),
    "a stack that repeats along its last axis": ([2, 3, 2, 4], [2, 1, 4, 3]),
    "a stack of fewer axes": ([2, 3, 2, 4], [3, 4, 3]),
}


def saved(tmp_path, text, opset=18, **constants):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> net {text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in constants.items())
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_any_ranks_agree(tmp_path, name):
    a, b = PRODUCTS[name]
    y = list(np.matmul(np.zeros(a), np.zeros(b)).shape)
    text = f"(float{a} a, float{b} b) => (float{y} y) {{ y = MatMul(a, b) }}"
    path = saved(tmp_path, text.replace("[]", ""))
    report = verify(path, count=3)
    assert (report.mismatches, report.elements > 0) == (0, True), report.checks


def test_a_constant_vector_is_an_operand_too(tmp_path):
    v = np.array([1, -2, 0.5, 3], np.float32)
    text = "(float[3,4] a) => (float[3] y, float[3] z) { y = MatMul(a, v) t = Transpose(a)"
    path = saved(tmp_path, text + " z = MatMul(v, t) }", v=v)
    assert verify(path, count=3).holds
    y, z = Executor(lower(ir.load(path), name="net")).run([np.eye(3, 4, dtype=np.float32)])
    np.testing.assert_array_equal(y, v[:3])
    np.testing.assert_array_equal(z, v[:3])


def test_remainders_with_the_sign_of_the_dividend_agree(tmp_path):
    text = """(float[2,3,4] a, float[3,1] b) => (float[2,3,4] y, float[2,3,4] z)
        { y = Mod<fmod=1>(a, b) z = Mod<fmod=1>(a, third) }"""
    path = saved(tmp_path, text, third=np.array(-0.3, np.float32))
    report = verify(path, count=5)
    assert (report.mismatches, report.elements > 100) == (0, True), report.checks


def test_remainders_with_the_sign_of_the_divisor_are_numpys(tmp_path):
    # ONNX Runtime has no such Mod; the bits of the C are held to the executor's elsewhere.
    path = saved(tmp_path, "(float[9] a, float[9] b) => (float[9] y) { y = Mod(a, b) }")
    a = np.array([5.5, -5.5, 5.5, -5.5, 4, -4, 0, -0.0, 1e-20], np.float32)
    b = np.array([2, 2, -2, -2, 2, -2, -3, 3, -1], np.float32)
    (y,) = Executor(lower(ir.load(path), name="net")).run([a, b])
    want = np.array([1.5, 0.5, -0.5, -1.5, 0, -0.0, -0.0, 0, -1], np.float32)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(want))
