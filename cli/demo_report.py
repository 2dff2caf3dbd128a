"""Measures what the demo made on every engine, and puts it into a report."""

from datetime import UTC, datetime
from hashlib import sha256

from midge.cli import machine
from midge.cli.demo import NAME, Road, Settings
from midge.cli.layers import layer_rows
from midge.cli.measure import compare, latency
from midge.cli.report import Node, Report, Variant
from midge.cli.variants import C, Candidate, by_labels, measure
from midge.convert.bench_host import function_timer
from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.onnx_in import read_model
from midge.core.errors import CheckError
from midge.models.training import predict

FLOAT, QAT, STATIC = "float32", "QAT int8", "static int8"
CORE = "midge core"


def build_report(road: Road, seed: int, command: str) -> Report:
    """Measure every variant on the test images and return the report."""
    images, judge = road.digits.x_test[:, None], by_labels(road.digits.y_test)
    candidates = [
        Candidate(FLOAT, road.float_file, road.float_c, integer=False),
        Candidate(STATIC, road.static.onnx.output, road.static.c, integer=True),
        Candidate(QAT, road.tuned.onnx.output, road.tuned.c, integer=True),
    ]
    functions = {
        FLOAT: function_timer(lambda: predict(road.model, images[0])),
        QAT: function_timer(lambda: predict(road.qat, images[0])),
    }
    variants, timings = measure(candidates, [images], judge, functions)
    plan = read_plan(road.tuned.onnx.output, NAME)
    simulated = compare([road.qat_logits[:, None]], Executor(plan).run_batch([images]))
    core = Variant(FLOAT, CORE, judge([road.float_logits]), len(images), latency(timings[FLOAT]))
    simulation = Variant(
        QAT,
        f"simulation in {CORE}",
        judge([road.qat_logits]),
        len(images),
        latency(timings[QAT]),
        simulated.elements,
        simulated.mismatches,
    )
    return Report(
        title="Handwritten digits",
        metric=f"Accuracy on {len(images)} test images of 8 x 8 pixels",
        variants=(core, *variants[:-2], simulation, *variants[-2:]),
        layers=layer_rows(plan, read_model(road.tuned.onnx.output), road.tuned_float, [images]),
        coverage=tuple(
            Node(c.node, c.op_type, c.state, c.reason) for c in road.tuned.onnx.coverage
        ),
        notices=(*road.tuned.onnx.notices, *road.tuned.c.notices),
        facts=_facts(road, seed),
        command=command,
        machine=machine.describe(),
        versions=machine.versions(),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


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
