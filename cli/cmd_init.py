"""midge init: a commented recipe for quantizing a model."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from midge.cli.cmd_quantize import command as quantize
from midge.cli.config import NOT_IN_CONFIG
from midge.cli.console import Console
from midge.cli.options import common_options, model_argument
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import write_bytes
from midge.core.errors import InputError

SKIPPED = NOT_IN_CONFIG | {"model", "output", "calib_data", "as_json", "quiet", "random_calib"}


@click.command("init")
@model_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write the recipe; MODEL.yaml beside the model by default.",
)
@click.option("--force", is_flag=True, help="Replace a recipe that is there already.")
@common_options
def command(model: Path, output: Path | None, force: bool, as_json: bool, quiet: bool) -> None:
    """Write a commented recipe with every option of `midge quantize`.

    Edit it, then run `midge quantize --config MODEL.yaml`.
    """
    console = Console(as_json, quiet)
    graph = read_model(model, dynamic=True)
    path = output or model.with_suffix(".yaml")
    if path.exists() and not force:
        raise InputError(f"{path} exists; give -o another name, or --force to replace it.")
    inputs = [f"{value.name} {value.dtype} {value.shape}" for value in graph.graph.inputs]
    write_bytes(path, "\n".join([*_lines(model, inputs), ""]).encode())
    console.text(f"Wrote {path}; edit it and run: midge quantize --config {path}")
    console.result({"recipe": str(path)})


def _lines(model: Path, inputs: list[str]) -> Iterator[str]:
    """Write the recipe, one line after another."""
    yield f"# midge quantize --config {model.with_suffix('.yaml').name}"
    yield f"# Inputs of the model: {'; '.join(inputs)}"
    yield ""
    yield f"model: {json.dumps(str(model))}"
    yield f"output: {json.dumps(str(model.with_suffix('.int8.onnx')))}"
    yield ""
    yield "# A .npy or .npz file, a folder of them or of images, or module:function."
    yield "calib-data: calibration.npy"
    for option in quantize.params:
        if not isinstance(option, click.Option) or option.name in SKIPPED:
            continue
        yield ""
        yield f"# {option.help}"
        if isinstance(option.type, click.Choice):
            yield f"# One of: {', '.join(map(str, option.type.choices))}"
        key = option.opts[-1].removeprefix("--")
        known = isinstance(option.default, bool | int | float | str) and not option.multiple
        yield f"#{key}: {json.dumps(option.default)}" if known else f"#{key}:"
