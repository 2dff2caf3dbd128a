"""midge bench: the C on this machine against ONNX Runtime."""

import tempfile
from pathlib import Path

import click
import numpy as np

from midge.cli import machine
from midge.cli.console import Console
from midge.cli.measure import time_all
from midge.cli.options import common_options, input_shape_option, model_argument, seed_option
from midge.cli.report_html import microseconds
from midge.convert.bench_host import CHUNK_S, CHUNKS, Timing
from midge.convert.compile import random_inputs, read_plan
from midge.convert.emit import emit
from midge.convert.plan import Plan
from midge.core.errors import InputError
from midge.core.native import find_compiler

NAME = "network"
FLOAT = "ONNX Runtime, float32"
OPTIMIZATION = "-O3"


@click.command("bench")
@model_argument
@click.option(
    "--float-model",
    type=click.Path(path_type=Path),
    help="The float .onnx file, to be timed beside the quantized one.",
)
@click.option(
    "--chunks",
    type=click.IntRange(min=3),
    default=CHUNKS,
    show_default=True,
    help=f"Chunks of {1000 * CHUNK_S:.0f} ms for each candidate; they alternate.",
)
@input_shape_option
@seed_option
@common_options
def command(
    model: Path,
    float_model: Path | None,
    chunks: int,
    input_shapes: dict[str, tuple[int, ...]],
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Time the C on this machine against ONNX Runtime, one thread, batch 1.

    MODEL is any .onnx file that compiles. Chunks of all candidates alternate in one run, so that a
    busy machine meets all of them alike; compare medians of one run only.
    """
    console = Console(as_json, quiet)
    with (
        console.working(f"Timing {model}"),
        tempfile.TemporaryDirectory(prefix="midge-") as scratch,
    ):
        plan = read_plan(model, NAME, input_shapes)
        emit(plan, Path(scratch), NAME)
        sample = [array[0] for array in random_inputs(plan, 1, seed)]
        kind = "float32" if is_float(plan) else "int8"
        files = {f"ONNX Runtime, {kind}": model}
        if float_model is not None:
            files[FLOAT] = float_model
            if any(x.dtype != np.float32 for x in sample):
                raise InputError(f"{model} takes codes: it cannot be timed beside {float_model}.")
        timings = time_all(
            files,
            {f"C, {kind}": (Path(scratch), NAME)},
            {},
            sample,
            flags=(OPTIMIZATION,),
            chunks=chunks,
        )
    _show(console, model, timings, f"C, {kind}")
    console.result(
        {
            "model": str(model),
            "machine": machine.describe(),
            "versions": machine.versions(),
            "compiler": f"{find_compiler().version} {OPTIMIZATION}",
            "timings": {
                name: {"median_us": t.median_us, "p10_us": t.p10_us, "p90_us": t.p90_us}
                for name, t in timings.items()
            },
        }
    )


def is_float(plan: Plan) -> bool:
    """Tell whether no tensor of a model is held in codes."""
    return all(tensor.dtype == "float32" for tensor in plan.tensors)


def _show(console: Console, model: Path, timings: dict[str, Timing], base_name: str) -> None:
    base = timings[base_name].median_us
    rows = [
        (
            name,
            microseconds(t.median_us),
            f"{microseconds(t.p10_us)} to {microseconds(t.p90_us)}",
            f"{t.median_us / base:.2f}",
        )
        for name, t in timings.items()
    ]
    columns = ("engine", ">median, us", ">p10 to p90, us", ">against the C")
    console.table(columns, rows, title=f"{model}, one thread, batch 1")
    console.text(machine.describe())
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions().items())
    console.text(f"{find_compiler().version} {OPTIMIZATION}; {versions}")
