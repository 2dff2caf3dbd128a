"""One training loop for float and QAT models: seeded, resumable at every epoch, best kept.

Every epoch draws its order, augmentation and dropout from (seed, epoch) alone, so that a run that
was stopped and resumed ends with the same bits as one that was not.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.core import Tensor, manual_seed, nn, no_grad, optim
from midge.core.errors import InputError, did_you_mean
from midge.core.nn import functional as F
from midge.core.serialization import load, save

Array = npt.NDArray[Any]
Progress = Callable[["Epoch"], None]


@dataclass(frozen=True, slots=True)
class FitConfig:
    """How to train.

    Args:
        epochs: passes over the training samples.
        batch_size: samples a step.
        lr: initial learning rate, falling to 0 along a cosine.
        optimizer: "adam", "adamw" or "sgd" (momentum 0.9, Nesterov).
        weight_decay: as the optimizer defines it.
        loss: "cross_entropy" (targets are labels) or "mse" (targets are the inputs).
        augment: "none", "shift" (up to two pixels) or "shift-flip".
        seed: of everything random.
    """

    epochs: int = 20
    batch_size: int = 64
    lr: float = 1e-3
    optimizer: str = "adam"
    weight_decay: float = 0.0
    loss: str = "cross_entropy"
    augment: str = "none"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown words and empty runs."""
        for key, known in (("optimizer", OPTIMIZERS), ("loss", LOSSES), ("augment", AUGMENT)):
            value = getattr(self, key)
            if value not in known:
                words = ", ".join(sorted(known))
                raise InputError(
                    f"{key}: {value!r} is unknown; known: {words}.{did_you_mean(value, known)}"
                )
        if self.epochs < 1 or self.batch_size < 1 or self.lr <= 0:
            raise InputError("epochs and batch_size must be at least 1 and lr above 0.")


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one epoch came to.

    Args:
        index: from 1.
        loss: mean training loss.
        score: accuracy (0..1) on the validation samples, or minus the loss.
        best: whether it is the best so far.
    """

    index: int
    loss: float
    score: float
    best: bool


@dataclass(slots=True)
class History:
    """All epochs of a run, and the best state."""

    epochs: list[Epoch] = field(default_factory=list)
    best_state: dict[str, Tensor] = field(default_factory=dict)


def _sgd(parameters: Any, c: FitConfig) -> optim.Optimizer:
    return optim.SGD(parameters, lr=c.lr, momentum=0.9, nesterov=True, weight_decay=c.weight_decay)


OPTIMIZERS: dict[str, Callable[[Any, FitConfig], optim.Optimizer]] = {
    "adam": lambda p, c: optim.Adam(p, lr=c.lr, weight_decay=c.weight_decay),
    "adamw": lambda p, c: optim.AdamW(p, lr=c.lr, weight_decay=c.weight_decay),
    "sgd": _sgd,
}
LOSSES: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
}


def _shift(x: Array, rng: np.random.Generator) -> Array:
    """Move every image by up to two pixels each way, zeros coming in."""
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    offsets = rng.integers(0, 5, (len(x), 2))
    height, width = x.shape[2:]
    return np.stack(
        [p[:, t : t + height, k : k + width] for p, (t, k) in zip(padded, offsets, strict=True)]
    )


def _shift_flip(x: Array, rng: np.random.Generator) -> Array:
    """Shift, and mirror half of the images left to right."""
    shifted = _shift(x, rng)
    flip = rng.random(len(x)) < 0.5
    return np.where(flip[:, None, None, None], shifted[..., ::-1], shifted)


AUGMENT: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "none": lambda x, rng: x,
    "shift": _shift,
    "shift-flip": _shift_flip,
}


def batches(x: Array, y: Array, config: FitConfig, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the shuffled, augmented batches of one epoch, without a last batch of one sample."""
    rng = np.random.default_rng([config.seed, epoch])
    order = rng.permutation(len(x))
    for start in range(0, len(x), config.batch_size):
        chosen = order[start : start + config.batch_size]
        if len(chosen) < 2 and len(x) > 1:
            continue  # a batch norm has no variance over one sample
        inputs = AUGMENT[config.augment](x[chosen], rng)
        target = inputs if config.loss == "mse" else y[chosen]
        yield Tensor(np.ascontiguousarray(inputs)), Tensor(target)


def predict(model: nn.Module, x: Array, batch_size: int = 256) -> Array:
    """Return the model's outputs in eval() mode, [n, ...], without a graph."""
    was_training = model.training
    model.eval()
    with no_grad():
        parts = [model(Tensor(x[i : i + batch_size])).numpy() for i in range(0, len(x), batch_size)]
    model.train(was_training)
    return np.concatenate(parts)


def accuracy(logits: Array, y: Array) -> float:
    """Return the share of rows whose largest logit is the label's, 0..1."""
    return float((logits.argmax(axis=1) == y).mean())


def fit(
    model: nn.Module,
    train: tuple[Array, Array],
    validation: tuple[Array, Array] | None,
    config: FitConfig,
    *,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> History:
    """Train a model in place and leave it in eval() with its best (or last) state loaded.

    Args:
        model: any module; a QATModel trains the same way.
        train: float32 inputs [n, ...] and int64 labels [n].
        validation: the samples that choose the best epoch; None keeps the last one.
        config: how to train.
        checkpoint: file written after every epoch, and resumed from where it exists.
        progress: called after every epoch.

    Raises:
        InputError: the loss is not finite, or the checkpoint belongs to another configuration.
    """
    optimizer = OPTIMIZERS[config.optimizer](list(model.parameters()), config)
    schedule = optim.CosineAnnealingLR(optimizer, config.epochs)
    history = History()
    if checkpoint is not None and checkpoint.exists():
        history = _resume(checkpoint, model, optimizer, schedule, config)
    for index in range(len(history.epochs) + 1, config.epochs + 1):
        manual_seed(config.seed * 1_000_003 + index)
        loss = _epoch(model, train, optimizer, config, index)
        schedule.step()
        score = -loss if validation is None else _score(model, validation, config)
        best = validation is None or score > max((e.score for e in history.epochs), default=-inf)
        history.epochs.append(Epoch(index, loss, score, best))
        if best:
            history.best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        if checkpoint is not None:
            _save(checkpoint, model, optimizer, schedule, config, history)
        if progress is not None:
            progress(history.epochs[-1])
    model.load_state_dict(history.best_state)
    model.eval()
    return history


def _epoch(
    model: nn.Module,
    train: tuple[Array, Array],
    optimizer: optim.Optimizer,
    config: FitConfig,
    index: int,
) -> float:
    """Run one epoch and return its mean loss."""
    model.train()
    total, seen = 0.0, 0
    for x, target in batches(*train, config, index):
        loss = LOSSES[config.loss](model(x), target)
        value = loss.item()
        if not np.isfinite(value):
            raise InputError(f"epoch {index}: the loss is {value}; lower lr (now {config.lr}).")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, seen = total + value * len(x.array), seen + len(x.array)
    return total / seen


def _score(model: nn.Module, validation: tuple[Array, Array], config: FitConfig) -> float:
    """Accuracy, or minus the mean squared error."""
    out = predict(model, validation[0])
    if config.loss == "mse":
        return -float(((out - validation[0]) ** 2).mean())
    return accuracy(out, validation[1])


def _save(
    path: Path,
    model: nn.Module,
    optimizer: optim.Optimizer,
    schedule: Any,
    config: FitConfig,
    history: History,
) -> None:
    """Write everything that a resumed run needs."""
    save(
        {
            "config": asdict(config),
            "model": model.state_dict(),
            "best": history.best_state,
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "epochs": [asdict(e) for e in history.epochs],
        },
        path,
    )


def _resume(
    path: Path, model: nn.Module, optimizer: optim.Optimizer, schedule: Any, config: FitConfig
) -> History:
    """Load a checkpoint of the same configuration."""
    state = load(path)
    if state["config"] != asdict(config):
        changed = [k for k, v in asdict(config).items() if state["config"].get(k) != v]
        raise InputError(
            f"{path}: made with another {', '.join(changed)}; remove it or restore the value."
        )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    return History([Epoch(**e) for e in state["epochs"]], state["best"])
