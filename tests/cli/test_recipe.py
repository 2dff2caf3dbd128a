"""A recipe's fault is named with its line."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from midge.cli.recipe import build, dataclass_schema, read_recipe
from midge.core.errors import InputError

SCHEMA = {"network": True, "train": {"epochs": True, "lr": True}}


def recipe(folder: Path, text: str) -> Path:
    path = folder / "r.yaml"
    path.write_text(text)
    return path


def test_a_good_recipe_comes_back_as_it_stands(tmp_path: Path) -> None:
    path = recipe(tmp_path, "network: resnet8\ntrain: {epochs: 3, lr: 0.1}\n")
    assert read_recipe(path, SCHEMA) == {"network": "resnet8", "train": {"epochs": 3, "lr": 0.1}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("network: a\ntrian: {}\n", "line 2: key 'trian' is unknown. Did you mean 'train'"),
        ("network: a\ntrain:\n  epoch: 3\n", "line 3: key 'train.epoch' is unknown."),
        ("network: a\nnetwork: b\n", "line 2: key 'network' stands twice"),
        ("train: 3\n", "line 1: 'train' takes keys"),
        ("network: [a\n", "line 2"),
        ("just words", "key: value"),
        ("[" * 5000, "nested too deep"),
    ],
)
def test_a_fault_names_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=r"r\.yaml") as caught:
        read_recipe(recipe(tmp_path, text), SCHEMA)
    assert words in str(caught.value)


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_recipe(tmp_path / "none.yaml", SCHEMA)


@dataclass(frozen=True)
class Options:
    epochs: int = 3
    lr: float = 0.1
    name: str = "x"


def test_values_take_the_type_of_the_default() -> None:
    assert set(dataclass_schema(Options)) == {"epochs", "lr", "name"}
    assert build(Options, {"lr": 1}, "train") == Options(lr=1.0)
    for bad in ({"epochs": "three"}, {"epochs": 1.5}, {"epochs": True}, {"name": 3}):
        with pytest.raises(InputError, match=r"train\."):
            build(Options, bad, "train")
