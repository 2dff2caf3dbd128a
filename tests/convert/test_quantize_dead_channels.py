"""Quantizing a file whose filters round to zeros."""

import json

import numpy as np
import pytest

from midge.convert import graph as g
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import write_model
from midge.convert.ort import make_session, run
from midge.convert.pipeline import quantize_file
from midge.convert.quantize_report import QuantizeOptions

NET = """(float[1, 2, 6, 6] x) => (float[1, 3, 4, 4] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, V, B)
    b = Relu(a)
    c = Conv(b, W)
    y = Relu(c)
}"""


@pytest.fixture
def net(build, tmp_path):
    """A file whose filters 1 and 2 of 5 are some 1e-12: training drove them there."""
    rng = np.random.default_rng(0)
    V = rng.standard_normal((5, 2, 3, 3)).astype(np.float32)
    V[1:3] *= np.float32(1e-12)
    W = rng.standard_normal((3, 5, 3, 3)).astype(np.float32)
    B = np.array([0.1, 0.5, -0.5, 0, 0.2], np.float32)
    write_model(build(NET, V=V, B=B, W=W), tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", rng.standard_normal((8, 1, 2, 6, 6)).astype(np.float32))
    return tmp_path / "net.onnx"


def quantize(net, **options):
    out = net.with_name(f"{len(options)}.int8.onnx")
    return quantize_file(net, out, str(net.with_name("x.npy")), QuantizeOptions(**options))


def test_dead_channels_go_and_the_report_says_so(net):
    report = quantize(net)
    reasons = {c.node: c.reason for c in report.coverage}
    gone = "accumulate, per channel, 2 of 5 output channels are dead and gone"
    assert reasons["conv0"].removesuffix(", may saturate without VNNI") == gone
    assert "gone" not in reasons["conv2"]
    work = 5 * 2 * 9 * 36 + 3 * 5 * 9 * 16
    left = 3 * 2 * 9 * 36 + 3 * 3 * 9 * 16
    assert any(f"multiply-accumulates {work:,} -> {left:,}" in line for line in report.notices)
    weights = [n.inputs[1] for n in read_model(report.output).graph if n.op_type == "Conv"]
    assert [g.static_dims(w)[:2] for w in weights] == [(3, 2), (3, 3)]


def test_the_record_beside_the_file_describes_what_is_left(net):
    weights = json.loads(quantize(net).parameters.read_text())["weights"]
    assert [len(w["scale"]) for w in weights.values()] == [3, 3]
    assert [w["raised"] for w in weights.values()] == [[], []]


def test_keeping_dead_channels_gives_the_same_outputs(net):
    kept, dropped = quantize(net, dead_channels=False), quantize(net)
    assert not any("gone" in c.reason for c in kept.coverage)
    weights = json.loads(kept.parameters.read_text())["weights"]
    assert [len(w["scale"]) for w in weights.values()] == [5, 3]
    sessions = [make_session(r.output, exact=True) for r in (kept, dropped)]
    for x in np.load(net.with_name("x.npy")):
        first, second = (run(s, {"x": x})[0] for s in sessions)
        np.testing.assert_array_equal(first, second)
