"""Files of operators on codes: ONNX Runtime's own quantizer writes them, and is the oracle."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from midge.convert import ort
from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.onnx_in import read_model
from midge.convert.reference import needs_exact_kernels
from midge.convert.verify import verify
from midge.core.errors import UnsupportedError

NET = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 3, 12, 12] x) => (float[1, 5] y)
{
    a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
    r = Relu(a)
    d = Conv <pads = [1, 1, 1, 1], group = 8> (r, w1, b1)
    s = Add(d, r)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (s)
    m = Mul(p, p)
    j = Concat <axis = 1> (m, p)
    g = Sigmoid(j)
    v = GlobalAveragePool(g)
    f = Flatten(v)
    l = Gemm <transB = 1> (f, w2, b2)
    y = Softmax <axis = 1> (l)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "b1": (8,)}
SHAPES |= {"w2": (5, 16), "b2": (5,)}


class Samples(CalibrationDataReader):
    """Noise."""

    def __init__(self):
        self._left = 8

    def get_next(self):
        self._left -= 1
        return None if self._left < 0 else {"x": noise(1, self._left)[0]}


def noise(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 1, 3, 12, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("qoperators")


@pytest.fixture(scope="module", params=[False, True], ids=["per tensor", "per channel"])
def quantized(request, folder):
    """A file with operators on codes, by ONNX Runtime's quantizer."""
    model, rng = onnx.parser.parse_model(NET), np.random.default_rng(3)
    for name, shape in SHAPES.items():
        array = rng.normal(0, 0.4, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, folder / "float.onnx")
    path = folder / f"q{int(request.param)}.onnx"
    quantize_static(
        str(folder / "float.onnx"),
        str(path),
        Samples(),
        quant_format=QuantFormat.QOperator,
        per_channel=request.param,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert kinds >= {"QLinearConv", "QLinearAdd", "QLinearMul", "QLinearConcat", "QGemm"}
    return path


def test_the_executor_gives_the_codes_of_onnx_runtime(quantized):
    x = noise(40, 5)
    session = ort.make_session(onnx.load(quantized), threads=1, exact=needs_exact_kernels())
    want = np.stack([session.run(None, {"x": sample})[0] for sample in x])
    got = Executor(read_plan(quantized, "net")).run_batch([x])[0]
    assert len(np.unique(want)) > 20
    assert np.array_equal(got, want)


def test_no_tensor_differs_in_c_or_in_what_it_is_spelt_as(quantized):
    report = verify(quantized, count=5)
    assert report.holds
    assert report.elements > 20_000


def test_scales_of_the_file_stay_bit_for_bit(quantized):
    before = {t.name: t for t in onnx.load(quantized).graph.initializer if "scale" in t.name}
    after = read_model(quantized).graph.initializers
    for name, tensor in before.items():
        assert np.array_equal(after[name].const_value.numpy(), numpy_helper.to_array(tensor))


def layer(tmp_path, op_type, inputs, domain="", **changed):
    """Save one QLinear node; `changed` replaces constants."""
    parts = {
        "s": np.float32(0.1),
        "z": np.uint8(3),
        "w": np.ones((4, 3, 3, 3), np.int8),
        "ws": np.full(4, 0.01, np.float32),
        "wz": np.zeros(4, np.int8),
    } | changed
    graph = helper.make_graph(
        [helper.make_node(op_type, inputs.split(), ["y"], "layer", domain=domain)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 4, 6, 6])],
        [numpy_helper.from_array(array, name) for name, array in parts.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("op_type", "inputs", "domain"),
    [
        ("QLinearConv", "x s z w ws wz", ""),
        ("QLinearMatMul", "x s z w ws wz s", ""),
        ("QGemm", "x s z w", "com.microsoft"),
        ("QLinearAdd", "x s z x", "com.microsoft"),
        ("QLinearConcat", "s z x s", "com.microsoft"),
        ("QLinearSigmoid", "x s", "com.microsoft"),
    ],
)
def test_a_node_that_lacks_inputs_is_named(tmp_path, op_type, inputs, domain):
    with pytest.raises(UnsupportedError, match=rf"layer \({op_type}\): it has . inputs"):
        read_model(layer(tmp_path, op_type, inputs, domain))


def test_a_scale_of_zero_names_the_node(tmp_path):
    path = layer(tmp_path, "QLinearConv", "x s z w ws wz s z", s=np.float32(0))
    with pytest.raises(UnsupportedError, match=r"layer_\w+ .*its scale is 0.0"):
        read_plan(path, "net")


def test_a_product_with_float_outputs_is_refused_by_name(tmp_path):
    parts = {
        "s": np.float32(0.1),
        "z": np.uint8(3),
        "w": np.ones((2, 4), np.int8),
        "wz": np.int8(0),
        "c": np.zeros(2, np.int32),
    }
    names = ["x", "s", "z", "w", "s", "wz", "c"]
    node = helper.make_node("QGemm", names, ["y"], "product", domain="com.microsoft", transB=1)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(array, name) for name, array in parts.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match=r"product \(QGemm\): its output is float"):
        read_model(tmp_path / "m.onnx")
