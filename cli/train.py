"""What `midge train` does: a recipe's network from random weights to integers."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from midge.cli.console import Console
from midge.cli.recipe import build, dataclass_schema, read_recipe
from midge.convert.trained import write_float, write_trained
from midge.core import Tensor, manual_seed
from midge.core.errors import InputError
from midge.models.datasets import Split, load
from midge.models.training import Epoch, FitConfig, History, accuracy, fit, predict
from midge.models.zoo import NetworkSpec
from midge.quant.qat import prepare_qat

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
        float_accuracy: of the float network, 0..1.
        qat_accuracy: of its quantized twin, 0..1.
        agreement: share of test samples on which both choose the same class.
        files: what was written.
    """

    data: str
    n: int
    float_accuracy: float
    qat_accuracy: float
    agreement: float
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
            known = ", ".join(sorted(p.stem for p in RECIPES.glob("*.yaml")))
            raise InputError(f"{name}: no such file, and no recipe of midge; those are {known}.")
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
    """Train in float, tune in integers, and write both as ONNX.

    A run that was stopped goes on where the checkpoints in `directory` end.

    Args:
        recipe: what to train.
        directory: receives model.onnx, model.int8.onnx, model.quant.json and the checkpoints.
        console: shows progress.

    Raises:
        InputError: the data or a file is at fault.
    """
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
    integers = predict(qat.finalize(), split.x_test)
    name = recipe.network.name
    written = write_trained(qat, directory / "model.int8.onnx", name, seed=recipe.qat.seed)
    return TrainReport(
        recipe.data,
        len(split.y_test),
        accuracy(logits, split.y_test),
        accuracy(integers, split.y_test),
        float((logits.argmax(axis=1) == integers.argmax(axis=1)).mean()),
        (str(directory / "model.onnx"), str(written.output), str(written.parameters)),
    )


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
