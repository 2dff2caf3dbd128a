"""Measures several ONNX files of one task for a report."""

import shlex
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.cli import machine
from midge.cli.layers import layer_rows
from midge.cli.measure import run_onnx
from midge.cli.report import Layer, Node, Report
from midge.cli.variants import Candidate, Judge, by_agreement, by_labels, measure
from midge.convert import graph as g
from midge.convert.calibration_data import open_samples
from midge.convert.canonical import canonicalize
from midge.convert.compile import compile_file, read_plan
from midge.convert.images import ImageOptions
from midge.convert.onnx_in import read_model
from midge.convert.saturation import saturation_of
from midge.convert.summary import summarize
from midge.core.errors import InputError, UnsupportedError

Array = npt.NDArray[Any]
LABELS = "label"  # of an .npz: the right class of every sample
MOST_SAMPLES = 10_000
NAME = "network"


def report_models(
    models: tuple[Path, ...],
    data: str,
    title: str | None,
    work: Path,
    images: ImageOptions | None = None,
) -> Report:
    """Measure models on every engine and return the report.

    Args:
        models: files with the same inputs, the float one first.
        data: inputs, see calibration_data.open_samples; an .npz may hold labels.
        title: of the page; the first model's name by default.
        work: folder for the C.
        images: how to preprocess the images of a folder.

    Raises:
        InputError: a model or the data are at fault.
        CheckError: the compiled C fails its golden test.
    """
    first = read_model(models[0])
    inputs, labels = load(data, first, images)
    judge, metric = _judge(models[0], inputs, labels)
    candidates = [_candidate(path, work, models) for path in models]
    variants, _ = measure(candidates, inputs, judge)
    notices = [line for c in candidates if c.c is not None for line in c.c.notices]
    notices += [f"{c.label}: {line}" for c in candidates for line in _saturation(c)]
    return Report(
        title=title or models[0].stem,
        metric=metric,
        variants=tuple(variants),
        layers=_layers(first, candidates, inputs),
        coverage=_coverage(first),
        notices=tuple(dict.fromkeys(notices)),
        facts={
            "data": data,
            **{str(p): f"sha256 {sha256(p.read_bytes()).hexdigest()}" for p in models},
        },
        command=f"midge {shlex.join(sys.argv[1:])}",
        machine=machine.describe(),
        versions=machine.versions(),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def load(
    data: str, model: ir.Model, images: ImageOptions | None = None
) -> tuple[list[Array], Array | None]:
    """Return inputs as [samples, *shape of the file] in graph order, and labels where there are.

    Raises:
        InputError: the data do not fit the model, or there are not as many labels as samples.
    """
    names = [g.name_of(value) for value in model.graph.inputs]
    with tempfile.TemporaryDirectory(prefix="midge-report-") as folder:
        labels, spec = _split_labels(Path(data), names, Path(folder) / "inputs.npz")
        samples = list(open_samples(spec or data, model, limit=MOST_SAMPLES, images=images))
    if labels is not None and labels.shape != (len(samples),):
        raise InputError(
            f"{data}: {LABELS!r} has shape {list(labels.shape)}; there are {len(samples)} samples."
        )
    return [np.stack([s[name] for s in samples]) for name in names], labels


def _split_labels(path: Path, names: list[str], rest: Path) -> tuple[Array | None, str | None]:
    """Return the labels of an .npz and the name of a copy without them, if it holds any."""
    if path.suffix != ".npz" or not path.is_file() or LABELS in names:
        return None, None
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile):
        return None, None  # opening the samples will say what is wrong
    labels = arrays.pop(LABELS, None)
    if labels is None:
        return None, None
    np.savez(rest, **arrays)
    return np.asarray(labels), str(rest)


def _judge(first: Path, inputs: list[Array], labels: Array | None) -> tuple[Judge, str]:
    count = f"{len(inputs[0]):,} samples"
    if labels is not None:
        return by_labels(labels), f"Accuracy on {count}"
    return by_agreement(run_onnx(first, inputs)), f"Agreement with {first.name} on {count}"


def _candidate(path: Path, work: Path, models: tuple[Path, ...]) -> Candidate:
    label = path.name.removesuffix(".onnx")
    if [other.name for other in models].count(path.name) > 1:
        label = str(path).removesuffix(".onnx")
    quantized = summarize(read_model(path)).quantized
    try:
        made = compile_file(path, work / str(models.index(path)), NAME)
    except UnsupportedError:
        if quantized:
            raise
        made = None  # a float model without a C form is still worth comparing
    return Candidate(label, path, made, integer=quantized)


def _saturation(candidate: Candidate) -> list[str]:
    return saturation_of(read_model(candidate.onnx)).notices() if candidate.integer else []


def _layers(first: ir.Model, candidates: list[Candidate], inputs: list[Array]) -> tuple[Layer, ...]:
    """Return the layers of the last quantized model, against the first model if that is float."""
    last = next((c for c in reversed(candidates) if c.integer), None)
    if last is None or last.c is None:
        return ()
    floating = first.clone()
    canonicalize(floating)
    is_float = not candidates[0].integer
    plan = read_plan(last.onnx, last.c.name)
    return layer_rows(plan, read_model(last.onnx), floating if is_float else None, inputs)


def _coverage(first: ir.Model) -> tuple[Node, ...]:
    fates = {"int8": "quantized", "float": "float", "folded": "folded"}
    return tuple(
        Node(node.name, node.op_type, fates[node.fate], node.reason)
        for node in summarize(first).nodes
    )
