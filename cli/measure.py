"""Runs one network on every engine over the same samples: ONNX Runtime, the executor, the C."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.cli.report import Latency
from midge.convert import bench_host, ort
from midge.convert.bench_host import Timer, Timing
from midge.convert.build import host_program
from midge.convert.executor import Executor
from midge.convert.plan import Plan

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Elements compared bit for bit, and how many differ."""

    elements: int
    mismatches: int


def run_onnx(path: Path, inputs: Sequence[Array], *, exact: bool = False) -> list[Array]:
    """Run an ONNX file over samples.

    Args:
        path: of the file.
        inputs: [samples, *shape without the batch] for every input, in graph order.
        exact: kernels that do not saturate uint8 x int8 products (see ort.make_session).

    Returns:
        [samples, ...] for every output.
    """
    session = ort.make_session(path, exact=exact)
    wanted = session.get_inputs()
    free = all(not isinstance(value.shape[0], int) for value in wanted)
    step = len(inputs[0]) if free else int(wanted[0].shape[0])
    parts = [
        ort.run(session, {v.name: a[i : i + step] for v, a in zip(wanted, inputs, strict=True)})
        for i in range(0, len(inputs[0]), step)
    ]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def run_executor(plan: Plan, inputs: Sequence[Array]) -> list[Array]:
    """Run the integer executor over samples; shapes as in run_onnx."""
    outputs = Executor(plan).run_batch([a[:, None] for a in inputs])
    return [a.reshape(len(a), *a.shape[2:]) for a in outputs]


def run_c(directory: Path, name: str, plan: Plan, inputs: Sequence[Array]) -> list[Array]:
    """Run the compiled C over samples as a program on raw bytes; shapes as in run_onnx."""
    samples = len(inputs[0])
    flat = [np.ascontiguousarray(a).reshape(samples, -1).view(np.uint8) for a in inputs]
    raw = host_program(directory, name).run(np.concatenate(flat, axis=1).tobytes())
    rows = np.frombuffer(raw, np.uint8).reshape(samples, -1)
    outputs, start = [], 0
    for index in plan.outputs:
        tensor = plan.tensors[index]
        block = np.ascontiguousarray(rows[:, start : start + tensor.bytes])
        shape = (tensor.file_shape or tensor.shape)[1:]
        outputs.append(block.view(tensor.dtype).reshape(samples, *shape))
        start += tensor.bytes
    return outputs


def compare(got: Sequence[Array], reference: Sequence[Array]) -> Agreement:
    """Count the elements whose bytes differ."""
    elements = mismatches = 0
    for a, b in zip(got, reference, strict=True):
        left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
        assert left.shape == right.shape, f"{left.shape} against {right.shape}"
        assert left.dtype == right.dtype, f"{left.dtype} against {right.dtype}"
        width = left.dtype.itemsize
        differs = left.view(np.uint8) != right.view(np.uint8)
        elements += left.size
        mismatches += int(differs.reshape(-1, width).any(axis=1).sum())
    return Agreement(elements, mismatches)


def time_all(
    onnx_files: Mapping[str, Path],
    c_folders: Mapping[str, tuple[Path, str]],
    functions: Mapping[str, Timer],
    sample: Sequence[Array],
) -> dict[str, Timing]:
    """Time every candidate in one run of interleaved chunks, one thread each.

    Args:
        onnx_files: name -> file for ONNX Runtime.
        c_folders: name -> emitted folder and the model's name.
        functions: name -> a timer of anything else.
        sample: one sample with its batch of 1, in graph order.
    """
    with ExitStack() as stack:
        timers = dict(functions)
        for label, path in onnx_files.items():
            session = ort.make_session(path, threads=1)
            names = [value.name for value in session.get_inputs()]
            timers[label] = bench_host.ort_timer(session, dict(zip(names, sample, strict=True)))
        raw = b"".join(np.ascontiguousarray(a).tobytes() for a in sample)
        for label, (directory, name) in c_folders.items():
            timers[label] = stack.enter_context(bench_host.c_timer(directory, name, raw))
        return bench_host.interleave(timers)


def python_timer(function: Callable[[], object]) -> Timer:
    """Return a timer of a Python function."""

    def timer(runs: int) -> float:
        begin = time.perf_counter()
        for _ in range(runs):
            function()
        return time.perf_counter() - begin

    return timer


def latency(timing: Timing) -> Latency:
    """Return what a report shows of a timing."""
    return Latency(timing.median_us, timing.p10_us, timing.p90_us)
