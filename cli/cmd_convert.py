"""midge convert: any ONNX file to a canonical one."""

from pathlib import Path

import click

from midge.cli.console import Console
from midge.cli.coverage import show_coverage
from midge.cli.options import (
    common_options,
    drop_softmax_option,
    input_shape_option,
    input_value_option,
    model_argument,
    output_option,
)
from midge.convert.pipeline import convert_file


@click.command("convert")
@model_argument
@output_option("the canonical .onnx file")
@input_shape_option
@input_value_option
@drop_softmax_option
@common_options
def command(
    model: Path,
    output: Path,
    input_shapes: dict[str, tuple[int, ...]],
    input_values: dict[str, float],
    drop_softmax: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fold constants and batch norms, and spell operators in one way: ONNX to ONNX.

    MODEL is any float .onnx file. The result computes the same function, keeps the names, types and
    shapes of inputs and outputs, and is checked and run once before it appears.
    """
    console = Console(as_json, quiet)
    with console.working(f"Converting {model}"):
        report = convert_file(model, output, input_shapes, input_values, drop_softmax=drop_softmax)
    for line in report.notices:
        console.notice(line)
    folded = [c for c in report.coverage if c.state == "folded"]
    show_coverage(console, folded)
    console.text(f"{report.output}: {len(folded)} nodes folded")
    console.result(
        {
            "output": str(report.output),
            "coverage": [c.to_json() for c in report.coverage],
            "notices": report.notices,
        }
    )
