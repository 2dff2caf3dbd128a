"""Measures models on every engine: accuracy, equality of bits, latency, RAM and flash."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.cli.measure import compare, latency, run_c, run_onnx, time_all
from midge.cli.report import Variant
from midge.convert.bench_host import Timer
from midge.convert.compile import CompileReport, read_plan
from midge.convert.executor import Executor

Array = npt.NDArray[Any]
Judge = Callable[[Sequence[Array]], int]  # outputs -> samples judged right

ONNX_RUNTIME, C = "ONNX Runtime", "C"


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
    timings = time_all(
        {f"{c.label}, {ONNX_RUNTIME}": c.onnx for c in candidates},
        {f"{label}, {C}": (made.directory, made.name) for label, made in built.items()},
        functions or {},
        [x[0] for x in inputs],
    )
    variants = [
        replace(variant, latency=latency(timings[variant.name]))
        for candidate in candidates
        for variant in _run(candidate, inputs, judge)
    ]
    return variants, {name: timings[name] for name in functions or {}}


def _run(candidate: Candidate, inputs: Sequence[Array], judge: Judge) -> list[Variant]:
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
    if not candidate.integer:
        return [onnx, c]
    reference = Executor(plan).run_batch(inputs)
    return [_compared(onnx, outputs, reference), _compared(c, computed, reference)]


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
