"""midge bench: the C on this machine against other engines."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from midge.cli import machine
from midge.cli.bench import NAME, CEntry, PeerEntry, Race, c_entries, race
from midge.cli.bench_show import show_instructions, show_layers, show_race
from midge.cli.console import Console
from midge.cli.options import (
    WholeNumber,
    common_options,
    input_shape_option,
    input_value_option,
    model_argument,
    seed_option,
)
from midge.convert import graph as g
from midge.convert.bench_callgrind import Instructions, count_instructions
from midge.convert.bench_host import CHUNK_S, CHUNKS
from midge.convert.bench_layers import Layer, step_infos, time_layers
from midge.convert.bench_peak import FLOAT32, INT8, peaks
from midge.convert.bench_peers import (
    ENGINES,
    LITERT,
    PYTHON_VARIABLE,
    REMEDY,
    every_input,
    installed,
    peers_python,
)
from midge.convert.bench_program import FLAGS, running
from midge.convert.compile import random_inputs, read_plan
from midge.convert.onnx_in import read_model
from midge.convert.plan import Plan
from midge.convert.size import measure
from midge.convert.target import OPTIMIZE, Target, host_target
from midge.core.errors import InputError
from midge.core.native import find_compiler

ORT = "ONNX Runtime"


@click.command("bench")
@model_argument
@click.option(
    "--peers",
    is_flag=True,
    help="Every engine that is installed and every instruction set of the C, not only the best.",
)
@click.option(
    "--tflite",
    type=click.Path(path_type=Path),
    help="The same model as .tflite file, for LiteRT.",
)
@click.option(
    "--peers-python",
    "python",
    metavar="PYTHON",
    help=f"Interpreter that has the other engines; default: {PYTHON_VARIABLE}, or this one.",
)
@click.option(
    "--float-model",
    type=click.Path(path_type=Path),
    help="The float .onnx file, to be timed beside the quantized one.",
)
@click.option("--threads", type=WholeNumber(min=1), default=1, show_default=True)
@click.option(
    "--optimize", type=click.Choice(OPTIMIZE), help="As for compile; by default for speed."
)
@click.option("--layers", is_flag=True, help="The time of every step, and flash and RAM.")
@click.option("--instructions", is_flag=True, help="Instructions of every kernel, by valgrind.")
@click.option(
    "--chunks",
    type=WholeNumber(min=3),
    default=CHUNKS,
    show_default=True,
    help=f"Chunks of {1000 * CHUNK_S:.0f} ms for each candidate; they alternate.",
)
@input_shape_option
@input_value_option
@seed_option
@common_options
def command(
    model: Path,
    peers: bool,
    tflite: Path | None,
    python: str | None,
    float_model: Path | None,
    threads: int,
    optimize: str | None,
    layers: bool,
    instructions: bool,
    chunks: int,
    input_shapes: dict[str, tuple[int, ...]],
    input_values: dict[str, float],
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Time the C on this machine against other engines, batch 1.

    MODEL is any .onnx file that compiles. Chunks of all candidates alternate in one run, so that a
    busy machine meets all of them alike; compare medians of one run only. The answers are compared
    with the integer executor, so that a fast wrong answer is seen.
    """
    console = Console(as_json, quiet)
    if tflite is not None and not peers:
        raise InputError("--tflite is for LiteRT, which only --peers runs; give that too.")
    with tempfile.TemporaryDirectory(prefix="midge-") as scratch:
        target, folder = host_target(), Path(scratch)
        own, others = values_of_each(model, float_model, input_values)
        plan = read_plan(
            model, NAME, input_shapes, target, input_values=own, optimize=optimize or "speed"
        )
        kind = FLOAT32 if is_float(plan) else INT8
        sample = [array[0] for array in random_inputs(plan, 1, seed)]
        if float_model is not None and any(x.dtype != np.float32 for x in sample):
            raise InputError(f"{model} takes codes: it cannot be timed beside {float_model}.")
        python = peers_python(python)
        names = [plan.tensors[t].name for t in plan.inputs]
        given = dict(zip(names, sample, strict=True))
        more = {
            path: every_input(path, input_shapes, values, given)
            for path, values in ((model, own), (float_model, others))
            if path is not None and values
        }
        rivals = [
            replace(rival, threads=threads, inputs=more.get(rival.path))
            for rival in _rivals(console, model, tflite, float_model, kind, python if peers else "")
        ]
        with console.working(f"Timing {model}", chunks) as progress:
            entries, _ = c_entries(plan, folder, target, kind, every=peers, threads=threads)
            result = race(
                plan, sample, entries, rivals, python=python, chunks=chunks, progress=progress
            )
            raw = b"".join(x.tobytes() for x in sample)
            steps = _layers(plan, entries[0], target, kind, raw) if layers else []
            counts = count_instructions(folder, NAME, raw) if instructions else None
            size = measure(folder, NAME) if layers else None
    show_race(console, str(model), result, threads)
    if size is not None:
        memory = f"arena {plan.arena_bytes:,} B, flash {size.flash:,} B ({size.label})"
        show_layers(console, entries[0].label, steps, memory)
    if counts is not None:
        show_instructions(console, counts)
    console.text(machine.describe())
    console.text(f"{find_compiler().version} {' '.join(FLAGS)}; {_versions()}")
    console.result(_json(model, plan, result, threads, steps, counts, size.flash if size else None))


def values_of_each(
    model: Path, float_model: Path | None, values: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the numbers that the model's inputs hold, and those that the float model's hold.

    A file quantized with --input-value lacks the input that its float file still has. What neither
    has is left to the model, which refuses it by name.
    """
    if float_model is None or not values:
        return dict(values), {}
    known, others = (
        {g.name_of(v) for v in read_model(p, dynamic=True).graph.inputs}
        for p in (model, float_model)
    )
    own = {n: v for n, v in values.items() if n in known or n not in others}
    return own, {n: v for n, v in values.items() if n in others}


def is_float(plan: Plan) -> bool:
    """Tell whether no tensor of a model is held in codes."""
    return all(tensor.dtype == "float32" for tensor in plan.tensors)


def _rivals(
    console: Console,
    model: Path,
    tflite: Path | None,
    float_model: Path | None,
    kind: str,
    python: str,
) -> list[PeerEntry]:
    """Return who competes; say in one line how to get an engine that does not.

    Args:
        console: for these lines.
        model: the .onnx file.
        tflite: the same model for LiteRT.
        float_model: another model, for ONNX Runtime only.
        kind: of the model.
        python: interpreter of the peers; an empty text takes ONNX Runtime alone.
    """
    found = installed(python) if python else {ORT: ""}
    made = []
    for name, engine in ENGINES.items():
        path = tflite if name == LITERT else model
        if path is not None and not path.is_file():
            raise InputError(f"{path} does not exist.")
        if name in found and path is not None:
            made.append(PeerEntry(f"{name}, {kind}", name, path))
        elif name in found:
            console.notice(f"{name} runs .tflite files; --tflite names the same model as one.")
        elif python:
            console.notice(f"{name} ({engine.package}) is not installed; {REMEDY}.")
    if float_model is not None:
        if not float_model.is_file():
            raise InputError(f"{float_model} does not exist.")
        made.append(PeerEntry(f"{ORT}, {FLOAT32}", ORT, float_model, rival=False, judged=False))
    return made


def _layers(plan: Plan, best: CEntry, target: Target, kind: str, raw: bytes) -> list[Layer]:
    level = target.levels[best.level or 0]
    with running(best.program, raw, level=best.level) as run:
        steps = step_infos(plan, target, level)
        return time_layers(run, steps, peak_gmacs=peaks().get((level, kind)))


def _versions() -> str:
    return ", ".join(f"{name} {number}" for name, number in machine.versions().items())


def _json(
    model: Path,
    plan: Plan,
    result: Race,
    threads: int,
    steps: list[Layer],
    counts: Instructions | None,
    flash: int | None,
) -> dict[str, Any]:
    return {
        "model": str(model),
        "machine": machine.describe(),
        "versions": machine.versions(),
        "compiler": f"{find_compiler().version} {' '.join(FLAGS)}",
        "macs": sum(op.macs for op in plan.ops),
        "threads": threads,
        "arena_bytes": plan.arena_bytes,
        "flash_bytes": flash,
        **result.to_json(),
        "layers": [asdict(step) for step in steps],
        "instructions": asdict(counts) if counts else None,
    }
