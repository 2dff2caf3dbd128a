"""What `midge train` does: a recipe's network from random weights to integers."""

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from midge.cli.console import Console
from midge.cli.recipe import build, dataclass_schema, read_recipe
from midge.convert.build import host_program
from midge.convert.compile import compile_file, read_plan
from midge.convert.executor import Executor
from midge.convert.onnx_out import check_folder, write_bytes
from midge.convert.pipeline import quantize_file
from midge.convert.trained import write_float, write_trained
from midge.core import Tensor, manual_seed
from midge.core.errors import InputError, did_you_mean
from midge.models.datasets import Split, load
from midge.models.training import Epoch, FitConfig, History, accuracy, fit, predict
from midge.models.zoo import NetworkSpec
from midge.quant.qat import prepare_qat

CALIBRATION_SAMPLES = 512  # of the training samples, for the static variant
VALIDATION_SHARE = 0.1  # of the training samples; they choose the best epoch
RECIPES = Path(__file__).parent.parent / "models" / "recipes"

SCHEMA = {
    "network": True,
    "arguments": {},
    "data": True,
    "train": dataclass_schema(FitConfig),
    "qat": dataclass_schema(FitConfig),
}


@dataclass(frozen=True, slots=True)
class TrainRecipe:
    """A checked recipe.

    Args:
        network: which one, with its arguments.
        data: name of the data set.
        train: float training.
        qat: quantization-aware tuning.
    """

    network: NetworkSpec
    data: str
    train: FitConfig
    qat: FitConfig


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What training came to.

    Args:
        data: name of the data set.
        n: test samples.
        metric: "accuracy" (0..1), or "mean squared error" for networks that copy their input.
        float_score: of the float network.
        static_score: of the float network quantized after training.
        qat_score: of the tuned network as C.
        agreement: share of test samples on which float and tuned network choose the same class;
            None where they choose none.
        elements: output elements of the tuned network on the test samples.
        mismatches: of these, how many differ between the QAT simulation and the C program.
        files: what was written.
    """

    data: str
    n: int
    metric: str
    float_score: float
    static_score: float
    qat_score: float
    agreement: float | None
    elements: int
    mismatches: int
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)


def find_recipe(name: str) -> Path:
    """Return the path of a recipe: a file, or the name of one that ships with midge.

    Raises:
        InputError: there is neither.
    """
    shipped = RECIPES / f"{name}.yaml"
    if Path(name).suffix or not shipped.is_file():
        if not Path(name).is_file():
            known = sorted(p.stem for p in RECIPES.glob("*.yaml"))
            raise InputError(
                f"{name}: no such file, and no recipe of midge; those are {', '.join(known)}."
                f"{did_you_mean(name, known)}"
            )
        return Path(name)
    return shipped


def load_train_recipe(path: Path, seed: int | None = None) -> TrainRecipe:
    """Read and check a training recipe.

    Args:
        path: YAML file.
        seed: replaces the recipe's.

    Raises:
        InputError: a key or a value is at fault.
    """
    raw = read_recipe(path, SCHEMA)
    for key in ("network", "data"):
        if not isinstance(raw.get(key), str):
            raise InputError(f"{path}: key {key!r} is missing; it names the {key}.")
    configs = []
    for key in ("train", "qat"):
        values = dict(raw.get(key) or {})
        if seed is not None:
            values["seed"] = seed
        configs.append(build(FitConfig, values, f"{path}: {key}"))
    network = NetworkSpec(raw["network"], raw.get("arguments") or {})
    return TrainRecipe(network, raw["data"], *configs)


def split_validation(split: Split, seed: int) -> tuple[Any, Any]:
    """Part the training samples into (inputs, labels) to train on and to choose the epoch by."""
    order = np.random.default_rng(seed).permutation(len(split.x_train))
    held = max(1, round(VALIDATION_SHARE * len(order)))
    chosen, rest = np.sort(order[:held]), np.sort(order[held:])
    return (
        (split.x_train[rest], split.y_train[rest]),
        (split.x_train[chosen], split.y_train[chosen]),
    )


def run_training(recipe: TrainRecipe, directory: Path, console: Console) -> TrainReport:
    """Train in float, tune in integers, write both as ONNX, and prove the C equal.

    A run that was stopped goes on where the checkpoints in `directory` end.

    Args:
        recipe: what to train.
        directory: receives model.onnx, model.int8.onnx, model.static.int8.onnx, c/, calibration.npy
            and the checkpoints.
        console: shows progress.

    Raises:
        InputError: the data or a file is at fault.
    """
    check_folder(directory)
    split = load(recipe.data)
    directory.mkdir(parents=True, exist_ok=True)
    train, validation = split_validation(split, recipe.train.seed)
    manual_seed(recipe.train.seed)
    model = recipe.network.build()
    _fit(model, train, validation, recipe.train, directory / "float.ckpt", console, "float")
    logits = predict(model, split.x_test)
    example = Tensor(split.x_test[:2])
    write_float(model, example, directory / "model.onnx", recipe.network.name)

    qat = prepare_qat(model, example)
    _fit(qat, train, validation, recipe.qat, directory / "qat.ckpt", console, "int8")
    simulated = predict(qat.finalize(), split.x_test)
    name = recipe.network.name
    written = write_trained(qat, directory / "model.int8.onnx", name, seed=recipe.qat.seed)
    with console.working("Quantizing the float network, and compiling the tuned one"):
        static = _static_logits(directory, train[0], split.x_test)
        compiled = _compiled_logits(written.output, directory / "c", split.x_test)
    compiled = compiled.reshape(simulated.shape)
    classes = recipe.train.loss == "cross_entropy"
    scores = [
        accuracy(out, split.y_test) if classes else float(((out - split.x_test) ** 2).mean())
        for out in (logits, static, compiled)
    ]
    same = float((logits.argmax(axis=1) == compiled.argmax(axis=1)).mean())
    return TrainReport(
        recipe.data,
        len(split.y_test),
        "accuracy" if classes else "mean squared error",
        scores[0],
        scores[1],
        scores[2],
        same if classes else None,
        simulated.size,
        int((compiled.view(np.uint32) != simulated.view(np.uint32)).sum()),
        (str(directory / "model.onnx"), str(written.output), str(directory / "c")),
    )


def _static_logits(directory: Path, x_train: Any, x_test: Any) -> Any:
    """Quantize model.onnx on training samples and return its logits on the test samples."""
    calibration = io.BytesIO()
    np.save(calibration, x_train[:CALIBRATION_SAMPLES])
    write_bytes(directory / "calibration.npy", calibration.getvalue())
    file = directory / "model.static.int8.onnx"
    quantize_file(directory / "model.onnx", file, str(directory / "calibration.npy"))
    logits = Executor(read_plan(file, "static")).run_batch([x_test[:, None]])[0]
    return logits.reshape(len(x_test), -1)


def _compiled_logits(model: Path, directory: Path, x_test: Any) -> Any:
    """Compile a quantized file and return the C program's float32 logits on the test samples."""
    compile_file(model, directory, "model")
    raw = host_program(directory, "model", flags=("-O3",)).run(x_test.tobytes())
    return np.frombuffer(raw, np.float32)


def _fit(
    model: Any,
    train: Any,
    validation: Any,
    config: FitConfig,
    checkpoint: Path,
    console: Console,
    what: str,
) -> History:
    """Run `fit` with a progress bar over the epochs."""
    with console.working(f"Training ({what})", config.epochs) as progress:

        def show(epoch: Epoch) -> None:
            progress(epoch.index)
            if epoch.best:
                score = f"validation {epoch.score:.4f}"
                console.notice(f"{what} epoch {epoch.index}: loss {epoch.loss:.4f}, {score}")

        return fit(model, train, validation, config, checkpoint=checkpoint, progress=show)
