"""Every opset from 7 on, each in its own spelling: read, quantized, and the same answers."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from midge.convert.calibration_data import RANDOM
from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.onnx_in import OPSET, notices, read_model
from midge.convert.ort import make_session, run
from midge.convert.pipeline import quantize_file
from midge.core.errors import InputError, ToolError
from midge.quant.analysis import sqnr_db

NEWEST = onnx.defs.onnx_opset_version()
IR_VERSION = 8  # opset 7 came with 3; ONNX Runtime reads newer ones with any opset
rng = np.random.default_rng(4)


class Graph:
    """A graph in the spelling of one opset."""

    def __init__(self, opset):
        self.opset, self.nodes, self.constants = opset, [], []

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op, *inputs, since=None, **parameters):
        """Add a node; parameters became operands with opset `since`, attributes before."""
        attributes = parameters
        if since is not None and self.opset >= since:
            inputs = (*inputs, *(self.constant(np.array(v)) for v in parameters.values()))
            attributes = {}
        return self.node(op, inputs, attributes)

    def node(self, op, inputs, attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], f"n_{name}", **attributes))
        return name

    def clip(self, x, low, high):
        if self.opset >= 11:
            return self.node("Clip", [x, *(self.constant(np.float32(v)) for v in (low, high))], {})
        return self.node("Clip", [x], {"min": low, "max": high})

    def pad(self, x, pads):
        if self.opset >= 11:
            return self.node("Pad", [x, self.constant(np.array(pads))], {"mode": "constant"})
        return self.node("Pad", [x], {"pads": pads, "mode": "constant"})

    def upsample(self, x, scales):
        values = np.array(scales, np.float32)
        if self.opset >= 11:
            roi = "" if self.opset >= 13 else self.constant(np.float32([]))
            inputs = [x, roi, self.constant(values)]
            how = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
            return self.node("Resize", inputs, {"mode": "nearest", **how})
        if self.opset == 10:
            return self.node("Resize", [x, self.constant(values)], {"mode": "nearest"})
        if self.opset == 9:
            return self.node("Upsample", [x, self.constant(values)], {"mode": "nearest"})
        return self.node("Upsample", [x], {"mode": "nearest", "scales": scales})

    def slice(self, x, starts, ends, axes):
        if self.opset >= 10:
            inputs = [self.constant(np.array(v)) for v in (starts, ends, axes)]
            return self.node("Slice", [x, *inputs], {})
        return self.node("Slice", [x], {"starts": starts, "ends": ends, "axes": axes})

    def dropout(self, x):
        ratio = {"ratio": 0.5} if self.opset < 12 else {}
        return self.node("Dropout", [x], ratio)

    def softmax(self, x):
        return self.node("Softmax", [x], {"axis": 1})

    def model(self, output, shape):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", *shape])
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(made)
        return made


def network(opset):
    """A network of the operators whose spelling changed."""
    given = np.random.default_rng(1)

    def normal(*shape):
        return given.normal(0, 0.3, shape).astype(np.float32)

    g = Graph(opset)
    x = g.pad("x", [0, 0, 1, 1, 0, 0, 1, 1])
    x = g.add("Conv", x, g.constant(normal(6, 3, 3, 3)), g.constant(normal(6)))
    moments = [given.uniform(0.5, 2, 6).astype(np.float32) for _ in range(4)]
    x = g.add("BatchNormalization", x, *map(g.constant, moments))
    x = g.clip(x, 0.0, 6.0)
    x = g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.upsample(x, [1.0, 1.0, 2.0, 2.0])
    x = g.slice(x, [1, 0], [7, 5], [2, 3])
    x = g.dropout(x)
    x = g.add("Unsqueeze", x, since=13, axes=[1])
    x = g.add("Squeeze", x, since=13, axes=[1])
    x = g.add("ReduceMean", x, since=18, axes=[2, 3])
    x = g.add("Flatten", x, axis=1)
    x = g.add("Gemm", x, g.constant(normal(6, 5)), g.constant(normal(5)))
    return g.model(g.softmax(x), [5])


def newest_that_runs():
    """Return the newest opset whose QuantizeLinear the installed ONNX Runtime has."""
    for opset in range(NEWEST, OPSET, -1):
        g = Graph(opset)
        scale, zero = g.constant(np.float32(0.1)), g.constant(np.uint8(3))
        y = g.node(
            "DequantizeLinear", [g.node("QuantizeLinear", ["x", scale, zero], {}), scale, zero], {}
        )
        try:
            make_session(g.model(y, [3, 8, 8]).SerializeToString())
        except ToolError:
            continue
        return opset
    return OPSET


RUNS = newest_that_runs()


@pytest.mark.parametrize("opset", range(7, RUNS + 1))
def test_a_network_of_each_opset_gives_the_same_answers(tmp_path, opset):
    path, out = tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
    path.write_bytes(network(opset).SerializeToString())
    raised = [line for line in notices(read_model(path)) if "opset raised" in line]
    assert raised == ([f"opset raised from {opset} to {OPSET}."] if opset < OPSET else [])
    x = rng.normal(size=(16, 3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "data.npy", x)
    report = quantize_file(path, out, str(tmp_path / "data.npy"))
    assert {c.state for c in report.coverage} == {"quantized", "folded"}
    executor = Executor(read_plan(out, "net"))
    got = np.concatenate([executor.run([sample[None]])[0] for sample in x])
    (want,) = run(make_session(path), {"x": x})
    assert sqnr_db(want, got) >= 30


@pytest.mark.skipif(RUNS == NEWEST, reason="ONNX Runtime knows every opset that onnx knows")
def test_an_opset_that_onnx_runtime_lacks_is_told_with_a_remedy(tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
    path.write_bytes(network(NEWEST).SerializeToString())
    with pytest.raises(ToolError, match="update onnxruntime, or export the model with an older"):
        quantize_file(path, out, RANDOM)
    assert not out.exists()


def test_an_opset_that_onnx_does_not_know_is_refused(tmp_path):
    model = network(NEWEST)
    model.opset_import[0].version = NEWEST + 1
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=f"opset {NEWEST + 1} is unknown"):
        read_model(tmp_path / "net.onnx")


def test_what_cannot_be_raised_is_refused_in_one_line(tmp_path):
    g = Graph(8)
    x = g.node("Scan", ["x"], {"num_scan_inputs": 1, "body": network(8).graph})
    model = helper.make_model(
        helper.make_graph(
            g.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 8)],
        ir_version=IR_VERSION,
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError) as caught:
        read_model(tmp_path / "net.onnx")
    assert "\n" not in str(caught.value)
