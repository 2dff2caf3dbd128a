"""Files that another tool quantized in part: what they have stays, the rest joins it."""

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from midge.convert.calibration_data import InMemory
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.verify import verify
from midge.core.errors import InputError
from midge.quant.analysis import sqnr_db

rng = np.random.default_rng(8)
NET = """(float[1,3,16,16] x) => (float[1,10] y) {
    c1 = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w1, b1) r1 = Relu(c1)
    d2 = Conv<pads=[1,1,1,1], group=8>(r1, w2, b2) r2 = Relu(d2)
    c3 = Conv(r2, w3, b3) a = Add(c3, r1) r3 = Relu(a)
    c4 = Conv<pads=[0,0,1,1], strides=[2,2]>(r3, w4, b4) r4 = Relu(c4)
    p = GlobalAveragePool(r4) f = Flatten(p) y = Gemm<transB=1>(f, w5, b5)
}"""
SHAPES = {
    **{
        "w1": (8, 3, 3, 3),
        "b1": (8,),
        "w2": (8, 1, 3, 3),
        "b2": (8,),
        "w3": (8, 8, 1, 1),
        "b3": (8,),
    },
    **{"w4": (12, 8, 2, 2), "b4": (12,), "w5": (10, 12), "b5": (10,)},
    **{"w6": (8, 8, 1, 1), "b6": (8,)},
}
NODES = ["conv0", "relu1", "conv2", "relu3", "conv4", "add5", "relu6", "conv7", "relu8"]
NODES += ["globalaveragepool9", "flatten10", "gemm11"]
LEFT = {  # nodes that the other tool leaves in float
    "the second half": NODES[7:],
    "the first half": NODES[:7],
    "the middle": NODES[2:5],
    "one branch": ["conv4"],
    "one layer": ["conv7", "relu8"],
    "a branch that is read early": [*NODES[:3], *NODES[7:11]],
    "up to a pool": ["conv7", "relu8", "globalaveragepool9"],
    "all but the last layer": NODES[:11],
}
SAMPLES = [{"x": rng.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(24)]


class Reader(CalibrationDataReader):
    def __init__(self):
        self.samples = iter(SAMPLES)

    def get_next(self):
        return next(self.samples, None)


@pytest.fixture
def half(build, tmp_path):
    """Make a file that ONNX Runtime's tool quantizes but for some nodes."""

    def make(left, net=NET, **options):
        weights = {
            name: (rng.standard_normal(shape) * 0.3).astype(np.float32)
            for name, shape in SHAPES.items()
            if name in net
        }
        source, path = tmp_path / "float.onnx", tmp_path / "half.onnx"
        source.write_bytes(to_proto(build(net, **weights)).SerializeToString())
        options = {"quant_format": QuantFormat.QDQ, "per_channel": True, **options}
        quantize_static(source, path, Reader(), nodes_to_exclude=LEFT[left], **options)
        return path

    return make


def conversions(path):
    """Return (scale, zero-point, codes where they are constant) of every conversion, by output."""
    model = read_model(path)
    proto = to_proto(model)
    known = {i.name: onnx.numpy_helper.to_array(i) for i in proto.graph.initializer}
    return {
        node.output[0]: [known[n].tolist() for n in node.input if n in known]
        for node in proto.graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    }


def floats(report):
    return [(c.node, c.reason) for c in report.coverage if c.state == "float"]


def outputs(path):
    session = make_session(path, level="none")
    return np.concatenate([run(session, sample)[0] for sample in SAMPLES])


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_type": QuantType.QInt8},
        {
            "per_channel": False,
            "activation_type": QuantType.QUInt8,
            "weight_type": QuantType.QUInt8,
        },
        {"quant_format": QuantFormat.QOperator},
    ],
    ids=["uint8", "int8", "asymmetric weights", "QOperator"],
)
def test_the_rest_is_quantized_and_what_is_given_stays(half, tmp_path, left, options):
    path, out = half(left, **options), tmp_path / "out.onnx"
    before = conversions(path)
    report = quantize_file(path, out, InMemory(SAMPLES))
    after = conversions(out)
    assert {name: after.get(name) for name in before} == before
    assert len(after) > len(before)
    assert floats(report) == []
    assert any("quantized in part" in line for line in report.notices)
    assert sqnr_db(outputs(path), outputs(out)) > 25
    assert verify(out, SAMPLES[:8]).mismatches == 0


def test_a_bias_that_a_given_layer_shares_serves_a_float_layer(half, tmp_path):
    path, out = half("the middle", net=NET.replace("b2", "b1")), tmp_path / "out.onnx"
    report = quantize_file(path, out, InMemory(SAMPLES))
    assert floats(report) == []
    assert verify(out, SAMPLES[:8]).mismatches == 0


FORK = """(float[1,3,16,16] x) => (float[1,8,8,8] y, float[1,8,16,16] z) {
    c = Conv<pads=[1,1,1,1]>(x, w1, b1) m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
    y = Conv(m, w3, b3) s = Sigmoid(c) z = Conv(s, w6, b6)
}"""


def test_a_move_whose_input_serves_others_keeps_their_scale(half, tmp_path, monkeypatch):
    monkeypatch.setitem(LEFT, "before a fork", ["conv0", "maxpool1", "sigmoid3", "conv4"])
    path, out = half("before a fork", net=FORK), tmp_path / "out.onnx"
    report = quantize_file(path, out, InMemory(SAMPLES))
    assert floats(report) == [
        ("maxpool1", "the file gives its output another scale than its input has")
    ]
    assert verify(out, SAMPLES[:8]).mismatches == 0


def test_a_float_layer_with_the_weight_of_a_given_one_stays_and_is_said(
    half, tmp_path, monkeypatch
):
    monkeypatch.setitem(LEFT, "before a fork", ["conv0", "maxpool1", "sigmoid3", "conv4"])
    net, out = FORK.replace("w6", "w3").replace("b6", "b3"), tmp_path / "out.onnx"
    report = quantize_file(half("before a fork", net=net), out, InMemory(SAMPLES))
    assert any("its weight is no constant" in reason for _, reason in floats(report))
    assert verify(out, SAMPLES[:8]).mismatches == 0


def test_a_second_time_the_file_is_copied(half, tmp_path):
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    quantize_file(half("the middle"), once, InMemory(SAMPLES))
    report = quantize_file(once, twice, InMemory(SAMPLES))
    assert twice.read_bytes() == once.read_bytes()
    assert any("is quantized already" in line for line in report.notices)


def test_what_users_exclude_stays_in_float_and_the_file_is_copied(half, tmp_path):
    path, out = half("one branch"), tmp_path / "out.onnx"
    quantize_file(path, out, InMemory(SAMPLES), QuantizeOptions(nodes_to_exclude=("conv4",)))
    assert out.read_bytes() == path.read_bytes()


def test_codes_for_inputs_are_refused(half, tmp_path):
    with pytest.raises(InputError, match="quantized in part, and --io-type"):
        quantize_file(
            half("one layer"), tmp_path / "o", InMemory(SAMPLES), QuantizeOptions(io_type="int8")
        )
