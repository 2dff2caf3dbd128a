"""The whole road in a few seconds: the first thing to read, and the first thing to run."""

from pathlib import Path

import numpy as np
import pytest

from midge.convert.build import host_program
from midge.convert.compile import compile_file, read_plan
from midge.convert.executor import Executor
from midge.convert.trained import write_trained
from midge.core import Tensor, manual_seed, nn
from midge.core.errors import InputError
from midge.core.native import find_compiler
from midge.models.training import FitConfig, accuracy, fit, predict
from midge.quant.qat import prepare_qat


def bars(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy 8x8 images of a horizontal (0), a vertical (1) or no bar (2)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.5, (n, 1, 8, 8)).astype(np.float32)
    y = rng.integers(0, 3, n)
    for image, label, at in zip(x[:, 0], y, rng.integers(0, 8, n), strict=True):
        if label < 2:
            image.swapaxes(0, label)[at] += 1.5
    return x, y


def test_train_tune_quantize_compile_and_run(tmp_path: Path) -> None:
    try:
        find_compiler()
    except InputError as error:
        pytest.skip(str(error))
    train, test = bars(600, 1), bars(300, 2)

    # 1. Train in float.
    manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 3),
    )
    fit(net, train, test, FitConfig(epochs=6, lr=0.01))
    float_accuracy = accuracy(predict(net, test[0]), test[1])
    assert float_accuracy > 0.9

    # 2. Tune the same network in the very integers that will ship.
    qat = prepare_qat(net, Tensor(train[0][:2]))
    fit(qat, train, test, FitConfig(epochs=1, lr=1e-3))
    simulated = predict(qat.finalize(), test[0])
    assert accuracy(simulated, test[1]) > float_accuracy - 0.03

    # 3. Write it as ONNX, and that as C.
    onnx_file = write_trained(qat, tmp_path / "tiny.int8.onnx", "tiny").output
    compile_file(onnx_file, tmp_path / "c", "tiny")

    # 4. The simulation, the integer executor and the C program give the same bits.
    inputs = test[0][:, None]
    executed = Executor(read_plan(onnx_file, "tiny")).run_batch([inputs])[0]
    compiled = host_program(tmp_path / "c", "tiny").run(inputs.tobytes())
    assert np.array_equal(executed.reshape(simulated.shape), simulated)
    assert compiled == simulated.tobytes()
