"""--drop-softmax: what only ArgMax or TopK's indices read goes, all else stays and says why."""

import json

import numpy as np
import onnx
import pytest

from midge.convert.canonical import canonicalize
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.passes.drop_softmax import DropSoftmax, drop_notices
from midge.convert.pipeline import QuantizeOptions, convert_file, quantize_file

K = {"k": np.array([2])}


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("(float[N,5] x) => (int64[N] y) { p = Softmax(x) y = ArgMax<axis=1, keepdims=0>(p) }", {}),
        ("(float[N,5] x) => (int64[N,1] y) { p = LogSoftmax(x) y = ArgMax<axis=-1>(p) }", {}),
        ("(float[N,5,3] x) => (int64[N,1,3] y) { p = Sigmoid(x) y = ArgMax<axis=1>(p) }", {}),
        (
            "(float[N,5,3] x) => (int64[N,1,3] y, int64[N,1,3] z) { p = Softmax<axis=1>(x)"
            " y = ArgMax<axis=-2>(p) z = ArgMax<axis=1, select_last_index=1>(p) }",
            {},
        ),
        ("(float[N,5] x) => (int64[N,2] y) { p = Softmax(x) v, y = TopK(p, k) }", K),
        (
            "(float[N,5] x) => (int64[N,1] y) { p = Softmax(x) q = Sigmoid(p)"
            " y = ArgMax<axis=1>(q) }",
            {},
        ),
    ],
)
def test_what_keeps_the_order_goes(build, ops, text, constants):
    model = build(text, **constants)
    before = to_proto(model)
    records = DropSoftmax()(model).records
    onnx.checker.check_model(to_proto(model), full_check=True)
    assert {r.state for r in records} == {"folded"}
    assert set(ops(model)) <= {"ArgMax", "TopK"}
    shape = [4, *[d.dim_value for d in before.graph.input[0].type.tensor_type.shape.dim[1:]]]
    x = np.random.default_rng(0).normal(0, 2, shape).astype(np.float32)
    results = [run(make_session(m, level="none"), {"x": x}) for m in (before, to_proto(model))]
    for want, got in zip(*results, strict=True):
        assert np.array_equal(want, got)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[N,5] x) => (float[N,5] p, int64[N,1] y) { p = Softmax(x)"
            " y = ArgMax<axis=1>(p) }",
            "'p' is an output of the graph",
        ),
        (
            "(float[N,5] x) => (float[N,5] q, int64[N,1] y) { p = Softmax(x) q = Neg(p)"
            " y = ArgMax<axis=1>(p) }",
            "neg1 (Neg) reads its values",
        ),
        (
            "(float[N,5,3] x) => (int64[N,1,3] y) { p = Softmax(x) y = ArgMax<axis=1>(p) }",
            "argmax1 (ArgMax) looks along another axis",
        ),
        (
            "(float[N,5] x) => (int64[N,1] y, int64[N,1] z) { p = Softmax(x)"
            " y = ArgMax<axis=1>(p) z = ArgMin<axis=1>(p) }",
            "argmin2 (ArgMin) reads its values",
        ),
        (
            "(float[N,5] x) => (float[N,2] v, int64[N,2] y, int64[N,1] z) { p = Softmax(x)"
            " v, y = TopK(p, k) z = ArgMax<axis=1>(p) }",
            "topk1 (TopK) reads its values",
        ),
        (
            "(float[N,5] x) => (int64[N,1] y) { s = Add(x, mask) p = Softmax(s)"
            " y = ArgMax<axis=1>(p) }",
            "its input is masked, which leaves no range for 8 bits",
        ),
    ],
)
def test_what_else_needs_its_values_stays_with_a_reason(build, ops, text, reason):
    constants = {"mask": np.array([0, 0, 0, -1e9, 0], np.float32)} if "mask" in text else {}
    model = build(text, **constants, **(K if "TopK" in text else {}))
    before = ops(model)
    result = DropSoftmax()(model)
    assert ops(model) == before
    assert not result.modified
    assert [(r.state, r.reason) for r in result.records] == [("kept", reason)]
    (line,) = drop_notices(result.records)
    assert line.startswith("--drop-softmax: softmax")
    assert reason in line


def test_a_softmax_whose_smallest_values_are_asked_for_is_no_concern(build):
    text = """(float[N,5] x) => (int64[N,1] y, int64[N,2] z) { p = Softmax(x)
        y = ArgMin<axis=1>(p) v, z = TopK<largest=0>(p, k) }"""
    result = DropSoftmax()(build(text, **K))
    assert result.records == []
    (line,) = drop_notices(result.records)
    assert "--drop-softmax has no effect" in line


def test_it_happens_on_request_only_and_behind_identities_too(build, ops):
    text = """(float[N,5] x) => (int64[N,1] y) { p = Softmax(x) i = Identity(p)
        y = ArgMax<axis=1>(i) }"""
    model, asked = build(text), build(text)
    canonicalize(model)
    assert ops(model) == ["Softmax", "ArgMax"]
    records = canonicalize(asked, (DropSoftmax,))
    assert ops(asked) == ["ArgMax"]
    assert drop_notices(records) == []


NET = """(float[1,6] x) => (int64[1,1] y)
    { m = MatMul(x, w) p = Softmax(m) y = ArgMax<axis=1>(p) }"""


@pytest.fixture
def net(build, tmp_path):
    """The path of a classifier that ends in ArgMax, and data."""
    rng = np.random.default_rng(5)
    proto = to_proto(build(NET, w=rng.normal(0, 1, (6, 4)).astype(np.float32)))
    onnx.save(proto, tmp_path / "net.onnx")
    np.save(tmp_path / "data.npy", rng.normal(0, 1, (64, 6)).astype(np.float32))
    return tmp_path / "net.onnx", tmp_path / "data.npy"


def test_the_pipelines_take_it_and_record_the_node_as_folded(net, tmp_path):
    path, data = net
    out = tmp_path / "out.onnx"
    reports = [convert_file(path, out, drop_softmax=True)]
    for mode, spec in (("static", str(data)), ("dynamic", None), ("weight-only", None)):
        options = QuantizeOptions(mode=mode, drop_softmax=True)
        reports.append(quantize_file(path, out, spec, options))
        assert "Softmax" not in {n.op_type for n in onnx.load(out).graph.node}
        assert json.loads(reports[-1].parameters.read_text())["drop_softmax"] is True
    for report in reports:
        (record,) = [c for c in report.coverage if c.op_type == "Softmax"]
        assert record.state == "folded"
        assert "argmax2 (ArgMax) finds the same place in its input" in record.reason
        assert not [line for line in report.notices if "drop-softmax" in line]
    quantize_file(path, out, str(data))
    assert "Softmax" in {n.op_type for n in onnx.load(out).graph.node}
