"""Measures models on every engine: accuracy, equality of bits, latency, RAM and flash."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.cli.measure import compare, latency, run_c, run_onnx, time_all
from midge.cli.report import Variant
from midge.convert.bench_host import Timer
from midge.convert.build import host_program
from midge.convert.compile import CompileReport, read_plan
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.plan import Plan
from midge.convert.target import host_target

Array = npt.NDArray[Any]
Judge = Callable[[Sequence[Array]], int]  # outputs -> samples judged right

ONNX_RUNTIME, C = "ONNX Runtime", "C"
NAME = "network"  # of the C that is written to be measured


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model to measure.

    Args:
        label: what the report calls it, unique.
        onnx: its file.
        c: its C, None where there is none.
        integer: whether equal bits are promised on every engine.
    """

    label: str
    onnx: Path
    c: CompileReport | None
    integer: bool


def measure(
    candidates: Sequence[Candidate],
    inputs: Sequence[Array],
    judge: Judge,
    functions: Mapping[str, Timer] | None = None,
) -> tuple[list[Variant], dict[str, Any]]:
    """Run and time every candidate on ONNX Runtime and, where it has C, as a program.

    Args:
        candidates: models with the same inputs.
        inputs: [samples, *shape of the file] for every input, in graph order.
        judge: counts the samples whose outputs are right.
        functions: timers of anything else, to be interleaved with the candidates.

    Returns:
        The variants, and the timings of `functions` by name.
    """
    built = {c.label: c.c for c in candidates if c.c is not None}
    folders = {f"{label}, {C}": (made.directory, made.name) for label, made in built.items()}
    with tempfile.TemporaryDirectory(prefix="midge-measure-") as scratch:
        fast = _vector_builds(candidates, Path(scratch))
        for label, build in fast.items():
            folders[f"{label}, {build.engine}"] = build.directory, NAME
        timings = time_all(
            {f"{c.label}, {ONNX_RUNTIME}": c.onnx for c in candidates},
            folders,
            functions or {},
            [x[0] for x in inputs],
        )
        variants = [
            replace(variant, latency=latency(timings[variant.name]))
            for candidate in candidates
            for variant in _run(candidate, fast.get(candidate.label), inputs, judge)
        ]
    return variants, {name: timings[name] for name in functions or {}}


@dataclass(frozen=True, slots=True)
class _VectorBuild:
    """The C of a model for the vector units of this machine.

    Args:
        engine: what the report calls it.
        directory: of the sources.
        plan: of the model.
    """

    engine: str
    directory: Path
    plan: Plan


def _vector_builds(candidates: Sequence[Candidate], scratch: Path) -> dict[str, _VectorBuild]:
    """Write the C of every candidate for this machine's vector units, where it has any."""
    target, builds = host_target(), {}
    for index, candidate in enumerate(c for c in candidates if c.c is not None and target.probe):
        directory = scratch / str(index)
        plan = read_plan(candidate.onnx, NAME, None, target)
        emit(plan, directory, NAME, target=target)
        best = target.levels[max(host_program(directory, NAME).levels(len(target.levels)))]
        builds[candidate.label] = _VectorBuild(f"{C}, {best}", directory, plan)
    return builds


def _run(
    candidate: Candidate, fast: _VectorBuild | None, inputs: Sequence[Array], judge: Judge
) -> list[Variant]:
    """Return a variant for each engine that has the model."""
    count, made = len(inputs[0]), candidate.c
    outputs = run_onnx(candidate.onnx, inputs)
    onnx = Variant(candidate.label, ONNX_RUNTIME, judge(outputs), count)
    if made is None:
        return [onnx]
    plan = read_plan(candidate.onnx, made.name)
    computed = run_c(made.directory, made.name, plan, inputs)
    c = Variant(
        candidate.label,
        C,
        judge(computed),
        count,
        ram_bytes=made.ram_bytes,
        flash_bytes=made.size.flash if made.size else None,
    )
    found = [(onnx, outputs), (c, computed)]
    if fast is not None:
        computed = run_c(fast.directory, NAME, fast.plan, inputs)
        found.append((Variant(candidate.label, fast.engine, judge(computed), count), computed))
    if not candidate.integer:
        return [variant for variant, _ in found]
    reference = Executor(plan).run_batch(inputs)
    return [_compared(variant, got, reference) for variant, got in found]


def _compared(variant: Variant, outputs: Sequence[Array], reference: Sequence[Array]) -> Variant:
    agreement = compare(outputs, reference)
    return replace(variant, elements=agreement.elements, mismatches=agreement.mismatches)


def by_labels(labels: Array) -> Judge:
    """Return a judge: the largest element of the first output stands at the label."""

    def judge(outputs: Sequence[Array]) -> int:
        scores = outputs[0].reshape(len(labels), -1)
        return int((scores.argmax(axis=1) == labels).sum())

    return judge


def by_agreement(reference: Sequence[Array]) -> Judge:
    """Return a judge: the largest element of the first output stands where the reference's does."""
    first = reference[0]
    return by_labels(np.reshape(first, (len(first), -1)).argmax(axis=1))
