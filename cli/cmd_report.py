"""midge report: several models of one task, measured and put on one page."""

import tempfile
from pathlib import Path
from typing import Any

import click

from midge.cli.cmd_demo import show
from midge.cli.console import Console
from midge.cli.image_options import image_options, take_images
from midge.cli.options import common_options, output_option
from midge.cli.report import write_report
from midge.cli.report_models import report_models
from midge.convert.onnx_out import check_folder


@click.command("report")
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--data",
    required=True,
    metavar="DATA",
    help="Inputs as for --calib-data. An .npz may hold the right classes as `label`.",
)
@image_options
@output_option("the folder of index.html and report.json")
@click.option("--title", help="Heading of the page; the first model's name by default.")
@common_options
def command(
    models: tuple[Path, ...],
    data: str,
    output: Path,
    title: str | None,
    as_json: bool,
    quiet: bool,
    **preprocessing: Any,
) -> None:
    """Show accuracy against latency, RAM and flash of several models on one HTML page.

    MODELS are .onnx files with the same inputs, the float one first, then quantized ones; the C of
    those is compiled and run. Accuracy is the share of samples whose largest output stands at
    their label or, without labels, where it stands in the first model.
    """
    console = Console(as_json, quiet)
    check_folder(output)
    with console.working(f"Measuring {len(models)} models"), tempfile.TemporaryDirectory() as work:
        report = report_models(models, data, title, Path(work), take_images(preprocessing))
    page, _ = write_report(report, output)
    show(console, report)
    console.text(f"Wrote {page}")
    console.result(report.to_json())
