"""Sub in integers: as `quantize` writes it, as QAT trains it, and its channels that are dead."""

import numpy as np
import pytest

from midge.convert.activation_params import params_from_ranges
from midge.convert.canonical import canonicalize
from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.onnx_out import write_model
from midge.convert.ort import make_session, run
from midge.convert.pipeline import quantize_file
from midge.convert.quantize import quantize_graph
from midge.convert.quantize_report import QuantizeOptions
from midge.convert.select import select
from midge.convert.trained import write_trained
from midge.core import Tensor, manual_seed, nn
from midge.core.nn import functional as F
from midge.quant.qat import prepare_qat
from midge.quant.scheme import activation_params

rng = np.random.default_rng(5)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def steps(model):
    return [type(op.params).__name__ for op in lower(model, name="g").ops]


BOTH = "(float[N,3,6,6] x) => (float[N,4,6,6] y) { a = Conv(x, w) b = Conv(x, v) y = Sub(a, b) }"
CONSTANT = "(float[N,3,6,6] x) => (float[N,4,6,6] y) { a = Relu(x) b = Conv(a, w) y = Sub(%s) }"


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
@pytest.mark.parametrize("relu", [False, True])
def test_a_difference_that_quantize_writes_gives_onnx_runtimes_bits(
    build, quantized, compare, activation_type, relu
):
    text = BOTH.replace("y = Sub(a, b)", "d = Sub(a, b) y = Relu(d)") if relu else BOTH
    model = build(text, w=f32(4, 3, 1, 1), v=f32(4, 3, 1, 1))
    result, sqnr = quantized(model, activation_type=activation_type)
    assert {c.state for c in result.coverage} == {"quantized"}
    assert sqnr > 25
    moves = {"Quantize", "Transpose", "Dequantize"}
    assert [s for s in steps(result.model) if s not in moves] == ["Conv2d", "Conv2d", "Add"]
    assert compare(result.model, samples=64) == {}


@pytest.mark.parametrize("operands", ["b, c", "c, b"])
@pytest.mark.parametrize("shape", [(1, 4, 6, 6), (4, 6, 1)])
def test_a_constant_is_subtracted_in_integers(build, quantized, compare, operands, shape):
    # A constant per channel and pixel is no bias that a fold could give to the Conv.
    model = build(CONSTANT % operands, w=f32(4, 3, 1, 1), c=f32(*shape))
    result, sqnr = quantized(model)
    assert sqnr > 25
    assert "BinaryF32" not in steps(result.model)
    assert compare(result.model, samples=64) == {}


def test_scales_that_would_break_ties_apart_are_raised(build, compare):
    # The range of y is twice that of x and z: half of all differences lie between two codes.
    model = build("(float[N,64] x, float[N,64] z) => (float[N,64] y) { y = Sub(x, z) }")
    canonicalize(model)
    ranges = {"x": (-1.3, 1.9), "z": (-1.9, 1.3), "y": (-3.2, 3.2)}
    params = params_from_ranges(select(model), ranges)
    plain = activation_params(*ranges["y"])
    assert plain.scale < params["y"].scale < plain.scale * np.float32(1.0002)
    assert compare(quantize_graph(model, params).model, samples=200) == {}
    assert compare(quantize_graph(model, params | {"y": plain}).model, samples=200) != {}


def test_training_computes_the_difference_that_the_file_computes(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(3, 4, 3, padding=1)
            self.b = nn.Conv2d(3, 4, 1)

        def forward(self, x):
            return F.relu(self.a(x) - self.b(x)) - self.b(x)

    manual_seed(2)
    x = rng.standard_normal((32, 3, 8, 8)).astype(np.float32)
    qat = prepare_qat(Net(), Tensor(x[:2]))
    qat(Tensor(x)).sum().backward()
    path = write_trained(qat.finalize(), tmp_path / "net.onnx", "net").output
    (got,) = Executor(read_plan(path, "net")).run_batch([x[:, None]])
    want = qat(Tensor(x)).detach().numpy()
    assert np.unique(want).size > 20
    assert np.array_equal(got[:, 0], want)


def test_a_channel_that_is_dead_on_both_sides_of_a_difference_goes(build, tmp_path):
    W, V = f32(5, 2, 3, 3), f32(5, 2, 3, 3)
    W[1:3] *= np.float32(1e-12)
    V[1:3] *= np.float32(1e-12)
    text = """(float[1, 2, 6, 6] x) => (float[1, 3, 4, 4] y) {
        a = Conv(x, W, B) b = Conv(x, V, C) c = Sub(a, b) y = Conv(c, U) }"""
    model = build(text, W=W, V=V, U=f32(3, 5, 1, 1), B=f32(5), C=f32(5))
    write_model(model, tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", f32(8, 1, 2, 6, 6))
    dropped, kept = (
        quantize_file(
            tmp_path / "net.onnx",
            tmp_path / f"{drop}.onnx",
            str(tmp_path / "x.npy"),
            QuantizeOptions(dead_channels=drop),
        )
        for drop in (True, False)
    )
    reasons = {c.node: c.reason for c in dropped.coverage}
    assert "2 of 5 output channels are dead and gone" in reasons["conv0"]
    assert "2 of 5 output channels are dead and gone" in reasons["conv1"]
    sessions = [make_session(r.output, exact=True) for r in (dropped, kept)]
    for x in np.load(tmp_path / "x.npy"):
        ours, whole = (run(s, {"x": x})[0] for s in sessions)
        assert np.array_equal(ours, whole)
