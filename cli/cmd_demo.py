"""midge demo: the whole road on real handwriting."""

import shlex
import sys
from pathlib import Path

import click

from midge.cli.console import Console
from midge.cli.options import common_options, seed_option
from midge.cli.report import Report, Variant, write_report
from midge.cli.report_html import microseconds

NOTHING = "-"


@click.command("demo")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("midge-demo"),
    show_default=True,
    help="Folder for every file of the road.",
)
@click.option("--quick", is_flag=True, help="Train for a few epochs only, with lower gates.")
@seed_option
@common_options
def command(output: Path, quick: bool, seed: int, as_json: bool, quiet: bool) -> None:
    """Train, tune, quantize, compile and verify a network for handwritten digits.

    The data are scikit-learn's 1,797 images. Exit status 1 when one output bit differs between
    the engines or an accuracy misses its gate.
    """
    from midge.cli import demo, demo_report

    console = Console(as_json, quiet)
    settings = demo.QUICK if quick else demo.FULL
    road = demo.travel(output, settings, seed, console)
    with console.working("Measuring on every engine"):
        report = demo_report.build_report(road, seed, f"midge {shlex.join(sys.argv[1:])}")
        page, _ = write_report(report, output / "report")
    show(console, report)
    console.text(f"Wrote {output}: model.onnx, model.int8.onnx, model.quant.json, c/, {page}")
    console.result(report.to_json())
    demo_report.check(report, settings)


def show(console: Console, report: Report) -> None:
    """Write the table of variants."""
    columns = (
        "model",
        "engine",
        ">accuracy",
        ">differing elements",
        ">microseconds",
        ">flash, B",
        ">RAM, B",
    )
    console.table(columns, map(_row, report.variants), title=report.metric)


def _row(v: Variant) -> tuple[str, ...]:
    flash = NOTHING if v.flash_bytes is None or v.flash_note else f"{v.flash_bytes:,}"
    return (
        v.model,
        v.engine,
        NOTHING if v.accuracy is None else f"{100 * v.accuracy:.2f} %",
        NOTHING if v.elements is None else f"{v.mismatches or 0:,} of {v.elements:,}",
        microseconds(v.latency.median_us) if v.latency else NOTHING,
        flash,
        NOTHING if v.ram_bytes is None else f"{v.ram_bytes:,}",
    )
