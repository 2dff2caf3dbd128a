"""Data sets come from MIDGE_DATA or are refused by name."""

import os
from pathlib import Path

import numpy as np
import pytest

from midge.core.errors import InputError
from midge.models import datasets
from midge.models.features import log_mel, mel_filters


def test_an_unset_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MIDGE_DATA", raising=False)
    with pytest.raises(InputError, match="MIDGE_DATA is not set"):
        datasets.load("uci-har")
    monkeypatch.setenv("MIDGE_DATA", str(tmp_path))
    with pytest.raises(InputError, match="no such file"):
        datasets.load("uci-har")


def test_an_unknown_data_set_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match="Did you mean 'cifar10'"):
        datasets.load("cifar-10")


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("cifar10", (5000, 3, 32, 32), (2000, 3, 32, 32)),
        ("fashion-mnist", (10000, 1, 28, 28), (2000, 1, 28, 28)),
        ("uci-har", (7226, 9, 1, 128), (2893, 9, 1, 128)),
        ("uci-har-walking", (1205, 1152), (2893, 1152)),
        ("fsdd", (2700, 1, 48, 40), (300, 1, 48, 40)),
        ("fsdd-new-speaker", (2500, 1, 48, 40), (500, 1, 48, 40)),
    ],
)
def test_shapes_are_those_of_the_networks(
    name: str, train: tuple[int, ...], test: tuple[int, ...]
) -> None:
    if not os.environ.get("MIDGE_DATA"):
        pytest.skip("MIDGE_DATA is not set")
    split = datasets.load(name)
    assert split.x_train.shape == train
    assert split.x_test.shape == test
    assert split.x_train.dtype == np.float32
    assert set(np.unique(split.y_test)) == set(range(len(split.classes)))


def test_mel_filters_share_every_frequency_between_neighbours() -> None:
    filters = mel_filters(20, 512, 16000, 50, 8000)
    inner = filters[:, 30:200].sum(axis=0)
    assert np.allclose(inner, 1.0)


def test_a_tone_lights_the_band_of_its_frequency() -> None:
    t = np.arange(8000) / 8000
    low, high = (log_mel(np.sin(2 * np.pi * f * t), 8000, 20, 30).mean(axis=0) for f in (300, 3000))
    assert low.argmax() < 10 < 20 < high.argmax()


def test_short_and_long_sounds_have_the_same_shape() -> None:
    for n in (0, 10, 100_000):
        spectrogram = log_mel(np.zeros(n), 8000, 48, 40)
        assert spectrogram.shape == (48, 40)
        assert np.allclose(spectrogram, np.log(1e-6))
