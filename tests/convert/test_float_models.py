"""Published networks as float C, as dynamic INT8, and partly in float."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.onnx_in import read_model
from midge.convert.ort import make_session, run
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.session import Session
from midge.convert.verify import verify

MODELS = os.environ.get("MIDGE_MODELS")
FLOAT = {
    "mlperf_tiny/ad01_autoencoder_fp32": 20,
    "mlperf_tiny/ic01_resnet8_fp32": 4,
    "mlperf_tiny/kws01_dscnn_fp32": 8,
    "mlperf_tiny/vww_mnv1_025_96_fp32": 2,
    "cifar10/resnet20_fp32": 2,
}
SPECTROGRAM = "mlperf_tiny/ad01_one_sample_normal_f32_640.bin"
DYNAMIC_ERROR = 0.01  # relative L2, per-channel weights

pytestmark = pytest.mark.skipif(MODELS is None, reason="MIDGE_MODELS is not set")


def path_of(name):
    return Path(MODELS or "") / f"{name}.onnx"


@pytest.mark.parametrize("name", FLOAT)
def test_a_float_network_is_the_same_in_c_and_onnx_runtime(name):
    report = verify(path_of(name), count=FLOAT[name])
    assert report.holds, [check for check in report.checks if not check.holds]


def test_a_partly_float_network_compiles_and_verifies(tmp_path):
    name = "mlperf_tiny/ic01_resnet8_fp32"
    nodes = onnx.load(path_of(name)).graph.node
    convs = [node.name for node in nodes if node.op_type == "Conv"]
    options = QuantizeOptions(nodes_to_exclude=tuple(convs[1:5:2]), samples=16)
    quantize_file(path_of(name), tmp_path / "mixed.onnx", "random", options)
    report = verify(tmp_path / "mixed.onnx", count=4)
    assert report.holds, [check for check in report.checks if not check.holds]
    assert any("2 operators are computed in float32" in line for line in report.notices)


def windows(count):
    """Inputs of the autoencoder: windows of five frames of one recording, and noisy ones."""
    rng = np.random.default_rng(0)
    frames = np.fromfile(Path(MODELS or "") / SPECTROGRAM, np.float32).reshape(-1, 640)
    whole = frames[rng.integers(len(frames), size=count)]
    whole[len(frames) :] += rng.normal(0, 1, whole[len(frames) :].shape).astype(np.float32)
    whole[: len(frames)] = frames
    return whole[:, None]


def test_the_dynamic_autoencoder_stays_within_one_percent_and_c_has_the_executors_bits(tmp_path):
    path, out = path_of("mlperf_tiny/ad01_autoencoder_fp32"), tmp_path / "ad.onnx"
    quantize_file(path, out, None, QuantizeOptions(mode="dynamic"))
    plan = lower(read_model(out), name="ad")
    place(plan)
    x = windows(300)
    y = Executor(plan).run_batch([x])[0]
    session = make_session(path)
    name = session.get_inputs()[0].name
    want = np.stack([run(session, {name: sample})[0] for sample in x])
    assert np.linalg.norm(y - want) <= DYNAMIC_ERROR * np.linalg.norm(want)
    compiled = Session(out)
    c = np.stack([compiled.run(sample)[0] for sample in x])
    np.testing.assert_array_equal(c.view(np.uint32), y.view(np.uint32))
