"""--input-value on the command line."""

import onnx
import pytest

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
net (float[2,3] x, bool on) => (float[2,3] y) { zero = Neg(x) y = Where(on, x, zero) }"""


@pytest.mark.parametrize("text", ["on=true", "on=0"])
def test_convert_makes_the_input_a_constant(midge, tmp_path, text):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "net.onnx")
    out = tmp_path / "out.onnx"
    status, _, error = midge("convert", tmp_path / "net.onnx", "-o", out, "--input-value", text)
    assert status == 0, error
    assert [i.name for i in onnx.load(out).graph.input] == ["x"]


@pytest.mark.parametrize("text", ["on", "=1", "on=yes", "on=nan"])
def test_what_is_no_number_is_a_usage_error(midge, tmp_path, text):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "net.onnx")
    command = ("convert", tmp_path / "net.onnx", "-o", tmp_path / "o.onnx")
    status, _, error = midge(*command, "--input-value", text)
    assert status == 2
    assert "NAME=16000" in error
