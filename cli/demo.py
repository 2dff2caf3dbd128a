"""The whole road as one readable function: from handwriting to C that gives the same bits."""

import io
from dataclasses import dataclass
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
from midge.core import Tensor, manual_seed, nn, no_grad, optim
from midge.core.data import DataLoader, TensorDataset
from midge.core.nn import functional as F
from midge.core.trace import trace
from midge.models.datasets import Split
from midge.models.digits import DigitsNet, load_digits
from midge.quant.qat import QATModel, prepare_qat

Array = npt.NDArray[Any]

NAME = "digits"
BATCH = 32
WEIGHT_DECAY = 0.05
CALIBRATION_SAMPLES = 256


@dataclass(frozen=True, slots=True)
class Settings:
    """How long to train, and what the result must reach.

    Args:
        epochs: of float training.
        lr: learning rate at the start; it falls to 0 along a cosine.
        qat_epochs: of quantization-aware tuning.
        qat_lr: learning rate of tuning at the start.
        float_floor: least accuracy of the float network, 0..1.
        max_drop: most that int8 may lose, 0..1.
    """

    epochs: int = 20
    lr: float = 1e-2
    qat_epochs: int = 6
    qat_lr: float = 1e-3
    float_floor: float = 0.97
    max_drop: float = 0.005


FULL = Settings()
QUICK = Settings(epochs=4, qat_epochs=1, float_floor=0.85, max_drop=0.05)


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
        directory: receives model.onnx, model.int8.onnx, model.quant.json, c/, static/ and the data.
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
    train(model, digits, settings.epochs, settings.lr, console, "Training in float")
    float_logits = predict(model, digits.x_test)
    write_float(model, Tensor(digits.x_test), directory / "model.onnx", NAME)

    with console.working("Quantizing from calibration data"):
        static = quantize_file(
            directory / "model.onnx",
            directory / "static" / "model.int8.onnx",
            str(directory / "calibration.npy"),
        )
        static_c = compile_file(static.output, directory / "static" / "c", NAME, seed=seed)

    qat = prepare_qat(model, Tensor(digits.x_train[:1]))
    train(qat, digits, settings.qat_epochs, settings.qat_lr, console, "Tuning in integers")
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
        float_logits,
        qat,
        qat_logits,
        Quantized(static, static_c),
        Quantized(tuned, tuned_c),
    )


def train(
    model: nn.Module, digits: Split, epochs: int, lr: float, console: Console, what: str
) -> None:
    """Train a module in place with AdamW and a cosine schedule; leave it in eval()."""
    samples = TensorDataset(Tensor(digits.x_train), Tensor(digits.y_train))
    loader = DataLoader(samples, batch_size=BATCH, shuffle=True, drop_last=True)
    optimizer = optim.AdamW(model.parameters(), lr=lr, weight_decay=WEIGHT_DECAY)
    schedule = optim.CosineAnnealingLR(optimizer, epochs)
    with console.working(f"{what}, {epochs} epochs", epochs) as progress:
        model.train()
        for epoch in range(epochs):
            for images, labels in loader:
                loss = F.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            schedule.step()
            progress(epoch + 1)
    model.eval()


def predict(model: nn.Module, images: Array) -> Array:
    """Return the logits of images [n, 1, 8, 8] as float32 [n, 10]."""
    with no_grad():
        return np.asarray(model(Tensor(images)).numpy())


def write_data(digits: Split, directory: Path) -> None:
    """Write calibration.npy and test.npz (x, label), so that every command can be run by hand."""
    calibration, test = io.BytesIO(), io.BytesIO()
    np.save(calibration, digits.x_train[:CALIBRATION_SAMPLES])
    np.savez(test, input=digits.x_test, label=digits.y_test)
    write_bytes(directory / "calibration.npy", calibration.getvalue())
    write_bytes(directory / "test.npz", test.getvalue())
