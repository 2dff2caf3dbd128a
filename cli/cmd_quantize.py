"""midge quantize: a float ONNX file to INT8, from calibration data."""

from pathlib import Path
from typing import Any

import click

from midge.cli.console import Console
from midge.cli.coverage import show_coverage
from midge.cli.image_options import image_options, take_images
from midge.cli.options import (
    calibration_options,
    common_options,
    drop_softmax_option,
    input_shape_option,
    input_value_option,
    model_argument,
    names_option,
    output_option,
    samples_option,
    seed_option,
)
from midge.convert.calibrate import METHODS
from midge.convert.calibration_data import RANDOM
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.quantize_report import MODES, STATIC

IO_TYPES = ("float32", "int8", "uint8")
ACTIVATION_TYPES = ("uint8", "int8")


def calibration_spec(calib_data: str | None, random_calib: bool) -> str:
    """Return the data to calibrate on; exactly one of both options must be given."""
    if calib_data and random_calib:
        raise click.UsageError("--calib-data and --random-calib exclude each other.")
    if random_calib:
        return RANDOM
    if not calib_data:
        raise click.UsageError(
            "No calibration data. Give --calib-data DATA with some of the inputs that the model "
            "will see; --random-calib is for a dry run."
        )
    return calib_data


def calibration_spec_of(mode: str, calib_data: str | None, random_calib: bool) -> str | None:
    """Return the data to calibrate on; only static quantization takes any."""
    if mode == STATIC:
        return calibration_spec(calib_data, random_calib)
    if random_calib:
        raise click.UsageError(
            f"--mode {mode} takes no calibration data; leave --random-calib out."
        )
    return calib_data


@click.command("quantize")
@model_argument
@output_option("the quantized .onnx file; its parameters go beside it as .quant.json")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=STATIC,
    show_default=True,
    help="static: scales from calibration data. dynamic: activations are quantized at run time. "
    "weight-only: int8 weights, float arithmetic.",
)
@calibration_options
@image_options
@samples_option(None, "Most calibration samples to take; all by default.")
@click.option(
    "--calibration-method",
    type=click.Choice(sorted(METHODS)),
    default="minmax",
    show_default=True,
    help="How ranges follow from the data.",
)
@click.option(
    "--per-channel/--per-tensor",
    default=True,
    show_default=True,
    help="One weight scale for each output channel, or one for all.",
)
@click.option(
    "--reduce-range",
    is_flag=True,
    help="7-bit weights: no sum saturates in ONNX Runtime on x86 without VNNI. The C needs none.",
)
@click.option(
    "--io-type",
    type=click.Choice(IO_TYPES),
    default="float32",
    show_default=True,
    help="Type of the file's inputs and outputs.",
)
@click.option(
    "--activation-type",
    type=click.Choice(ACTIVATION_TYPES),
    default="uint8",
    show_default=True,
    help="Type of activations in the file; the arithmetic is the same.",
)
@names_option("--nodes-to-exclude", "Nodes that stay in float. Repeatable.")
@names_option("--op-types-to-quantize", "The only operators to quantize. Repeatable.")
@click.option(
    "--drop-dead-channels/--keep-dead-channels",
    "dead_channels",
    default=True,
    show_default=True,
    help="Leave out channels that change no bit of the outputs, or keep them.",
)
@drop_softmax_option
@click.option(
    "--strict",
    is_flag=True,
    help="Write nothing and exit 1 when a node stays in float unasked or a range collapsed.",
)
@click.option("--skip-bad-samples", is_flag=True, help="Leave samples with NaN or Inf out.")
@input_shape_option
@input_value_option
@seed_option
@common_options
def command(
    model: Path,
    output: Path,
    calib_data: str | None,
    random_calib: bool,
    op_types_to_quantize: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Quantize a float ONNX file to INT8.

    MODEL is any float .onnx file; OUTPUT runs in ONNX Runtime and compiles with `midge compile`.
    """
    console = Console(as_json, quiet)
    spec = calibration_spec_of(options["mode"], calib_data, random_calib)
    options["images"] = take_images(options)
    chosen = QuantizeOptions(op_types_to_quantize=op_types_to_quantize or None, **options)
    doing = "Calibrating" if spec else "Quantizing"
    with console.working(f"{doing} {model}", chosen.samples) as progress:
        report = quantize_file(model, output, spec, chosen, progress=progress)
    for line in report.notices:
        console.notice(line)
    show_coverage(console, report.coverage)
    states = ", ".join(f"{n} {state}" for state, n in report.counts.items() if n)
    data = f"; {report.samples} calibration samples" if spec else ""
    console.text(f"{report.output}: {states}{data}")
    if report.saturation.pairs:
        console.text(report.saturation.summary())
    console.text(f"{report.parameters}: scales, hashes{', seed' if spec else ''}")
    console.result(report.to_json())
