"""midge verify: the same inputs through every engine, compared bit for bit."""

from pathlib import Path
from typing import Any

import click

from midge.cli.console import Console, short
from midge.cli.image_options import image_options, take_images
from midge.cli.options import (
    common_options,
    input_shape_option,
    input_value_option,
    model_argument,
    samples_option,
    seed_option,
)
from midge.convert.build import REQUANT_FORMS
from midge.convert.calibration_data import open_samples
from midge.convert.onnx_in import read_model
from midge.convert.verify import Check, VerifyReport, verify
from midge.core.errors import CheckError

NOTHING = "-"


@click.command("verify")
@model_argument
@samples_option(100, "How many inputs to compare.")
@click.option(
    "--data",
    metavar="DATA",
    help="Inputs as for --calib-data; by default random ones over the whole range of codes.",
)
@image_options
@click.option(
    "--requant",
    type=click.Choice(REQUANT_FORMS),
    help="Form of requantization in the C; both give the same bits.",
)
@click.option(
    "--c",
    "folder",
    type=click.Path(path_type=Path),
    help="A folder of C that was compiled before; by default it is written anew.",
)
@input_shape_option
@input_value_option
@seed_option
@common_options
def command(
    model: Path,
    samples: int,
    data: str | None,
    requant: str | None,
    folder: Path | None,
    input_shapes: dict[str, tuple[int, ...]],
    input_values: dict[str, float],
    seed: int,
    as_json: bool,
    quiet: bool,
    **preprocessing: Any,
) -> None:
    """Prove that ONNX Runtime, the integer executor and the compiled C give equal bits.

    MODEL is any .onnx file that compiles. Every output and every quantized tensor is compared,
    element by element; float32 steps of the C are held to their error bounds instead. Exit status
    1 when one differs.
    """
    console = Console(as_json, quiet)
    given: Any = None
    images = take_images(preprocessing)
    if data is None and images.given():
        raise click.UsageError(f"{', '.join(images.given())}: only with --data and its images.")
    if data is not None:
        graph = read_model(model, input_shapes, input_values=input_values)
        given = open_samples(data, graph, seed=seed, limit=samples, images=images)
    with console.working(f"Verifying {model}"):
        report = verify(
            model,
            given,
            count=samples,
            seed=seed,
            requant=requant,
            input_shapes=input_shapes,
            input_values=input_values,
            folder=folder,
        )
    for line in report.notices:
        console.notice(line)
    _show(console, report)
    console.result(report.to_json())
    if not report.holds:
        raise CheckError(_first_difference(report))


def _show(console: Console, report: VerifyReport) -> None:
    columns = ("tensor", "", ">elements", ">C differs", ">ONNX Runtime differs", ">by codes")
    console.table(columns, map(_row, report.checks))
    console.text(f"integer executor against C: {report.c_build or 'not compared'}")
    console.text(f"integer executor against ONNX Runtime: {report.level or 'not compared'}")
    console.text(
        f"{report.samples:,} samples, {report.elements:,} elements, "
        f"{report.mismatches:,} mismatches"
    )


def _row(check: Check) -> tuple[str, ...]:
    return (
        short(check.name),
        check.kind,
        f"{check.elements:,}",
        NOTHING if check.c_mismatches is None else f"{check.c_mismatches:,}",
        NOTHING if check.ort_mismatches is None else f"{check.ort_mismatches:,}",
        f"{check.largest_difference:g}",
    )


def _first_difference(report: VerifyReport) -> str:
    worst = next(check for check in report.checks if not check.holds)
    wrong = max(worst.c_mismatches or 0, worst.ort_mismatches or 0)
    engine = "the C" if worst.c_mismatches else "ONNX Runtime"
    return (
        f"{report.model}: {report.mismatches:,} mismatches; the first is in {worst.kind} "
        f"{worst.name!r}: {wrong:,} of {worst.elements:,} elements of {engine} differ from the "
        "integer executor."
    )
