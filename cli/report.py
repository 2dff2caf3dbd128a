"""What a report holds, and how it becomes report/index.html and report/report.json."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from midge.convert.onnx_out import write_bytes
from midge.core.errors import InputError

SCHEMA = 1  # of report.json; raised when a key changes its meaning
_WILSON_Z = 1.959964  # two-sided 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Latency:
    """Microseconds of one inference, batch 1, one thread: median, 10th and 90th percentile."""

    median_us: float
    p10_us: float
    p90_us: float


@dataclass(frozen=True, slots=True)
class Variant:
    """One model on one engine.

    Args:
        model: "float32", "static int8" or "QAT int8".
        engine: what ran it: "midge core", "ONNX Runtime", "C".
        correct: samples judged right, None when nobody judged.
        samples: how many were judged.
        latency: None when it was not timed.
        elements: output elements compared with the integer executor, None when not compared.
        mismatches: how many of them differed.
        ram_bytes: arena plus worst stack, None when unknown.
        flash_bytes: code plus constants, None when unknown.
        flash_note: what `flash_bytes` leaves out, empty when it is whole.
    """

    model: str
    engine: str
    correct: int | None = None
    samples: int = 0
    latency: Latency | None = None
    elements: int | None = None
    mismatches: int | None = None
    ram_bytes: int | None = None
    flash_bytes: int | None = None
    flash_note: str = ""

    @property
    def name(self) -> str:
        """Model and engine together, unique in a report."""
        return f"{self.model}, {self.engine}"

    @property
    def accuracy(self) -> float | None:
        """Share of samples judged right, 0..1."""
        return None if self.correct is None else self.correct / self.samples

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % score interval of the accuracy.

        Source: E. B. Wilson, "Probable inference, the law of succession, and statistical
        inference", J. Am. Stat. Assoc. 22 (1927).
        """
        p, n, z = self.accuracy, self.samples, _WILSON_Z
        if p is None:
            return None
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (middle - half if p > 0 else 0.0), (middle + half if p < 1 else 1.0)


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator of the quantized model.

    Args:
        name: of the ONNX node.
        kind: its operator.
        shape: of its output, as in the ONNX file.
        macs: multiply-accumulates of one run.
        weight_bytes: of its packed weights and bias.
        sqnr_db: signal to quantization noise of its output against float, None when not measured.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    macs: int
    weight_bytes: int = 0
    sqnr_db: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """How one node of the float model ended: quantized, float, folded or refused, and why."""

    node: str
    op_type: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything on the page.

    Args:
        title: name of the model.
        metric: what accuracy means here, e.g. "accuracy on 360 test images".
        variants: the models and engines compared, float first.
        layers: of the quantized model that is shipped.
        coverage: every node of the float model.
        notices: lines that the user must see.
        facts: label -> text: data, seed, file hashes.
        command: the exact command line.
        machine: where it ran, in words.
        versions: package -> version.
        created: UTC date and time, ISO 8601.
    """

    title: str
    metric: str
    variants: tuple[Variant, ...]
    layers: tuple[Layer, ...] = ()
    coverage: tuple[Node, ...] = ()
    notices: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the content of report.json."""
        return {"schema": SCHEMA, **asdict(self)}


def from_json(value: Mapping[str, Any]) -> Report:
    """Rebuild a Report from the content of report.json.

    Raises:
        InputError: the content has another schema or lacks a key.
    """
    if value.get("schema") != SCHEMA:
        raise InputError(f"report.json has schema {value.get('schema')!r}, not {SCHEMA}.")
    fields = {key: item for key, item in value.items() if key != "schema"}
    try:
        fields["variants"] = tuple(_variant(v) for v in fields["variants"])
        fields["layers"] = tuple(
            Layer(**{**layer, "shape": tuple(layer["shape"])}) for layer in fields["layers"]
        )
        fields["coverage"] = tuple(Node(**node) for node in fields["coverage"])
        fields["notices"] = tuple(fields["notices"])
        return Report(**fields)
    except (KeyError, TypeError) as error:
        raise InputError(f"report.json is not one that midge wrote: {error}.") from error


def _variant(value: Mapping[str, Any]) -> Variant:
    latency = Latency(**value["latency"]) if value["latency"] else None
    return Variant(**{**value, "latency": latency})


def write_report(report: Report, directory: Path) -> tuple[Path, Path]:
    """Write index.html and report.json, each whole or not at all, and return their paths.

    Raises:
        InputError: the directory cannot be written.
    """
    from midge.cli.report_html import render

    page, data = directory / "index.html", directory / "report.json"
    html = render(report)
    text = json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n"
    write_bytes(data, text.encode())
    write_bytes(page, html.encode())
    return page, data
