"""Training is seeded, resumes with the same bits, and keeps its best epoch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from midge.core import manual_seed, nn
from midge.core.errors import InputError
from midge.models.training import FitConfig, accuracy, fit, predict

CONFIG = FitConfig(epochs=4, batch_size=16, lr=0.01, augment="shift-flip")


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images whose bright half tells the class."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.3, (n, 1, 6, 6)).astype(np.float32)
    y = rng.integers(0, 2, n)
    x[np.arange(n), 0, :, 0] += y[:, None]
    x[np.arange(n), 0, :, 5] += y[:, None]
    return x, y


def net() -> nn.Module:
    manual_seed(7)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(64, 2),
    )


def bits(model: nn.Module) -> list[bytes]:
    return [v.detach().numpy().tobytes() for v in model.state_dict().values()]


def test_it_learns_and_two_runs_give_the_same_bits() -> None:
    runs = []
    for _ in range(2):
        model = net()
        history = fit(model, blobs(200, 1), blobs(100, 2), CONFIG)
        runs.append(bits(model))
    assert runs[0] == runs[1]
    assert history.epochs[-1].loss < history.epochs[0].loss
    assert accuracy(predict(model, blobs(100, 3)[0]), blobs(100, 3)[1]) > 0.9


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_stopped_run_resumes_with_the_same_bits(tmp_path: Path, optimizer: str) -> None:
    config = replace(CONFIG, optimizer=optimizer)
    whole = net()
    fit(whole, blobs(100, 1), blobs(50, 2), config)

    def stop(epoch: object) -> None:
        raise KeyboardInterrupt

    checkpoint = tmp_path / "run.ckpt"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fit(net(), blobs(100, 1), blobs(50, 2), config, checkpoint=checkpoint, progress=stop)
    resumed = net()
    history = fit(resumed, blobs(100, 1), blobs(50, 2), config, checkpoint=checkpoint)
    assert len(history.epochs) == 4
    assert bits(resumed) == bits(whole)


def test_the_best_epoch_is_kept() -> None:
    model = net()
    history = fit(model, blobs(100, 1), blobs(50, 2), CONFIG)
    best = max(e.score for e in history.epochs)
    assert accuracy(predict(model, blobs(50, 2)[0]), blobs(50, 2)[1]) == best
    assert history.epochs[0].best


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.ckpt"
    short = replace(CONFIG, epochs=1)
    fit(net(), blobs(50, 1), blobs(50, 2), short, checkpoint=checkpoint)
    with pytest.raises(InputError, match="another epochs"):
        fit(net(), blobs(50, 1), blobs(50, 2), CONFIG, checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": "adamm"}, "Did you mean 'adam'"),
        ({"augment": "flip"}, "augment"),
        ({"loss": "l2"}, "known: cross_entropy, mse"),
        ({"epochs": 0}, "at least 1"),
    ],
)
def test_a_wrong_word_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        FitConfig(**change)


def test_a_diverging_run_says_what_to_lower() -> None:
    with pytest.raises(InputError, match="lower lr"), np.errstate(all="ignore"):
        fit(net(), blobs(100, 1), blobs(50, 2), replace(CONFIG, lr=1e38, optimizer="sgd"))
