"""LSTM, GRU and RNN: executor, ONNX Runtime and C agree in every form that is not refused."""

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from midge.convert.executor import Executor
from midge.convert.executor_ops import Operands
from midge.convert.executor_recurrent import recurrent
from midge.convert.float_bounds import error_bound, within_bound
from midge.convert.lower import lower
from midge.convert.plan import PlanOp, PlanTensor
from midge.convert.plan_general import RecurrentF32
from midge.convert.verify import verify
from midge.core.errors import InputError, UnsupportedError

f32 = np.float32
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
T, B, INPUTS, H = 5, 2, 3, 4


def model(kind, *, state=True, initial=None, peepholes=False, bias=True, **attributes):
    """A model of one layer; the states come in and go out."""
    rng = np.random.default_rng(7)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    batch_first = attributes.get("layout", 0)
    gates = GATES[kind] * H

    def weights(*shape):
        return rng.normal(0, 0.5, (directions, *shape)).astype(f32)

    arrays = {"W": weights(gates, INPUTS), "R": weights(gates, H)}
    if bias:
        arrays["Wb"] = weights(2 * gates)
    if peepholes:
        arrays["P"] = weights(3 * H)
    states = ["h", "c"][: 1 + (kind == "LSTM")] if state else []
    inputs = ["x", "W", "R", "Wb" if bias else "", "", *states]
    inputs += [""] * (7 - len(inputs)) + ["P"] if peepholes else []
    outputs = ["y", "y_h", *(["y_c"] if kind == "LSTM" else [])]
    node = helper.make_node(kind, inputs, outputs, name="layer", hidden_size=H, **attributes)
    of_state = [B, directions, H] if batch_first else [directions, B, H]
    shapes = {
        "x": [B, T, INPUTS] if batch_first else [T, B, INPUTS],
        **dict.fromkeys(states, of_state),
    }
    if initial is not None:
        arrays["h"] = np.full(of_state, initial, f32)
        del shapes["h"]
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=9)
    )


FORMS = {
    "LSTM": {},
    "LSTM both ways": {"direction": "bidirectional"},
    "LSTM with peepholes": {"peepholes": True, "direction": "reverse"},
    "LSTM from zeros without bias": {"state": False, "bias": False},
    "GRU": {},
    "GRU reset after": {"linear_before_reset": 1, "direction": "bidirectional"},
    "GRU from a constant": {"initial": 0.5, "direction": "reverse"},
    "GRU from zeros": {"state": False, "linear_before_reset": 1},
    "RNN": {"direction": "bidirectional"},
    "RNN with Relu": {"activations": ["Relu"]},
}


@pytest.mark.parametrize("name", FORMS)
def test_all_engines_agree(tmp_path, name):
    onnx.save(model(name.split()[0], **FORMS[name]), tmp_path / "net.onnx")
    report = verify(tmp_path / "net.onnx", count=3)
    assert (report.mismatches, report.elements > 100) == (0, True), report.checks


@pytest.mark.parametrize("kind", GATES)
def test_batch_first_is_what_onnx_says(kind):
    proto = model(kind, direction="forward", layout=1, peepholes=kind == "LSTM")
    plan = lower(ir.from_proto(proto), name="net")
    rng = np.random.default_rng(1)
    tensors = [plan.tensors[t] for t in plan.inputs]
    feeds = {t.name: rng.normal(0, 1, t.file_shape).astype(f32) for t in tensors}
    want = ReferenceEvaluator(proto).run(None, feeds)
    for a, b in zip(want, Executor(plan).run([feeds[t.name] for t in tensors]), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clip": 1.0}, "clips its gates"),
        ({"input_forget": 1}, "input_forget"),
        ({"activations": ["Relu", "Tanh", "Tanh"]}, "activations"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(options, words):
    with pytest.raises((InputError, UnsupportedError), match=f"layer.*{words}"):
        lower(ir.from_proto(model("LSTM", **options)), name="net")


def test_sequence_lens_are_refused_unless_they_say_nothing():
    proto = model("GRU")
    lengths = numpy_helper.from_array(np.full(B, T, np.int32), "lengths")
    proto.graph.initializer.append(lengths)
    proto.graph.node[0].input[4] = "lengths"
    lower(ir.from_proto(proto), name="net")
    proto.graph.initializer[-1].CopyFrom(
        numpy_helper.from_array(np.full(B, 2, np.int32), "lengths")
    )
    with pytest.raises((InputError, UnsupportedError), match="sequence_lens"):
        lower(ir.from_proto(proto), name="net")


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_errors_are_bounded_step_by_step(kind):
    rng = np.random.default_rng(0)
    gates = GATES[kind.upper()] * H

    def weights(*shape):
        return rng.normal(0, 0.5, shape).astype(f32)

    p = RecurrentF32(
        kind, weights(gates, INPUTS), weights(gates, H), weights(gates), weights(H), weights(3 * H)
    )
    x = rng.normal(0, 1, (4, 200, B, INPUTS)).astype(f32)
    y = PlanTensor("y", (200 + (kind != "rnn"), B, H), "float32", 1)
    o = Operands([x], [], y)
    op = PlanOp("layer", p, (0,), 1)
    got = recurrent(p, o)
    assert within_bound(op, o, got).all()
    assert error_bound(op, replace(o, seen=got)).max() < 1e-4
    wrong = got.copy()
    wrong[:, 150, 0, 0] += f32(1e-4)
    assert not within_bound(op, o, wrong)[:, 150, 0, 0].any()
