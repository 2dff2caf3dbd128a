"""--config sets options by their own names; the command line wins."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from midge.cli.config import keys
from midge.cli.options import common_options, input_shape_option, names_option
from midge.core.errors import InputError


@click.command("demo")
@click.argument("model")
@click.option("--calib-data")
@click.option("--samples", type=int, default=1)
@click.option("--per-channel/--per-tensor", default=True)
@click.option("-o", "--output", required=True)
@names_option("--nodes-to-exclude", "Names.")
@input_shape_option
@common_options
def command(**values: Any) -> None:
    click.echo(json.dumps(values))


def run(folder: Path, text: str, *arguments: str) -> Any:
    path = folder / "c.yaml"
    path.write_text(text)
    result = CliRunner().invoke(command, ["--config", str(path), *arguments])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


FULL = """
model: net.onnx
output: out.onnx
calib-data: data.npy
samples: 20
per-tensor: true
nodes-to-exclude: [a, b]
input-shape:
  x: [1, 3, 8, 8]
"""


def test_every_option_can_stand_in_the_file(tmp_path: Path) -> None:
    got = run(tmp_path, FULL)
    assert got["model"] == "net.onnx"
    assert got["output"] == "out.onnx"
    assert got["samples"] == 20
    assert got["per_channel"] is False
    assert got["nodes_to_exclude"] == ["a", "b"]
    assert got["input_shapes"] == {"x": [1, 3, 8, 8]}


def test_the_command_line_wins(tmp_path: Path) -> None:
    got = run(tmp_path, FULL, "--samples", "5", "--per-channel", "other.onnx")
    assert got["samples"] == 5
    assert got["per_channel"] is True
    assert got["model"] == "other.onnx"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: a\noutput: b\nsample: 3\n", "line 3: key 'sample' is unknown. Did you mean"),
        ("model: a\noutput: b\ndebug: true\n", "line 3: key 'debug' is unknown"),
        ("model: a\noutput: b\nsamples: true\n", "'samples' takes a value"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, text)
    assert words in str(caught.value)


def test_keys_are_spelt_as_the_options() -> None:
    assert {"calib-data", "per-channel", "per-tensor", "output", "model"} <= set(keys(command))


def test_an_input_may_have_a_name_that_yaml_takes_for_a_truth(tmp_path: Path) -> None:
    values = run(tmp_path, "model: net.onnx\noutput: q.onnx\ninput-shape: {on: [1, 3], 7: [2]}\n")
    assert values["input_shapes"] == {"on": [1, 3], "7": [2]}


def test_the_number_one_is_a_value_and_not_a_yes(tmp_path: Path) -> None:
    values = run(tmp_path, "model: net.onnx\noutput: q.onnx\nsamples: 1\n")
    assert values["samples"] == 1
