"""Data sets that the recipes train on, read from the folder that MIDGE_DATA names.

Nothing here downloads. Every loader returns float32 inputs in the layout of the networks, scaled as
its docstring says, and int64 labels.
"""

import io
import os
import wave
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.core.errors import InputError, did_you_mean
from midge.models.features import log_mel

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Split:
    """Training and test samples.

    Args:
        x_train: float32 [n, ...].
        y_train: int64 [n].
        x_test: float32 [m, ...].
        y_test: int64 [m].
        classes: their names, in the order of the labels.
    """

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: tuple[str, ...]


def data_file(name: str) -> Path:
    """Return the path of a data file.

    Raises:
        InputError: MIDGE_DATA is unset or the file is not there.
    """
    folder = os.environ.get("MIDGE_DATA")
    if not folder:
        raise InputError(f"{name}: MIDGE_DATA is not set; set it to the folder that holds it.")
    path = Path(folder) / name
    if not path.is_file():
        raise InputError(f"{path}: no such file; MIDGE_DATA must name the folder that holds it.")
    return path


def cifar10() -> Split:
    """CIFAR-10 subset: 5,000 training and 2,000 test images, [n, 3, 32, 32] in 0..1.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("cifar10: Pillow is missing; pip install 'midge[images]'.") from error
    with zipfile.ZipFile(data_file("cifar10_subset.zip")) as archive:

        def tiles(name: str) -> Array:
            with Image.open(io.BytesIO(archive.read(name))) as image:
                mosaic = np.asarray(image.convert("RGB"))
            rows, columns = mosaic.shape[0] // 32, mosaic.shape[1] // 32
            grid = mosaic.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 4, 1, 3)
            return grid.reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255)

        labels = np.load(io.BytesIO(archive.read("labels.npz")))
        y_train, y_test = labels["y_train"].astype(np.int64), labels["y_test"].astype(np.int64)
        names = tuple(str(c) for c in labels["classes"])
        return Split(tiles("train.webp"), y_train, tiles("test.webp"), y_test, names)


def fashion_mnist() -> Split:
    """Fashion-MNIST subset: 10,000 training and 2,000 test images, [n, 1, 28, 28] in 0..1.

    Source: Xiao, Rasul, Vollgraf, "Fashion-MNIST", 2017.
    """
    with np.load(data_file("fashion_mnist_subset.npz")) as z:
        x = [z[k][:, None].astype(np.float32) / np.float32(255) for k in ("x_train", "x_test")]
        y = [z[k].astype(np.int64) for k in ("y_train", "y_test")]
    names = "T-shirt Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Boot"
    return Split(x[0], y[0], x[1], y[1], tuple(names.split()))


def uci_har() -> Split:
    """UCI HAR: windows of accelerometer and gyroscope, [n, 9, 1, 128]; test subjects are new.

    Source: Anguita et al., "A Public Domain Dataset for Human Activity Recognition Using
    Smartphones", 2013.
    """
    with np.load(data_file("uci_har_9ch.npz")) as z:

        def windows(key: str) -> Array:
            moved = z[key].astype(np.float32).transpose(0, 2, 1)[:, :, None, :]
            return np.ascontiguousarray(moved)

        y = [z[k].astype(np.int64) for k in ("y_train", "y_test")]
        names = tuple(str(c) for c in z["classes"])
        return Split(windows("x_train"), y[0], windows("x_test"), y[1], names)


def uci_har_walking() -> Split:
    """UCI HAR: windows of walking for training, of everything for testing, flat [n, 1152].

    For networks that learn what is normal by copying it.
    """
    har = uci_har()
    flat = [x.reshape(len(x), -1) for x in (har.x_train, har.x_test)]
    walking = har.y_train == har.classes.index("WALKING")
    return Split(flat[0][walking], har.y_train[walking], flat[1], har.y_test, har.classes)


def _spoken_digits(held_out: Callable[[str, int], bool]) -> Split:
    """Log-mel spectrograms [n, 1, 48, 40] of FSDD; `held_out(speaker, index)` makes the test."""
    parts: dict[bool, tuple[list[Array], list[int]]] = {False: ([], []), True: ([], [])}
    with zipfile.ZipFile(data_file("fsdd.zip")) as archive:
        for name in sorted(n for n in archive.namelist() if n.endswith(".wav")):
            digit, speaker, index = Path(name).stem.split("_")
            with wave.open(io.BytesIO(archive.read(name))) as recording:
                rate = recording.getframerate()
                samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
            spectrogram = log_mel(samples / 32768.0, rate, frames=48, bands=40)
            x, y = parts[held_out(speaker, int(index))]
            x.append(spectrogram[None])
            y.append(int(digit))
    x_train, x_test = (np.stack(parts[k][0]) for k in (False, True))
    mean, std = x_train.mean(), x_train.std()
    scaled = [((x - mean) / std).astype(np.float32) for x in (x_train, x_test)]
    labels = [np.array(parts[k][1], np.int64) for k in (False, True)]
    return Split(scaled[0], labels[0], scaled[1], labels[1], tuple("0123456789"))


def fsdd() -> Split:
    """Free Spoken Digit, official test (recordings 0-4 of each speaker and digit, n = 300).

    Source: Jackson et al., "Free Spoken Digit Dataset", version 1.0.10.
    """
    return _spoken_digits(lambda speaker, index: index < 5)


def fsdd_new_speaker() -> Split:
    """Free Spoken Digit, tested on a speaker that training never heard (theo, n = 500)."""
    return _spoken_digits(lambda speaker, index: speaker == "theo")


LOADERS: dict[str, Callable[[], Split]] = {
    "cifar10": cifar10,
    "fashion-mnist": fashion_mnist,
    "fsdd": fsdd,
    "fsdd-new-speaker": fsdd_new_speaker,
    "uci-har": uci_har,
    "uci-har-walking": uci_har_walking,
}


def load(name: str) -> Split:
    """Return a data set by name.

    Raises:
        InputError: the name is unknown or its file is missing.
    """
    if name not in LOADERS:
        known = ", ".join(sorted(LOADERS))
        raise InputError(
            f"data set {name!r} is unknown; known: {known}.{did_you_mean(name, LOADERS)}"
        )
    return LOADERS[name]()
