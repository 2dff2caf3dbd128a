"""Measures what the demo made on every engine, and puts it into a report."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import numpy.typing as npt

from midge.cli import machine
from midge.cli.demo import NAME, Quantized, Road, Settings, predict
from midge.cli.layers import layer_rows
from midge.cli.measure import (
    Agreement,
    compare,
    correct,
    latency,
    run_c,
    run_executor,
    run_onnx,
    time_all,
)
from midge.cli.report import Node, Report, Variant
from midge.convert.bench_host import Timer, Timing
from midge.convert.compile import read_plan
from midge.convert.verify import needs_exact_kernels
from midge.core.errors import CheckError

Array = npt.NDArray[Any]

FLOAT, QAT, STATIC = "float32", "QAT int8", "static int8"
CORE, ORT, C = "midge core", "ONNX Runtime", "C"


@dataclass(frozen=True, slots=True)
class Measured:
    """One int8 variant over the test images, against the integer executor.

    Args:
        reference: outputs of the executor.
        onnx: agreement of ONNX Runtime.
        c: agreement of the compiled C.
        right: samples judged right.
    """

    reference: list[Array]
    onnx: Agreement
    c: Agreement
    right: int


def build_report(road: Road, seed: int, command: str) -> Report:
    """Measure every variant on the test images and return the report."""
    labels = road.digits.y_test
    float_onnx = run_onnx(road.float_file, [road.digits.x_test])
    tuned, static = measure(road, road.tuned), measure(road, road.static)
    simulated = compare([road.qat_logits], tuned.reference)
    timing = _time(road)

    def variant(model: str, engine: str, right: int, **rest: Any) -> Variant:
        timed = timing.get(f"{model} {engine}")
        taken = latency(timed) if timed else None
        return Variant(model, engine, right, len(labels), taken, **rest)

    variants = [
        variant(FLOAT, CORE, correct([road.float_logits], labels)),
        variant(FLOAT, ORT, correct(float_onnx, labels)),
        variant(QAT, CORE, correct([road.qat_logits], labels), **_agreement(simulated)),
    ]
    for model, done, made in ((QAT, tuned, road.tuned), (STATIC, static, road.static)):
        variants.append(variant(model, ORT, done.right, **_agreement(done.onnx)))
        variants.append(variant(model, C, done.right, **_agreement(done.c), **_size(made)))
    coverage = tuple(Node(c.node, c.op_type, c.state, c.reason) for c in road.tuned.onnx.coverage)
    return Report(
        title="Handwritten digits",
        metric=f"Accuracy on {len(labels)} test images of 8 x 8 pixels",
        variants=tuple(variants),
        layers=layer_rows(road),
        coverage=coverage,
        notices=(*road.tuned.onnx.notices, *road.tuned.c.notices),
        facts=_facts(road, seed),
        command=command,
        machine=machine.describe(),
        versions=machine.versions(),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def measure(road: Road, made: Quantized) -> Measured:
    """Run one int8 variant on every engine over the test images."""
    images = [road.digits.x_test]
    plan = read_plan(made.onnx.output, NAME)
    reference = run_executor(plan, images)
    onnx = run_onnx(made.onnx.output, images, exact=needs_exact_kernels())
    c = run_c(made.c.directory, NAME, plan, images)
    right = correct(c, road.digits.y_test)
    return Measured(reference, compare(onnx, reference), compare(c, reference), right)


def check(report: Report, settings: Settings) -> None:
    """Hold the result to its gates.

    Raises:
        CheckError: an output bit differs somewhere, or an accuracy misses its gate.
    """
    for v in report.variants:
        if v.mismatches:
            raise CheckError(
                f"{v.name}: {v.mismatches:,} of {v.elements:,} output elements differ from the "
                "integer executor."
            )
    base = report.variants[0].accuracy or 0.0
    if base < settings.float_floor:
        raise CheckError(
            f"float32: accuracy {100 * base:.2f} % is below {100 * settings.float_floor:g} %."
        )
    tuned = next(v.accuracy or 0.0 for v in report.variants if (v.model, v.engine) == (QAT, C))
    if base - tuned > settings.max_drop:
        raise CheckError(
            f"QAT int8: accuracy {100 * tuned:.2f} % lies more than {100 * settings.max_drop:g} "
            f"points below float32's {100 * base:.2f} %."
        )


def _time(road: Road) -> dict[str, Timing]:
    image = road.digits.x_test[:1]
    return time_all(
        {
            f"{FLOAT} {ORT}": road.float_file,
            f"{QAT} {ORT}": road.tuned.onnx.output,
            f"{STATIC} {ORT}": road.static.onnx.output,
        },
        {
            f"{QAT} {C}": (road.tuned.c.directory, NAME),
            f"{STATIC} {C}": (road.static.c.directory, NAME),
        },
        {
            f"{FLOAT} {CORE}": _timer(lambda: predict(road.model, image)),
            f"{QAT} {CORE}": _timer(lambda: predict(road.qat, image)),
        },
        [image],
    )


def _timer(function: Callable[[], object]) -> Timer:
    def timer(runs: int) -> float:
        begin = time.perf_counter()
        for _ in range(runs):
            function()
        return time.perf_counter() - begin

    return timer


def _agreement(found: Agreement) -> dict[str, int]:
    return {"elements": found.elements, "mismatches": found.mismatches}


def _size(made: Quantized) -> dict[str, int]:
    size = made.c.size
    if size is None:
        return {"ram_bytes": made.c.arena_bytes}
    return {"ram_bytes": size.arena + (size.stack or 0), "flash_bytes": size.flash}


def _facts(road: Road, seed: int) -> dict[str, str]:
    digits = road.digits
    facts = {
        "data": f"scikit-learn's digits: {len(digits.y_train):,} images to train on, "
        f"{len(digits.y_test):,} to test, every class split alike",
        "seed": str(seed),
    }
    for path in (road.float_file, road.tuned.onnx.output, road.static.onnx.output):
        name = str(path.relative_to(road.directory))
        facts[name] = f"sha256 {sha256(path.read_bytes()).hexdigest()}"
    return facts
