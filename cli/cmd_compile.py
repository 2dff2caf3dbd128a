"""midge compile: an ONNX file to a self-contained folder of C."""

from pathlib import Path

import click

from midge.cli.console import Console
from midge.cli.options import (
    WholeNumber,
    common_options,
    input_shape_option,
    input_value_option,
    model_argument,
    output_option,
    seed_option,
)
from midge.convert.api import name_from
from midge.convert.compile import HOST, TARGETS, CompileReport, compile_file
from midge.convert.target import OPTIMIZE

NOTHING = "unknown"


@click.command("compile")
@model_argument
@output_option("the folder of C")
@click.option(
    "--name",
    metavar="IDENTIFIER",
    help="Prefix of files and symbols; made from the file's name by default.",
)
@click.option(
    "--target",
    default=HOST,
    show_default=True,
    help="; ".join(f"{name}: {what}" for name, what in TARGETS.items()) + ".",
)
@click.option(
    "--optimize",
    type=click.Choice(OPTIMIZE),
    help="What counts most: time, or RAM, where steps run strip by strip and outputs lie over "
    "inputs; by default what suits the target. The results are the same bits.",
)
@click.option(
    "--max-ram",
    type=WholeNumber(min=1),
    metavar="BYTES",
    help="Fail, naming the step at fault, where the arena would be larger.",
)
@input_shape_option
@input_value_option
@seed_option
@common_options
def command(
    model: Path,
    output: Path,
    name: str | None,
    target: str,
    optimize: str | None,
    max_ram: int | None,
    input_shapes: dict[str, tuple[int, ...]],
    input_values: dict[str, float],
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write an ONNX file as C that needs nothing but a C99 compiler.

    MODEL is any .onnx file: quantized by midge or another tool, float, or partly both. The folder
    builds with `cc -O2 -c OUTPUT/*.c`; where this machine can run it, its golden test has
    passed here before the folder appears.
    """
    console = Console(as_json, quiet)
    chosen = name_from(model) if name is None else name
    with console.working(f"Compiling {model}"):
        report = compile_file(
            model,
            output,
            chosen,
            input_shapes=input_shapes,
            input_values=input_values,
            seed=seed,
            target=target,
            optimize=optimize,
            max_ram=max_ram,
        )
    for line in report.notices:
        console.notice(line)
    show_sizes(console, report)
    tested = "the golden test passes on this machine"
    done = tested if report.tested else "not built here"
    console.text(f"{report.directory}: {len(report.files)} files; {done}")
    console.result(report.to_json())


def show_sizes(console: Console, report: CompileReport) -> None:
    """Write the table of flash, RAM and multiply-accumulates."""
    size = report.size
    rows = [
        ("flash: code", f"{size.text:,}" if size else NOTHING, "B"),
        ("flash: const data", f"{size.rodata:,}" if size else NOTHING, "B"),
        ("flash: weights", f"{size.weights:,}" if size else NOTHING, "B"),
        ("RAM: arena", f"{report.arena_bytes:,}", f"B, lower bound {report.arena_bound:,}"),
        ("RAM: worst stack", f"{size.stack:,}" if size and size.stack else NOTHING, "B"),
        ("multiply-accumulates", f"{report.macs:,}", "per inference"),
    ]
    label = size.label if size else "not measured"
    console.table(("", ">size", "unit"), rows, title=f"{report.name}, {label}")
