"""Session runs the C build in this process, through midge.h alone."""

from pathlib import Path

import numpy as np
import pytest

from midge.convert.compile import compile_file, read_plan
from midge.convert.executor import Executor
from midge.convert.session import Session
from midge.convert.trained import write_trained
from midge.core import Tensor, manual_seed, nn
from midge.core.errors import InputError
from midge.quant.qat import prepare_qat


@pytest.fixture(scope="module", name="model")
def quantized_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(100, 3), nn.Softmax(1)
    )
    x = Tensor(np.random.default_rng(0).normal(size=(8, 2, 5, 5)).astype(np.float32))
    qat = prepare_qat(net, x)
    qat(x)
    path = tmp_path_factory.mktemp("session") / "net.int8.onnx"
    write_trained(qat.finalize(), path, "net")
    return path


def test_it_gives_the_executor_s_bits(model: Path) -> None:
    session = Session(model)
    executor = Executor(read_plan(model, "net"))
    rng = np.random.default_rng(1)
    for _ in range(20):
        x = rng.normal(size=(1, 2, 5, 5)).astype(np.float32)
        assert np.array_equal(session.run(x)[0], executor.run([x])[0])
    assert session.inputs == (("input", (1, 2, 5, 5), "float32"),)
    assert session.outputs == (("output", (1, 3), "float32"),)


def test_it_opens_a_compiled_folder(model: Path, tmp_path: Path) -> None:
    compile_file(model, tmp_path / "c", "net")
    x = np.ones((1, 2, 5, 5), np.float32)
    assert np.array_equal(Session(tmp_path / "c").run(x)[0], Session(model).run(x)[0])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ((), "takes 1 inputs, not 0"),
        ((np.ones((1, 2, 5, 5)),), "got float64"),
        ((np.ones((2, 5, 5), np.float32),), r"float32\[1, 2, 5, 5\]"),
    ],
)
def test_a_wrong_input_is_named(model: Path, arrays: tuple[np.ndarray, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Session(model).run(*arrays)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="midge compile"):
        Session(tmp_path)
