"""ArgMax and ArgMin of codes: no real value is computed, and every engine finds the same place."""

import numpy as np
import onnx
import pytest

from midge.convert.compile import read_plan
from midge.convert.onnx_out import to_proto
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.plan import Dequantize
from midge.convert.plan_general import Arg
from midge.convert.verify import verify
from midge.core.errors import CheckError

TEXT = """(float[1,3,6,5] x) => (int64[1,1,6,5] a, int64[1,6,5] b, int64[1,4,1,5] c, int64[1,1] d)
    {
        h = Conv<pads=[1,1,1,1]>(x, w)
        a = ArgMax<axis=1>(h)
        b = ArgMin<axis=1, keepdims=0, select_last_index=1>(h)
        r = Relu(h)
        t = MaxPool<kernel_shape=[2,2]>(r)
        c = ArgMax<axis=2, select_last_index=1>(r)
        f = Flatten(t)
        d = ArgMax<axis=-1>(f)
    }"""


def files(build, tmp_path):
    rng = np.random.default_rng(4)
    # Few distinct weights and inputs: many sums, and so many codes, are equal.
    weight = rng.integers(-1, 2, (4, 3, 3, 3)).astype(np.float32)
    onnx.save(to_proto(build(TEXT, w=weight)), tmp_path / "net.onnx")
    data = rng.integers(-1, 2, (40, 3, 6, 5)).astype(np.float32)
    np.save(tmp_path / "data.npy", data)
    return tmp_path / "net.onnx", data


@pytest.mark.parametrize("activation_type", ["uint8", "int8"])
def test_codes_are_compared_and_every_engine_agrees_on_ties(build, tmp_path, activation_type):
    path, data = files(build, tmp_path)
    out = tmp_path / "net.int8.onnx"
    options = QuantizeOptions(activation_type=activation_type, strict=True, reduce_range=True)
    report = quantize_file(path, out, str(tmp_path / "data.npy"), options)
    compared = [c.op_type for c in report.coverage if c.reason == "compares codes"]
    assert compared == ["ArgMax", "ArgMin", "ArgMax", "ArgMax"]
    plan = read_plan(out, "net")
    steps = [op for op in plan.ops if isinstance(op.params, Arg)]
    assert [plan.tensors[op.inputs[0]].dtype for op in steps] == ["int8"] * 4
    assert not [op for op in plan.ops if isinstance(op.params, Dequantize)]
    assert not [line for line in plan.notices if "float32" in line]
    checked = verify(out, [{"x": x[None]} for x in data])
    assert checked.holds
    outputs = [c for c in checked.checks if c.kind == "output"]
    assert [(c.ort_mismatches, c.c_mismatches) for c in outputs] == [(0, 0)] * 4


def test_real_values_are_compared_where_there_are_no_codes(build, tmp_path):
    path, data = files(build, tmp_path)
    plan = read_plan(path, "net")
    steps = [op for op in plan.ops if isinstance(op.params, Arg)]
    assert [plan.tensors[op.inputs[0]].dtype for op in steps] == ["float32"] * 4
    samples = [{"x": x[None]} for x in data]
    assert verify(path, samples, with_c=False).holds  # places of what was flattened among them
    options = QuantizeOptions(op_types_to_quantize=("Conv",))
    report = quantize_file(path, tmp_path / "o.onnx", str(tmp_path / "data.npy"), options)
    states = {c.reason for c in report.coverage if c.op_type == "ArgMax"}
    assert states == {"not among --op-types-to-quantize"}


def test_strict_refuses_an_argmax_of_real_values(build, tmp_path):
    text = """(float[1,6] x) => (int64[1,1] y)
        { e = LpNormalization(x) y = ArgMax<axis=1>(e) }"""
    onnx.save(to_proto(build(text)), tmp_path / "net.onnx")
    np.save(tmp_path / "data.npy", np.ones((2, 6), np.float32))
    with pytest.raises(CheckError, match="ArgMax"):
        quantize_file(
            tmp_path / "net.onnx",
            tmp_path / "o.onnx",
            str(tmp_path / "data.npy"),
            QuantizeOptions(strict=True),
        )
