"""Verification of float, mixed and dynamic models: what may differ does, what may not is found."""

import numpy as np
import pytest

from midge.convert.compile import compile_file
from midge.convert.executor import Executor
from midge.convert.float_bounds import inexact_buffers
from midge.convert.golden import CODE_SHARE, FLOAT_SHARE, allowances
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import to_proto
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.plan_float import Conv2dF32, FullyConnectedDynamic
from midge.convert.session import Session
from midge.convert.verify import verify
from midge.convert.verify_float import Judge

f32 = np.float32
TEXT = """(float[N,2,8,8] x) => (float[N,5] y)
    { a = Conv<pads=[1,1,1,1]>(x, w0, b0)
      b = Relu(a)
      c = Conv<strides=[2,2]>(b, w1)
      d = Relu(c)
      e = GlobalAveragePool(d)
      f = Flatten(e)
      y = Gemm<transB=1>(f, w2, b2) }"""


@pytest.fixture(scope="module")
def files(build, tmp_path_factory):
    """A float model, and mixed, dynamic and weight-only ones made of it."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(8)
    shapes = {"w0": (6, 2, 3, 3), "b0": (6,), "w1": (8, 6, 3, 3), "w2": (5, 8), "b2": (5,)}
    model = build(TEXT, **{k: rng.normal(0, 0.3, s).astype(f32) for k, s in shapes.items()})
    (folder / "float.onnx").write_bytes(to_proto(model).SerializeToString())
    np.save(folder / "data.npy", rng.normal(0, 1, (40, 2, 8, 8)).astype(f32))
    convs = [n.name for n in model.graph if n.op_type == "Conv"]
    options = {
        "mixed": (str(folder / "data.npy"), QuantizeOptions(nodes_to_exclude=(convs[1],))),
        "dynamic": (None, QuantizeOptions(mode="dynamic")),
        "weight-only": (None, QuantizeOptions(mode="weight-only")),
    }
    for name, (data, how) in options.items():
        quantize_file(folder / "float.onnx", folder / f"{name}.onnx", data, how)
    return folder


@pytest.mark.parametrize("kind", ["float", "mixed", "dynamic", "weight-only"])
def test_every_engine_agrees_within_what_is_allowed(files, kind):
    report = verify(files / f"{kind}.onnx", count=10)
    assert report.holds, [c for c in report.checks if not c.holds]
    assert any("error bounds" in line for line in report.notices)
    assert all(c.c_mismatches == 0 for c in report.checks)
    assert ("ORT_DISABLE_ALL" in report.level) == (kind in ("mixed", "dynamic"))


def test_a_float_step_beyond_its_bound_is_found(files):
    plan = lower(read_model(files / "float.onnx"), name="net")
    index = next(i for i, op in enumerate(plan.ops) if isinstance(op.params, Conv2dF32))
    x = np.random.default_rng(0).normal(0, 1, (3, 1, 2, 8, 8)).astype(f32)
    steps = list(Executor(plan).observe([x]).steps)
    judge = Judge(plan)
    for a, b in zip(judge.expected([x], steps)[1], steps, strict=True):
        np.testing.assert_array_equal(a, b)
    y = steps[index].view(f32).copy()
    for relative, wrong in ((2.0**-23, 0), (2.0**-12, 1)):
        seen = y.copy()
        seen[1, 7] += np.abs(y).max() * f32(relative)
        steps[index] = seen.view(np.uint8)
        wanted = judge.expected([x], steps)[1][index].view(f32)
        assert (wanted != seen).sum() == wrong
        assert not wrong or wanted[1, 7] == y[1, 7]


def test_only_steps_of_several_roundings_are_inexact(files):
    plan = lower(read_model(files / "dynamic.onnx"), name="net")
    inexact = inexact_buffers(plan)
    names = {plan.tensors[op.output].name: plan.tensors[op.output].buffer for op in plan.ops}
    assert names["b"] not in inexact  # a dynamic layer and its Relu: the same bits everywhere
    assert names["d"] not in inexact
    assert inexact[plan.tensors[plan.outputs[0]].buffer]  # behind an average of floats


def test_the_golden_test_allows_only_what_floats_need(files):
    for kind, share in (("float", FLOAT_SHARE), ("mixed", CODE_SHARE), ("dynamic", CODE_SHARE)):
        plan = lower(read_model(files / f"{kind}.onnx"), name="net")
        y = np.full((1, 1, 5), -4, f32)
        assert [a.limit for a in allowances(plan, [y])] == [share * 4], kind


def test_dynamic_layers_give_the_same_bits_in_c(build, tmp_path):
    rng = np.random.default_rng(4)
    text = "(float[N,30] x) => (float[N,20] y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) }"
    weights = {"w": (30, 25), "v": (25, 20)}
    model = build(text, **{k: rng.normal(0, 1, s).astype(f32) for k, s in weights.items()})
    (tmp_path / "net.onnx").write_bytes(to_proto(model).SerializeToString())
    path = tmp_path / "net.int8.onnx"
    quantize_file(tmp_path / "net.onnx", path, None, QuantizeOptions(mode="dynamic"))
    plan = lower(read_model(path), name="net")
    place(plan)
    assert not inexact_buffers(plan)
    assert sum(isinstance(op.params, FullyConnectedDynamic) for op in plan.ops) == 2
    session = Session(path)
    x = rng.normal(0, 1, (20, 1, 30)).astype(f32)
    want = Executor(plan).run_batch([x])[0]
    got = np.stack([session.run(sample)[0] for sample in x])
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("kind", ["float", "mixed"])
def test_compiling_runs_the_golden_test(files, kind, tmp_path):
    report = compile_file(files / f"{kind}.onnx", tmp_path / "c", "net")
    test = (tmp_path / "c" / "host" / "net_test.c").read_text()
    assert "floats_near" in test
    assert report.macs > 0
