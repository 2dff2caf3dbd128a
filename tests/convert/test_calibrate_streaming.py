"""Every method streams: constant memory, and the same bytes for any batching and order."""

import tracemalloc

import numpy as np
import onnx
import pytest

from midge.convert.calibrate import METHODS, calibrate
from midge.convert.calibration_data import InMemory, open_samples
from midge.convert.onnx_out import to_proto
from midge.convert.pipeline import QuantizeOptions, quantize_file

rng = np.random.default_rng(8)
NET = "(float[N,3,16,16] x) => (float[N,4,14,14] y) { c = Conv(x, w) y = Relu(c) }"
WEIGHTS = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
DATA = rng.standard_normal((12, 3, 16, 16)).astype(np.float32)
ORDER = np.array([7, 1, 11, 0, 4, 9, 2, 10, 3, 8, 6, 5])


@pytest.mark.parametrize("method", METHODS)
def test_batches_and_order_change_no_byte(method, build, tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(to_proto(build(NET, w=WEIGHTS)), path)
    options = QuantizeOptions(calibration_method=method)
    made = []
    for name, order, cuts in (
        ("whole", np.arange(12), []),
        ("single", np.arange(12), range(1, 12)),
        ("batches", ORDER, [1, 6, 8]),
        ("halves", ORDER[::-1], [6]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for index, part in enumerate(np.split(DATA[order], cuts)):
            np.save(folder / f"{index:02}.npy", part)
        out = tmp_path / f"{name}.int8.onnx"
        quantize_file(path, out, str(folder), options)
        record = (tmp_path / f"{name}.quant.json").read_text()
        made.append((out.read_bytes(), record.replace(out.name, "")))
    assert all(one == made[0] for one in made)


def peak_bytes(model, method, count):
    """Peak of Python's and NumPy's memory while `count` samples are made and observed."""

    def rows():
        noise = np.random.default_rng(0)
        for _ in range(count):
            yield noise.standard_normal((1, 3, 16, 16)).astype(np.float32)

    tracemalloc.start()
    try:
        calibrate(model, open_samples(InMemory(rows), model), method)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", METHODS)
def test_memory_does_not_grow_with_the_number_of_samples(method, build):
    model = build(NET, w=WEIGHTS)
    peak_bytes(model, method, 2)  # what the first run of all imports
    few, many = (peak_bytes(model, method, n) for n in (100, 400))
    assert many < few + 200_000  # 300 samples of the input alone are 921,600 bytes
