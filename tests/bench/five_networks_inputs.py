"""The five real networks and what goes into them, from MIDGE_MODELS and MIDGE_DATA.

Every input is real: CIFAR-10 and COCO images, spoken words, the sound of one machine. Where the
data hold fewer than 200 samples to calibrate on, the number there is stands in the report.
"""

import io
import os
import wave
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.core.errors import InputError
from midge.models.datasets import Split, cifar10, data_file

Array = npt.NDArray[Any]
CALIBRATION = 200  # samples, where there are as many
WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
UNKNOWN_WORD = 11  # the label after silence
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a network is calibrated and judged on.

    Args:
        calibration: float32 [n, *shape].
        test: float32 [m, *shape].
        labels: int [m], None where there are none.
        source: in words.
    """

    calibration: Array
    test: Array
    labels: Array | None
    source: str


@dataclass(frozen=True, slots=True)
class Network:
    """One network.

    Args:
        name: short.
        file: below MIDGE_MODELS.
        inputs: loads its data.
        measure: "accuracy", "agreement" (of the largest score with float) or "error" (relative L2).
        bar: that an accuracy or agreement must reach, None for none.
    """

    name: str
    file: str
    inputs: Callable[[], Inputs]
    measure: str
    bar: float | None

    def path(self) -> Path:
        """Return the path of the float file.

        Raises:
            InputError: MIDGE_MODELS is unset or the file is not there.
        """
        folder = os.environ.get("MIDGE_MODELS")
        path = Path(folder or "") / self.file
        if not folder or not path.is_file():
            raise InputError(f"{path}: no such file; MIDGE_MODELS must name the folder of models.")
        return path


@cache
def _cifar() -> Split:
    return cifar10()


def _cifar_inputs(form: Callable[[Array], Array], how: str) -> Inputs:
    data = _cifar()
    x = [np.ascontiguousarray(form(a)) for a in (data.x_train[:CALIBRATION], data.x_test)]
    source = f"CIFAR-10 {how}: the first {CALIBRATION} packed training images, all 2,000 of test"
    return Inputs(x[0], x[1], data.y_test, source)


def resnet8() -> Inputs:
    """NHWC images, 0..255."""
    return _cifar_inputs(lambda x: np.rint(x.transpose(0, 2, 3, 1) * np.float32(255)), "0..255")


def resnet20() -> Inputs:
    """NCHW images, normalized as in training."""
    shape = (3, 1, 1)
    return _cifar_inputs(
        lambda x: (x - MEAN.reshape(shape)) / DEVIATION.reshape(shape), "normalized"
    )


def person() -> Inputs:
    """NHWC images, 0..1; a person of less than 0.5 % of the image is no clear label."""
    with np.load(data_file("vww96_coco256.npz")) as z:
        x = {k: z[f"x_{k}"].astype(np.float32) / np.float32(255) for k in ("train", "val")}
        clear = {k: (z[f"area_{k}"] == 0) | (z[f"area_{k}"] >= 0.005) for k in x}
        labels = {k: (z[f"area_{k}"] > 0).astype(np.int64) for k in x}
    test = np.concatenate([x[k][clear[k]] for k in ("val", "train")])
    y = np.concatenate([labels[k][clear[k]] for k in ("val", "train")])
    source = f"COCO images: {len(x['train'])} of training, {len(test)} usable ones of both sets"
    return Inputs(x["train"], test, y, source)


def keywords() -> Inputs:
    """MFCC [49, 10, 1] of spoken words; of each of 30 words 2 in 3 calibrate, the rest judge."""
    features, labels, judged = [], [], []
    with zipfile.ZipFile(data_file("speech_commands_v1_mini_30x10.zip")) as archive:
        names = sorted(n for n in archive.namelist() if n.endswith(".wav"))
        for index, name in enumerate(names):
            with wave.open(io.BytesIO(archive.read(name))) as recording:
                frames = recording.readframes(recording.getnframes())
            features.append(mfcc(np.frombuffer(frames, "<i2") / 32768))
            word = Path(name).parent.name
            labels.append(WORDS.index(word) if word in WORDS else UNKNOWN_WORD)
            judged.append(index % 3 == 2)
    x, y, rest = np.stack(features)[..., None], np.array(labels), np.array(judged)
    source = f"Speech Commands: {(~rest).sum()} clips, {rest.sum()} others to judge"
    return Inputs(x[~rest][:CALIBRATION], x[rest], y[rest], source)


def mfcc(sound: Array, rate: int = 16000) -> Array:
    """Return 49 frames of 10 mel-frequency cepstral coefficients, float32, of one second.

    Source: MLPerf Tiny keyword spotting, get_dataset.py (tf.signal with its default arguments).
    """
    x = np.zeros(rate)
    x[: len(sound)] = sound[:rate]
    x /= max(np.abs(x).max(), 1e-9)
    windows = x[np.arange(49)[:, None] * 320 + np.arange(480)]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(480) / 480)
    spectrum = np.abs(np.fft.rfft(windows * hann, 512))
    mel = 1127.0 * np.log1p(np.linspace(0, rate / 2, 257) / 700.0)
    edges = np.linspace(*(1127.0 * np.log1p(np.array([20.0, 4000.0]) / 700.0)), 42)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    slopes = np.minimum((mel - left) / (centre - left), (right - mel) / (right - centre))
    energies = np.log(spectrum @ np.maximum(slopes, 0.0).T + 1e-6)
    cosines = np.cos(np.pi / 40 * np.outer(np.arange(40) + 0.5, np.arange(10)))
    return (energies @ cosines * np.sqrt(2 / 40)).astype(np.float32)


def machine() -> Inputs:
    """Windows of 5 frames of 128 mel bands, from one real recording of 200 frames.

    The first half calibrates, with noise of 1 dB added for more samples; the second half judges.
    """
    file = Path(os.environ["MIDGE_MODELS"]) / "mlperf_tiny/ad01_one_sample_normal_f32_640.bin"
    frames = np.fromfile(file, np.float32).reshape(-1, 128)
    windows = [
        np.stack([part[i : i + 5].reshape(-1) for i in range(len(part) - 4)])
        for part in np.split(frames, 2)
    ]
    rng = np.random.default_rng(0)
    noisy = np.resize(windows[0], (CALIBRATION - len(windows[0]), 640))
    noisy = noisy + rng.standard_normal(noisy.shape).astype(np.float32)
    source = f"one recording: {len(windows[0])} windows and {len(noisy)} noisy ones, "
    source += f"{len(windows[1])} later ones to judge"
    return Inputs(np.concatenate([windows[0], noisy]), windows[1], None, source)


NETWORKS = (
    Network("ResNet-8", "mlperf_tiny/ic01_resnet8_fp32.onnx", resnet8, "accuracy", 0.866),
    Network("ResNet-20", "cifar10/resnet20_fp32.onnx", resnet20, "accuracy", 0.913),
    Network("DS-CNN", "mlperf_tiny/kws01_dscnn_fp32.onnx", keywords, "agreement", None),
    Network("VWW", "mlperf_tiny/vww_mnv1_025_96_fp32.onnx", person, "agreement", 0.97),
    Network("autoencoder", "mlperf_tiny/ad01_autoencoder_fp32.onnx", machine, "error", None),
)
