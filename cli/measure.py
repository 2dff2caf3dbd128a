"""Runs one network on every engine over the same samples: ONNX Runtime, the executor, the C."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.cli.report import Latency
from midge.convert import bench_host, ort
from midge.convert import graph as g
from midge.convert.bench_host import Timer, Timing
from midge.convert.bench_program import FLAGS, build_program, running
from midge.convert.build import host_program
from midge.convert.onnx_in import read_model
from midge.convert.plan import Plan
from midge.convert.reference import Reference

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Elements compared bit for bit, and how many differ."""

    elements: int
    mismatches: int


def run_onnx(path: Path, inputs: Sequence[Array]) -> list[Array]:
    """Run an ONNX file in ONNX Runtime, at the level where its integer operators are exact.

    Args:
        path: of the file.
        inputs: [samples, *shape of the file] for every input, in graph order.

    Returns:
        [samples, *shape of the file] for every output.
    """
    model = read_model(path)
    names = [g.name_of(value) for value in model.graph.inputs]
    outputs, _ = Reference(model, show=False).run_batch(names, inputs)
    return outputs


def run_c(directory: Path, name: str, plan: Plan, inputs: Sequence[Array]) -> list[Array]:
    """Run the compiled C as a program on raw bytes; shapes as in run_onnx."""
    samples = len(inputs[0])
    flat = [np.ascontiguousarray(a).reshape(samples, -1).view(np.uint8) for a in inputs]
    raw = host_program(directory, name).run(np.concatenate(flat, axis=1).tobytes())
    rows = np.frombuffer(raw, np.uint8).reshape(samples, -1)
    outputs, start = [], 0
    for index in plan.outputs:
        tensor = plan.tensors[index]
        block = np.ascontiguousarray(rows[:, start : start + tensor.bytes])
        shape = tensor.file_shape or tensor.shape
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
    *,
    flags: Sequence[str] = FLAGS,
    chunks: int = bench_host.CHUNKS,
) -> dict[str, Timing]:
    """Time every candidate in one run of interleaved chunks, one thread each.

    Args:
        onnx_files: name -> file for ONNX Runtime.
        c_folders: name -> emitted folder and the model's name.
        functions: name -> a timer of anything else.
        sample: one sample of every input as the file has it, in graph order.
        flags: of the C compiler.
        chunks: for each candidate.
    """
    with ExitStack() as stack:
        timers = dict(functions)
        for label, path in onnx_files.items():
            session = ort.make_session(path, threads=1)
            names = [value.name for value in session.get_inputs()]
            timers[label] = bench_host.ort_timer(session, dict(zip(names, sample, strict=True)))
        raw = b"".join(np.ascontiguousarray(a).tobytes() for a in sample)
        for label, (directory, name) in c_folders.items():
            program = build_program(directory, name, flags=flags)
            timers[label] = stack.enter_context(running(program, raw)).time
        return bench_host.interleave(timers, chunks=chunks)


def latency(timing: Timing) -> Latency:
    """Return what a report shows of a timing."""
    return Latency(timing.median_us, timing.p10_us, timing.p90_us)
