"""Proves that a quantized file gives the same bits everywhere: ONNX Runtime, the executor, C.

The same samples go through the integer executor, the compiled C (a program on raw bytes) and ONNX
Runtime. Every output and every quantized tensor is compared element by element.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from midge.convert.canonical import canonicalize
from midge.convert.compile import random_inputs
from midge.convert.executor import Executor, Observation
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.onnx_in import Shapes, notices, read_model
from midge.convert.onnx_values import Values, constants
from midge.convert.passes.dead_channels import remove_dead_channels
from midge.convert.plan import Plan, PlanTensor
from midge.convert.reference import Held, Reference, needs_exact_kernels
from midge.convert.verify_builds import Build, builds, folder_builds
from midge.convert.verify_float import Judge
from midge.convert.verify_tally import Check, Tally
from midge.core.errors import InputError
from midge.core.native import Compiler

__all__ = ["Check", "VerifyReport", "needs_exact_kernels", "verify"]

Array = npt.NDArray[Any]
CHUNK = 64  # samples whose every tensor is held at once


@dataclass(slots=True)
class VerifyReport:
    """What was compared and what differs.

    Args:
        model: path of the file.
        samples: number of them.
        level: how ONNX Runtime ran, None where it did not.
        c_build: how the C was built, None where it was not.
        checks: outputs first, then quantized tensors in graph order.
        notices: lines that the user must see.
    """

    model: str
    samples: int = 0
    level: str | None = None
    c_build: str | None = None
    checks: list[Check] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing differs anywhere."""
        return all(check.holds for check in self.checks)

    @property
    def elements(self) -> int:
        """Elements compared."""
        return sum(check.elements for check in self.checks)

    @property
    def mismatches(self) -> int:
        """Elements that differ, in both comparisons together."""
        return sum((c.c_mismatches or 0) + (c.ort_mismatches or 0) for c in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            **asdict(self),
            "elements": self.elements,
            "mismatches": self.mismatches,
            "holds": self.holds,
        }


def verify(
    path: str | Path,
    samples: Iterable[Mapping[str, Array]] | None = None,
    *,
    count: int = 100,
    seed: int = 0,
    with_c: bool = True,
    with_ort: bool = True,
    compiler: Compiler | None = None,
    requant: str | None = None,
    input_shapes: Shapes | None = None,
    input_values: Values | None = None,
    folder: str | Path | None = None,
) -> VerifyReport:
    """Compare every output and quantized tensor of a quantized file.

    ONNX Runtime computes the outputs from the file as it stands, and the tensors inside from what
    is left of it without dead channels, which is what executor and C compute.

    Args:
        path: of the QDQ file.
        samples: one dict of arrays by input name each, shaped as in the file; None draws them.
        count: of random samples, or the most to take of `samples`.
        seed: of the random samples.
        with_c: compile the C and run it.
        with_ort: run ONNX Runtime.
        compiler: for the C; default: the first one found.
        requant: form of requantization in C, "float" or "int"; None leaves the default.
        input_shapes: shapes of inputs with unknown dimensions, by name.
        input_values: numbers that inputs hold throughout, by name; they become constants.
        folder: C that was written before, to be held against the file; None writes it anew.

    Raises:
        InputError: the file, a sample or `folder` is at fault.
        UnsupportedError: a node has no integer form, named.
        ToolError: the compiler or ONNX Runtime fails.
    """
    whole = read_model(path, input_shapes, input_values=input_values)
    model = whole.clone()
    if input_values:  # as `compile` does, so that C of a folder is that of this file
        canonicalize(model)
    reduction = remove_dead_channels(model)
    plan = lower(model, name=Path(path).stem)
    unplaced = deepcopy(plan)
    place(plan)
    lines = [*notices(whole), *reduction.notices(), *plan.notices]
    report = VerifyReport(str(path), notices=lines)
    executor = Executor(plan)
    judge = Judge(plan)
    report.notices += judge.notices()
    levels = (True, False)[: 1 + judge.requantizes] if with_ort else ()
    held = _held(path, input_values or {})
    references = [Reference(whole, reduced=model, optimize=o, held=held) for o in levels]
    report.level = "; ".join(r.level.name for r in references) or None
    with tempfile.TemporaryDirectory(prefix="midge-verify-") as scratch:
        programs: list[Build] = []
        if with_c and folder:
            programs = folder_builds(plan, Path(folder), compiler=compiler, requant=requant)
        elif with_c:
            programs = builds(unplaced, Path(scratch), compiler=compiler, requant=requant)
        if programs:
            labels = ", ".join(build.label for build in programs)
            report.c_build = f"{labels}; requantization: {requant or 'default'}"
        tally = Tally(plan)
        for chunk in _chunks(plan, samples, count, seed):
            report.samples += len(chunk[0])
            _compare(tally, executor, judge, chunk, references, programs)
    report.checks = list(tally.checks.values())
    return report


def _held(path: str | Path, values: Values) -> Held | None:
    """Return the file as it stands and what its further inputs hold, None where it has none."""
    if not values:
        return None
    inputs = read_model(path, dynamic=True).graph.inputs
    return Held(onnx.load(str(path)), constants(inputs, values))


def _chunks(
    plan: Plan, samples: Iterable[Mapping[str, Array]] | None, count: int, seed: int
) -> Iterator[list[Array]]:
    """Yield inputs in graph order, each [samples, *shape of the file]."""
    if count < 1:
        raise InputError(f"--samples {count}: must be 1 or more.")
    if samples is None:
        whole = random_inputs(plan, count, seed)
        for start in range(0, count, CHUNK):
            yield [x[start : start + CHUNK] for x in whole]
        return
    names = [plan.tensors[t].name for t in plan.inputs]
    held: list[list[Array]] = []
    for _, sample in zip(range(count), samples, strict=False):
        missing = [name for name in names if name not in sample]
        if missing:
            raise InputError(f"a sample has no array for input {missing[0]!r}.")
        held.append(
            [
                as_stored(plan, t, np.asarray(sample[n]))
                for t, n in zip(plan.inputs, names, strict=True)
            ]
        )
        if len(held) == CHUNK:
            yield [np.stack(column) for column in zip(*held, strict=True)]
            held = []
    if held:
        yield [np.stack(column) for column in zip(*held, strict=True)]


def as_stored(plan: Plan, tensor: int, x: Array) -> Array:
    """Return an input as C has it: int32 for the int64 or bool of the file."""
    return x.astype(np.int32) if x.dtype == plan.tensors[tensor].file_dtype else x


def _compare(
    tally: Tally,
    executor: Executor,
    judge: Judge,
    inputs: list[Array],
    references: Sequence[Reference],
    programs: Sequence[Build],
) -> None:
    """Run one chunk of samples through every engine and count."""
    plan = executor.plan
    seen = executor.observe(inputs)
    tally.begin(seen.outputs, seen.tensors)
    _compare_c(tally, judge, plan, inputs, seen, programs)
    for reference in references:
        names = [plan.tensors[t].name for t in plan.inputs]
        outputs, codes = reference.run_batch(names, inputs)
        shown = {plan.tensors[t].name: y for t, y in zip(plan.outputs, seen.outputs, strict=True)}
        others = dict(zip(shown, outputs, strict=True)) | codes
        for tensor in _compared(plan, others):
            inexact = tensor.buffer in judge.inexact
            if reference is references[-1 if inexact else 0]:
                y = {**seen.tensors, **shown}[tensor.name]
                tally.ort(tensor.name, y, judge.accepted(tensor, y, others[tensor.name]))


def _compare_c(
    tally: Tally,
    judge: Judge,
    plan: Plan,
    inputs: list[Array],
    seen: Observation,
    programs: Sequence[Build],
) -> None:
    """Hold every build of the C against the executor.

    A build that hides its steps must give the bits of the first one, whose float steps were held
    against what they read.
    """
    raw, expected = _raw(inputs), seen.outputs
    for index, build in enumerate(programs):
        written = build.steps(raw)
        if written is not None:
            rows = _in_order(plan, build.order, written)
            outputs, steps = seen.outputs, seen.steps
            if judge.compares_floats:
                outputs, steps = judge.expected(inputs, rows)
            tally.c_steps(steps, rows, again=index > 0)
        else:
            outputs = expected
        rows = list(_rows(build.run(raw), [y[:1].nbytes for y in outputs]))
        shaped = zip(rows, outputs, strict=True)
        got = [r.view(y.dtype).reshape(y.shape) for r, y in shaped]
        tally.c_outputs(outputs, got)
        if index == 0:
            expected = got


def _compared(plan: Plan, names: Iterable[str]) -> list[PlanTensor]:
    """Return the outputs and the tensors of the file that have these names."""
    inside = (t for t in plan.tensors if t.file_params is not None)
    known = {t.name: t for t in (*inside, *(plan.tensors[t] for t in plan.outputs))}
    return [known[name] for name in names]


def _raw(inputs: Sequence[Array]) -> bytes:
    """Return samples one after another, each the bytes of every input."""
    flat = [np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in inputs]
    return np.concatenate(flat, axis=1).tobytes()


def _in_order(plan: Plan, order: Sequence[int], written: bytes) -> list[Array]:
    """Return what every step of the Plan wrote, [samples, bytes], from a build's own order."""
    sizes = [plan.tensors[tensor].bytes for tensor in order]
    parts = dict(zip(order, _rows(written, sizes), strict=True))
    return [parts[op.output] for op in plan.ops]


def _rows(raw: bytes, sizes: Sequence[int]) -> Iterator[Array]:
    """Yield the bytes of each tensor, [samples, bytes], from samples one after another."""
    codes, width, start = np.frombuffer(raw, np.uint8), sum(sizes), 0
    if codes.size % width:
        raise InputError("the C gives outputs of other sizes: it was written from another model.")
    table = codes.reshape(-1, width)
    for size in sizes:
        yield np.ascontiguousarray(table[:, start : start + size])
        start += size
