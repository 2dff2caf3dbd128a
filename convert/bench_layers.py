"""Where the time of one inference goes: the steps of a model, timed one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from midge.convert.bench_program import Program
from midge.convert.emit_program import program
from midge.convert.pack import ConstData
from midge.convert.plan import Plan
from midge.convert.target import Target

RUNS = 200  # of large models fewer
STEPPING_S = 2.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One step.

    Args:
        name: of the step.
        kernel: C function.
        macs: multiply-accumulates.
        median_us: over the runs.
        min_us: over the runs.
        share: of the median time of all steps.
        gmacs: 1e9 multiply-accumulates in a second at the median, None where there are none.
        peak_share: of what this core can multiply, None where unknown.
    """

    name: str
    kernel: str
    macs: int
    median_us: float
    min_us: float
    share: float
    gmacs: float | None
    peak_share: float | None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What is known of a step before it runs."""

    name: str
    kernel: str
    macs: int


def step_infos(plan: Plan, target: Target, level: str) -> list[StepInfo]:
    """Return the steps that midge_step carries out, in order; a stream of several is one."""
    made = program(plan, ConstData(), target)
    macs = [0] * made.steps
    for op, done in zip(plan.ops, made.done, strict=True):
        macs[done - 1] += op.macs
    return [
        StepInfo(title, target.kernel(record.kernel, level), count)
        for (title, record), count in zip(made.records, macs, strict=False)
    ]


def time_layers(
    run: Program, steps: Sequence[StepInfo], *, peak_gmacs: float | None = None
) -> list[Layer]:
    """Time every step.

    Args:
        run: a waiting program.
        steps: of its model.
        peak_gmacs: what this core can do with the same instructions, in 1e9 a second.
    """
    if not steps:
        return []
    once = float(run.step_us(3).min(axis=0).sum())
    us = run.step_us(int(np.clip(STEPPING_S * 1e6 / once, 5, RUNS)))
    median, least = np.median(us, axis=0), us.min(axis=0)
    total = float(median.sum())
    return [
        _layer(step, float(m), float(low), total, peak_gmacs)
        for step, m, low in zip(steps, median, least, strict=True)
    ]


def _layer(step: StepInfo, median: float, low: float, total: float, peak: float | None) -> Layer:
    gmacs = step.macs / median / 1e3 if step.macs and median else None
    facts: dict[str, Any] = {"name": step.name, "kernel": step.kernel, "macs": step.macs}
    share = median / total if total else 0.0
    against = gmacs / peak if gmacs is not None and peak else None
    return Layer(
        **facts, median_us=median, min_us=low, share=share, gmacs=gmacs, peak_share=against
    )
