"""Models too large for one message, with the limit brought down to kilobytes."""

import numpy as np
import onnx
import pytest

from midge.convert import large_models
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import to_message
from midge.convert.ort import make_session, run
from midge.convert.pipeline import convert_file, quantize_file
from midge.core.errors import InputError

rng = np.random.default_rng(2)
W, V = (rng.normal(0, 0.2, (48, 48)).astype(np.float32) for _ in "wv")
B = rng.normal(0, 0.2, 48).astype(np.float32)


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(large_models, "LIMIT", 12_000)
    monkeypatch.setattr(large_models, "LARGE", 4_000)


@pytest.fixture
def path(build, tmp_path):
    """A model of two matrices and a vector, all of them in a file beside it."""
    text = """(float[N,48] x) => (float[N,48] y)
        { h = MatMul(x, w) r = Relu(h) k = MatMul(r, v) y = Add(k, b) }"""
    proto = onnx.ModelProto()
    proto.CopyFrom(large_models.ir.to_proto(build(text, w=W, v=V, b=B)))
    file = tmp_path / "net.onnx"
    onnx.save(proto, file, save_as_external_data=True, location="net.data", size_threshold=0)
    return file


def test_large_tensors_stay_in_their_file(path):
    model = read_model(path)
    kinds = {n: type(v.const_value).__name__ for n, v in model.graph.initializers.items()}
    assert kinds == {"w": "ExternalTensor", "v": "ExternalTensor", "b": "TensorProtoTensor"}
    assert [v.name for v in model.graph.inputs] == ["x"]
    made = to_message(model)
    assert set(made.weights) == {"w", "v"}
    assert made.proto.ByteSize() < 4_000


def test_onnx_runtime_gets_the_tensors_by_name(path):
    x = rng.normal(size=(3, 48)).astype(np.float32)
    (want,) = run(make_session(path), {"x": x})
    (got,) = run(make_session(to_message(read_model(path))), {"x": x})
    np.testing.assert_array_equal(got, want)


def test_a_converted_model_has_its_data_beside_it(path):
    out = path.with_name("out.onnx")
    convert_file(path, out)
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "net.data",
        "net.onnx",
        "out.onnx",
        "out.onnx.data",
    ]
    x = rng.normal(size=(3, 48)).astype(np.float32)
    (want,), (got,) = (run(make_session(p), {"x": x}) for p in (path, out))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_quantized_model_fits_in_one_file(path):
    np.save(path.with_name("calib.npy"), rng.normal(size=(8, 48)).astype(np.float32))
    out = path.with_name("net.int8.onnx")
    report = quantize_file(path, out, str(path.with_name("calib.npy")))
    assert {c.state for c in report.coverage} == {"quantized", "folded"}
    run(make_session(out), {"x": np.ones((1, 48), np.float32)})


def test_a_quantized_model_that_would_not_fit_is_refused(path, monkeypatch):
    monkeypatch.setattr(large_models, "LIMIT", 3_000)
    monkeypatch.setattr(large_models, "LARGE", 1_000)
    np.save(path.with_name("calib.npy"), rng.normal(size=(8, 48)).astype(np.float32))
    out = path.with_name("net.int8.onnx")
    with pytest.raises(InputError, match="would be over 2 GB"):
        quantize_file(path, out, str(path.with_name("calib.npy")))
    assert not out.exists()


def test_data_cut_short_are_named(path):
    data = path.with_name("net.data")
    data.write_bytes(data.read_bytes()[:10_000])
    with pytest.raises(InputError, match=r"external data cannot be read: tensor '[wv]' reaches"):
        read_model(path)


@pytest.mark.parametrize("location", ["../net.data", "missing.data"])
def test_data_outside_of_the_folder_are_refused(path, location):
    proto = onnx.load(path, load_external_data=False)
    (path.parent.parent / "net.data").write_bytes(bytes(100_000))
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = location if entry.key == "location" else entry.value
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="external data cannot be read"):
        read_model(path)
