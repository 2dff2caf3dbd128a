"""strict: what stays in float unasked, or was calibrated on nothing, stops the quantization."""

import numpy as np
import onnx
import pytest

from midge.convert.onnx_out import to_proto
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.core.errors import CheckError, InputError

STRICT = QuantizeOptions(strict=True)
NET = """(float[N,4] x) => (float[N,4] y) {
    c = MatMul(x, w) e = LpNormalization(c) y = MatMul(e, w) }"""
W = np.random.default_rng(8).standard_normal((4, 4)).astype(np.float32)
DATA = np.random.default_rng(9).standard_normal((8, 4)).astype(np.float32)


@pytest.fixture
def quantize(build, tmp_path):
    def call(text, data, options, status=None):
        path, out = tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
        model = to_proto(build(text, w=W))
        for node in model.graph.node:
            node.name = "the_norm" if node.op_type == "LpNormalization" else node.output[0]
        onnx.save(model, path)
        np.save(tmp_path / "calib.npy", data)
        if status is None:
            return quantize_file(path, out, str(tmp_path / "calib.npy"), options)
        with pytest.raises(status) as caught:
            quantize_file(path, out, str(tmp_path / "calib.npy"), options)
        assert not out.exists()
        assert not (tmp_path / "net.quant.json").exists()
        return str(caught.value)

    return call


def test_a_float_fallback_is_named_with_its_reason_and_nothing_is_written(quantize):
    message = quantize(NET, DATA, STRICT, CheckError)
    assert "the_norm (LpNormalization) stays in float: it normalizes in float" in message
    assert "\n" not in message


def test_a_collapsed_range_is_named(quantize):
    message = quantize(
        "(float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }", 0 * DATA, STRICT, CheckError
    )
    assert "'x' is 0 throughout the calibration data" in message


def test_a_node_that_the_user_excludes_is_no_fallback(quantize):
    options = QuantizeOptions(strict=True, nodes_to_exclude=("the_norm",))
    assert quantize(NET, DATA, options).counts["float"] == 1


def test_everything_quantized_is_written(quantize):
    report = quantize("(float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }", DATA, STRICT)
    assert report.output.exists()


def test_strict_without_calibration_has_no_meaning(tmp_path):
    options = QuantizeOptions(strict=True, mode="dynamic")
    with pytest.raises(InputError, match="--strict has no meaning in --mode dynamic"):
        quantize_file(tmp_path / "net.onnx", tmp_path / "out.onnx", None, options)
