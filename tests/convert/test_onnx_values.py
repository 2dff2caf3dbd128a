"""--input-value: an input becomes a constant, and what depends on it alone is folded."""

import numpy as np
import onnx
import pytest

from midge.convert.compile import compile_file
from midge.convert.onnx_in import read_model
from midge.convert.ort import make_session, run
from midge.convert.pipeline import convert_file
from midge.core.errors import InputError

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
net (float[2,3] x, int64 rate, float[B] k) => (float[2,3] y)
<int64 fast = {16000}>
{
    quick = Equal(rate, fast)
    y = If (quick) <
        then_branch = yes () => (float[2,3] a) { a = Add(x, k) },
        else_branch = no () => (float[2,3] b) { b = Mul(x, k) }
    >
}
"""
SHAPES = {"k": (1,)}


@pytest.fixture
def path(tmp_path):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.mark.parametrize(("rate", "want"), [(16000, 3.5), (8000, 3.0)])
def test_the_branch_that_the_value_takes_is_all_that_stays(path, tmp_path, rate, want):
    out = tmp_path / "out.onnx"
    convert_file(path, out, SHAPES, {"rate": rate, "k": 1.5})
    model = onnx.load(out)
    assert [i.name for i in model.graph.input] == ["x"]
    assert len(model.graph.node) == 1
    (y,) = run(make_session(out), {"x": np.full((2, 3), 2, np.float32)})
    assert y.tolist() == np.full((2, 3), want).tolist()


def test_c_is_written_for_the_value(path, tmp_path):
    values = {"rate": 16000, "k": -0.25}
    report = compile_file(path, tmp_path / "c", "net", input_shapes=SHAPES, input_values=values)
    assert report.tested
    assert "NET_INPUT_COUNT 1" in (tmp_path / "c" / "net.h").read_text()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rat": 1}, "no input 'rat'.*'rate'"),
        ({"rate": 0.5}, "is int64, which does not hold it"),
        ({"rate": 1e30}, "is int64, which does not hold it"),
        ({"k": 1}, "its shape is not known; give it with --input-shape"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(path, values, words):
    with pytest.raises(InputError, match=words):
        read_model(path, input_values=values)


def test_an_input_must_remain(path):
    with pytest.raises(InputError, match="leaves no input"):
        read_model(path, SHAPES, input_values={"x": 0, "rate": 1, "k": 2})
