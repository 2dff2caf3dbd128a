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
        c: its C, None for a float model.
        weight_bytes: of a float model, the least that it would take to store.
    """

    label: str
    onnx: Path
    c: CompileReport | None = None
    weight_bytes: int | None = None


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
    variants = []
    for candidate in candidates:
        measure_one = _integer if candidate.c is not None else _float
        for variant in measure_one(candidate, inputs, judge):
            variants.append(replace(variant, latency=latency(timings[variant.name])))
    return variants, {name: timings[name] for name in functions or {}}


def _float(candidate: Candidate, inputs: Sequence[Array], judge: Judge) -> list[Variant]:
    right = judge(run_onnx(candidate.onnx, inputs))
    return [
        Variant(
            candidate.label,
            ONNX_RUNTIME,
            right,
            len(inputs[0]),
            flash_bytes=candidate.weight_bytes,
            flash_note="weights only" if candidate.weight_bytes else "",
        )
    ]


def _integer(candidate: Candidate, inputs: Sequence[Array], judge: Judge) -> list[Variant]:
    made = candidate.c
    assert made is not None
    plan = read_plan(candidate.onnx, made.name)
    reference = Executor(plan).run_batch(inputs)
    onnx = run_onnx(candidate.onnx, inputs)
    c = run_c(made.directory, made.name, plan, inputs)
    size = made.size
    both = []
    for engine, outputs in ((ONNX_RUNTIME, onnx), (C, c)):
        agreement = compare(outputs, reference)
        both.append(
            Variant(
                candidate.label,
                engine,
                judge(outputs),
                len(inputs[0]),
                elements=agreement.elements,
                mismatches=agreement.mismatches,
                ram_bytes=made.ram_bytes if engine == C else None,
                flash_bytes=size.flash if engine == C and size else None,
            )
        )
    return both


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
