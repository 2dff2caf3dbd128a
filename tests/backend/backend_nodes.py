"""Runs onnx's own node tests through compiled C, and through midge.core, and counts what holds.

    python tests/backend/backend_nodes.py > docs/backend-nodes.md
    python tests/backend/backend_nodes.py --json

Every case whose model is not refused must give the case's outputs, within its own tolerances.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import node_c
import node_core
import numpy as np
import onnx
from node_cases import DATA, Case, collect, type_name

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.compile import read_plan
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.onnx_in import read_model
from midge.convert.operators import FLOAT32, INT8
from midge.convert.plan import Plan
from midge.core.errors import MidgeError

CODES = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv")
SUPPORTED = {*INT8, *FLOAT32, *CODES, "QLinearMatMul", "MatMulInteger", "ConvInteger"}


@dataclass(slots=True)
class Tally:
    """What became of the cases in one engine.

    Attributes:
        passed: names of the cases that hold.
        failed: case -> how its outputs differ.
        types: element type -> number of cases refused because of it.
        operators: operator -> number of cases refused because of it.
        forms: reason -> cases whose operators are all supported, but not in this form.
    """

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    types: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    forms: dict[str, list[str]] = field(default_factory=dict)

    def refuse(self, case: Case, error: MidgeError, path: Path, known: Iterable[str]) -> None:
        """Count a refused case by its first cause: types, then operators, then the form."""
        kind = foreign_type(case.model.graph)
        missing = unknown_operators(case, path, set(known))
        if kind:
            self.types[kind] += 1
        elif missing:
            self.operators[missing[0]] += 1
        else:
            self.forms.setdefault(reason(error, path), []).append(case.name)

    def check(self, case: Case, outputs: list[Any], engine: str = "") -> bool:
        """Compare outputs with the expected ones."""
        difference = case.difference(outputs)
        if difference:
            self.failed[case.name] = engine + difference
        return not difference

    def to_json(self) -> dict[str, Any]:
        """Return the tally as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def foreign_type(graph: onnx.GraphProto) -> str:
    """Return an element type of an input or output that no network computes with, or nothing."""
    codes = any(node.op_type in CODES or "Integer" in node.op_type for node in graph.node)
    for value in (*graph.output, *graph.input[:1], *graph.input):
        if value.type.WhichOneof("value") != "tensor_type":
            return "no tensor"
        kind = value.type.tensor_type.elem_type
        integer = kind in (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
        if integer and value in graph.input and value.name != graph.input[0].name:
            continue  # a parameter: it is bound
        if kind != onnx.TensorProto.FLOAT and not (codes and kind in DATA):
            return type_name(kind)
    return ""


def unknown_operators(case: Case, path: Path, known: set[str]) -> list[str]:
    """Return the operators of a case that midge lacks, once constants are folded."""
    try:
        model = read_model(path, dynamic=True)
        canonicalize(model)
        names = {g.operator(node) for node in model.graph}
    except MidgeError:
        names = {node.op_type for node in case.model.graph.node}
    return sorted(names - known)


def reason(error: MidgeError, path: Path) -> str:
    """Return an error without the names of the case: what stands between node and remedy."""
    text = str(error).replace(f"{path}: ", "")
    node = re.match(r"(\S+) \((\w+)\): ", text)
    text = f"{node[2]}: {text[node.end() :]}" if node else text
    text = re.sub(r"tensor '[^']*' of \S+ has shape .*?; ", "a shape is unknown or empty; ", text)
    return re.sub(r"'[^']*'", "...", text)


def lowered(cases: Sequence[Case], folder: Path, tally: Tally) -> list[tuple[Case, Plan]]:
    """Return the cases that lower and can be written as C, with their plans."""
    path, found = folder / "case.onnx", []
    for case in cases:
        if not case.plain:
            tally.types["no tensor"] += 1
            continue
        path.write_bytes(case.bound().SerializeToString())
        try:
            plan = read_plan(path, case.name, case.empty_shapes)
            emit(plan, folder / "tried", "tried")
        except MidgeError as error:
            tally.refuse(case, error, path, SUPPORTED)
            continue
        found.append((case, plan))
    return found


def compiled(cases: Sequence[Case], folder: Path) -> Tally:
    """Run cases through the executor and through compiled C."""
    tally = Tally()
    found = lowered(cases, folder, tally)
    plans = [plan for _, plan in found]
    inputs = [
        [
            np.asarray(x).astype(plan.tensors[t].dtype)  # integers and truths are int32 inside
            for t, x in zip(plan.inputs, case.inputs.values(), strict=True)
        ]
        for case, plan in found
    ]
    results = node_c.run_all(plans, inputs, folder / "c")
    for (case, plan), xs, outputs in zip(found, inputs, results, strict=True):
        held = tally.check(case, in_file(plan, Executor(plan).run(xs)), "executor: ")
        if held and tally.check(case, in_file(plan, outputs)):
            tally.passed.append(case.name)
    return tally


def in_file(plan: Plan, outputs: Sequence[Any]) -> list[Any]:
    """Return outputs in the dtypes of the file."""
    tensors = [plan.tensors[t] for t in plan.outputs]
    return [
        y.astype(t.file_dtype) if t.file_dtype else y for t, y in zip(tensors, outputs, strict=True)
    ]


def imported(cases: Sequence[Case], folder: Path) -> Tally:
    """Run cases as modules of midge.core."""
    tally = Tally()
    plain = [case for case in cases if case.plain]
    tally.types["no tensor"] += len(cases) - len(plain)
    for case, found in node_core.outcomes(plain, folder):
        if not isinstance(found, MidgeError):
            if tally.check(case, found):
                tally.passed.append(case.name)
        elif kind := node_core.foreign_type(case):
            tally.types[kind] += 1
        elif operator := node_core.lacking(case, found):
            tally.operators[operator] += 1
        else:
            why = reason(found, node_core.path_in(folder))
            tally.forms.setdefault(why, []).append(case.name)
    return tally


ENGINES: dict[str, Callable[[Sequence[Case], Path], Tally]] = {
    "compiled C": compiled,
    "core": imported,
}


def page(cases: Sequence[Case], tallies: dict[str, Tally]) -> str:
    """Return the text of docs/backend-nodes.md."""
    lines = [
        "# onnx's own node tests",
        "",
        "Made by `python tests/backend/backend_nodes.py`, run as a test on every change.",
        "",
        f"onnx {onnx.__version__} has {len(cases):,} cases of single operators, and of the graphs "
        "that define some of them. Inputs that a file holds as constants (shapes, axes, weights) "
        "are bound to the case's values; tolerances are the case's own. The C is compiled with "
        "AddressSanitizer and UndefinedBehaviorSanitizer; core is what `midge.load_module` makes "
        "of the file.",
    ]
    for engine, tally in tallies.items():
        lines += ["", f"## {engine[0].upper()}{engine[1:]}", ""]
        refused = sum(tally.types.values()) + sum(tally.operators.values())
        forms = sum(map(len, tally.forms.values()))
        lines += [
            f"{len(tally.passed)} pass, {len(tally.failed)} fail, {refused + forms:,} are refused.",
            "",
            _counts("Refused for an element type", tally.types),
            "",
            _counts("Refused for an operator", tally.operators),
            "",
            f"Refused for the form of a supported operator ({forms}):",
            "",
            "| cases | reason | first |",
            "|---|---|---|",
        ]
        by_count = sorted(tally.forms.items(), key=lambda item: (-len(item[1]), item[0]))
        lines += [f"| {len(names)} | {why} | {names[0]} |" for why, names in by_count]
    return "\n".join(lines) + "\n"


def _counts(title: str, counts: Counter[str]) -> str:
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {count}" for name, count in listed) or "none"
    return f"{title} ({sum(counts.values()):,}): {shown}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--engine", choices=sorted(ENGINES), help="one engine only")
    options = parser.parse_args()
    chosen = [options.engine] if options.engine else list(ENGINES)
    cases = collect()
    with tempfile.TemporaryDirectory(prefix="midge-nodes-") as folder:
        tallies = {name: ENGINES[name](cases, Path(folder)) for name in chosen}
    if options.json:
        json.dump({name: tally.to_json() for name, tally in tallies.items()}, sys.stdout)
    else:
        print(page(cases, tallies), end="")


if __name__ == "__main__":
    main()
