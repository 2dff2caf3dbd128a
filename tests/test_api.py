"""The Python interface: typed, documented, and as strict as the command line."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import midge
from midge.convert.trained import write_float
from midge.core import Tensor, manual_seed, nn

Array = np.ndarray


def images(n: int) -> Array:
    return np.random.default_rng(0).normal(size=(n, 1, 6, 6)).astype(np.float32)


@pytest.fixture(scope="module", name="model")
def float_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).eval()
    path = tmp_path_factory.mktemp("api") / "net.onnx"
    write_float(net, Tensor(images(2)), path, "net")
    return path


def test_every_public_name_exists_and_is_documented() -> None:
    assert sorted(midge.__all__) == midge.__all__
    for name in midge.__all__:
        assert name == "__version__" or getattr(midge, name).__doc__


def test_the_four_steps(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "net.int8.onnx"
    report = midge.quantize(model, out, images(50))
    assert report.samples == 50
    c = midge.compile(out, tmp_path / "c")
    assert c.name == "net"
    assert midge.verify(out, count=20).holds
    x = images(1)
    assert np.array_equal(midge.Session(out).run(x)[0], midge.Session(tmp_path / "c").run(x)[0])


def samples() -> Iterator[dict[str, Array]]:
    for image in images(20):
        yield {"input": image}


@pytest.mark.parametrize(
    "data",
    [
        images(20),
        {"input": images(20)},
        list(images(20)),
        [images(5), *np.split(images(20)[5:], 3)],
        samples,
    ],
    ids=["array", "dict", "list of samples", "list of batches", "function"],
)
def test_the_form_of_the_calibration_data_changes_nothing(
    model: Path, tmp_path: Path, data: object
) -> None:
    midge.quantize(model, tmp_path / "a.onnx", images(20))
    midge.quantize(model, tmp_path / "b.onnx", data)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_one_shot_iterator_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(midge.InputError, match="only once"):
        midge.quantize(model, tmp_path / "a.onnx", samples())
    assert not (tmp_path / "a.onnx").exists()


def test_a_misspelt_option_gets_the_nearest_name(model: Path, tmp_path: Path) -> None:
    with pytest.raises(midge.InputError, match="Did you mean 'per_channel'"):
        midge.quantize(model, tmp_path / "a.onnx", images(2), per_chanel=False)
