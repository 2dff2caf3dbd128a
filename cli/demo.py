"""The whole road as one readable function: from handwriting to C that gives the same bits."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.cli.console import Console
from midge.convert.canonical import canonicalize
from midge.convert.compile import CompileReport, compile_file
from midge.convert.from_trace import trace_to_onnx
from midge.convert.onnx_out import write_bytes
from midge.convert.pipeline import QuantizeReport, quantize_file
from midge.convert.trained import write_float, write_trained
from midge.core import Tensor, manual_seed, nn
from midge.core.trace import trace
from midge.models.datasets import Split
from midge.models.digits import DigitsNet, load_digits
from midge.models.training import FitConfig, fit, predict
from midge.quant.qat import QATModel, prepare_qat

Array = npt.NDArray[Any]

NAME = "digits"
CALIBRATION_SAMPLES = 256
TRAIN = FitConfig(epochs=20, batch_size=32, lr=1e-2, optimizer="adamw", weight_decay=0.05)
QAT = replace(TRAIN, epochs=6, lr=1e-3)


@dataclass(frozen=True, slots=True)
class Settings:
    """How long to train, and what the result must reach.

    Args:
        train: float training.
        qat: quantization-aware tuning.
        float_floor: least accuracy of the float network, 0..1.
        max_drop: most that int8 may lose, 0..1.
    """

    train: FitConfig = TRAIN
    qat: FitConfig = QAT
    float_floor: float = 0.97
    max_drop: float = 0.005


FULL = Settings()
QUICK = Settings(replace(TRAIN, epochs=4), replace(QAT, epochs=1), 0.85, 0.05)


@dataclass(frozen=True, slots=True)
class Quantized:
    """One int8 variant: its ONNX file and its C."""

    onnx: QuantizeReport
    c: CompileReport


@dataclass(frozen=True, slots=True)
class Road:
    """What the road led to.

    Args:
        directory: holds every file.
        digits: the data.
        model: the float network, with the weights of the end of tuning.
        tuned_float: its canonical graph, with the names of the quantized one.
        float_c: C of the float network.
        float_logits: of the test images, before tuning.
        qat: the tuned integer twin.
        qat_logits: of the test images.
        static: quantized after training, from calibration data.
        tuned: quantized by training; the one that is shipped.
    """

    directory: Path
    digits: Split
    model: nn.Module
    tuned_float: ir.Model
    float_c: CompileReport
    float_logits: Array
    qat: QATModel
    qat_logits: Array
    static: Quantized
    tuned: Quantized

    @property
    def float_file(self) -> Path:
        """The float ONNX file."""
        return self.directory / "model.onnx"


def travel(directory: Path, settings: Settings, seed: int, console: Console) -> Road:
    """Train, tune, quantize and compile a network for handwritten digits.

    Args:
        directory: receives model.onnx, model.int8.onnx, model.quant.json, c/, static/, float/
            and the data.
        settings: how long to train.
        seed: of the split, the initial weights and the order of samples.
        console: shows progress.

    Raises:
        InputError: scikit-learn is missing, or the directory cannot be written.
        CheckError: the compiled C fails its golden test.
    """
    digits = load_digits(seed)
    write_data(digits, directory)

    manual_seed(seed)
    model = DigitsNet()
    train(model, digits, replace(settings.train, seed=seed), console, "Training in float")
    float_logits = predict(model, digits.x_test)
    write_float(model, Tensor(digits.x_test), directory / "model.onnx", NAME)

    float_c = compile_file(directory / "model.onnx", directory / "float" / "c", NAME, seed=seed)

    with console.working("Quantizing from calibration data"):
        static = quantize_file(
            directory / "model.onnx",
            directory / "static" / "model.int8.onnx",
            str(directory / "calibration.npy"),
        )
        static_c = compile_file(static.output, directory / "static" / "c", NAME, seed=seed)

    qat = prepare_qat(model, Tensor(digits.x_train[:1]))
    train(qat, digits, replace(settings.qat, seed=seed), console, "Tuning in integers")
    qat.finalize()
    qat_logits = predict(qat, digits.x_test)
    tuned = write_trained(qat, directory / "model.int8.onnx", NAME, seed=seed)
    with console.working("Compiling to C"):
        tuned_c = compile_file(tuned.output, directory / "c", NAME, seed=seed)

    tuned_float = trace_to_onnx(trace(model, Tensor(digits.x_test)), NAME)
    canonicalize(tuned_float)
    return Road(
        directory,
        digits,
        model,
        tuned_float,
        float_c,
        float_logits,
        qat,
        qat_logits,
        Quantized(static, static_c),
        Quantized(tuned, tuned_c),
    )


def train(model: nn.Module, digits: Split, config: FitConfig, console: Console, what: str) -> None:
    """Train a module in place on all training images, with progress over the epochs."""
    with console.working(f"{what}, {config.epochs} epochs", config.epochs) as progress:
        fit(
            model,
            (digits.x_train, digits.y_train),
            None,
            config,
            progress=lambda epoch: progress(epoch.index),
        )


def write_data(digits: Split, directory: Path) -> None:
    """Write calibration.npy and test.npz (x, label), so that every command can be run by hand."""
    calibration, test = io.BytesIO(), io.BytesIO()
    np.save(calibration, digits.x_train[:CALIBRATION_SAMPLES])
    np.savez(test, input=digits.x_test, label=digits.y_test)
    write_bytes(directory / "calibration.npy", calibration.getvalue())
    write_bytes(directory / "test.npz", test.getvalue())
