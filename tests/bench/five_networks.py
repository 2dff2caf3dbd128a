"""Five real networks, the whole road: `python tests/bench/five_networks.py [--samples N]`.

Each is quantized, lowered, written as C and compared: the integer executor with the C of every
compiler, optimization level and form of requantization, and with ONNX Runtime at every quantized
tensor. Half of the samples are real, the rest random over the whole range of codes. Then the
quantized network is judged on real inputs beside the float one. Prints Markdown; --json FILE keeps
the numbers. Needs MIDGE_MODELS and MIDGE_DATA. Exit status 1 when something differs or a bar is
missed.
"""

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from five_networks_inputs import NETWORKS, Inputs, Network

import midge
from midge.cli.machine import describe, versions
from midge.convert import ort
from midge.convert.build import HostProgram, host_program
from midge.convert.calibrate import METHODS
from midge.convert.compile import compile_file, random_inputs, read_plan
from midge.convert.executor import Executor
from midge.convert.verify import verify
from midge.core.errors import InputError
from midge.core.native import find_compiler

Array = npt.NDArray[Any]
BUILDS = [("gcc", "-O0"), ("gcc", "-O2"), ("gcc", "-O3"), ("clang", "-O2")]
FORMS = ("float", "int")
CHUNK = 50  # samples at a time
STEPS_SHARE = 10  # every step is compared for one sample in this many
NAME = "network"


@dataclass
class Result:
    """What came out for one network; `*_mismatches` count elements or bytes that differ."""

    name: str
    source: str
    macs: int = 0
    flash_bytes: int = 0
    arena_bytes: int = 0
    samples: int = 0
    builds: int = 0
    output_bytes: int = 0
    output_mismatches: int = 0
    step_bytes: int = 0
    step_mismatches: int = 0
    ort_level: str = ""
    ort_tensors: int = 0
    ort_elements: int = 0
    ort_mismatches: int = 0
    judged: int = 0
    measure: str = ""
    value: float = 0.0
    bar: float | None = None
    accuracy: float | None = None
    float_accuracy: float | None = None
    notices: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing differs and the bar is reached."""
        differ = self.output_mismatches + self.step_mismatches + self.ort_mismatches
        if self.bar is None:
            return not differ
        return not differ and self.value >= self.bar


def prove(network: Network, samples: int, method: str, scratch: Path) -> Result:
    """Take one network down the road."""
    data = network.inputs()
    result = Result(network.name, data.source, measure=network.measure, bar=network.bar)
    file, folder = scratch / "network.int8.onnx", scratch / "c"
    report = midge.quantize(
        network.path(), file, data.calibration, calibration_method=method, samples=200
    )
    compiled = compile_file(file, folder, NAME, optimize="speed")
    result.notices = (*report.notices, *compiled.notices)
    result.macs, result.arena_bytes = compiled.macs, compiled.arena_bytes
    result.flash_bytes = compiled.size.flash if compiled.size else 0
    executor = Executor(read_plan(file, NAME, optimize="speed"))
    inputs = mixed_inputs(executor, data, samples)
    compare_c(result, executor, folder, inputs)
    compare_ort(result, executor, file, inputs)
    judge(result, network, executor, data)
    return result


def mixed_inputs(executor: Executor, data: Inputs, samples: int) -> Array:
    """Return [samples, 1, *shape]: real inputs, then as many or more random ones."""
    real = data.test[: samples // 2][:, None]
    count = samples - len(real)
    return np.concatenate([real, *random_inputs(executor.plan, count, seed=0)])


def compare_c(result: Result, executor: Executor, folder: Path, inputs: Array) -> None:
    """Hold the outputs of every build, and the steps for some samples, against the executor."""
    plain, trace = list(programs(folder, trace=False)), list(programs(folder, trace=True))
    result.builds, result.samples = len(plain), len(inputs)
    for start in range(0, len(inputs), CHUNK):
        x = inputs[start : start + CHUNK]
        expected = rows(executor.run_batch([x]))
        for program in plain:
            result.output_bytes += expected.size
            result.output_mismatches += differing(program, x, expected)
        x = x[::STEPS_SHARE]
        expected = rows(executor.observe([x]).steps)
        for program in trace:
            result.step_bytes += expected.size
            result.step_mismatches += differing(program, x, expected)


def programs(folder: Path, *, trace: bool) -> Iterator[HostProgram]:
    """Compile every build; a compiler that is missing is an error."""
    for name, flag in BUILDS:
        for form in FORMS:
            yield host_program(
                folder, NAME, compiler=find_compiler(name), flags=[flag], requant=form, trace=trace
            )


def rows(arrays: list[Array]) -> Array:
    """Return the bytes of each sample, [samples, bytes]."""
    flat = [np.ascontiguousarray(a).reshape(len(a), -1).view(np.uint8) for a in arrays]
    return np.concatenate(flat, axis=1)


def differing(program: HostProgram, x: Array, expected: Array) -> int:
    """Run a program and count the bytes in which it differs."""
    got = np.frombuffer(program.run(np.ascontiguousarray(x).tobytes()), np.uint8)
    return int((got.reshape(expected.shape) != expected).sum())


def compare_ort(result: Result, executor: Executor, file: Path, inputs: Array) -> None:
    """Hold every output and quantized tensor of ONNX Runtime against the executor."""
    (index,) = executor.plan.inputs
    name = executor.plan.tensors[index].name
    report = verify(file, ({name: x} for x in inputs), count=len(inputs), with_c=False)
    checks = [c for c in report.checks if c.ort_mismatches is not None]
    result.ort_level = report.level or ""
    result.ort_tensors = len(checks)
    result.ort_elements = sum(c.elements for c in checks)
    result.ort_mismatches = sum(c.ort_mismatches or 0 for c in checks)


def judge(result: Result, network: Network, executor: Executor, data: Inputs) -> None:
    """Measure the quantized network on real inputs, the float one beside it."""
    session = ort.make_session(network.path(), threads=1)
    (given,) = session.get_inputs()
    parts = [ort.run(session, {given.name: x[None]})[0] for x in data.test]
    real = np.concatenate(parts)
    coded = executor.run_batch([data.test[:, None]])[0].reshape(real.shape)
    result.judged = len(data.test)
    first, second = real.argmax(axis=1), coded.argmax(axis=1)
    if data.labels is not None:
        result.float_accuracy = float((first == data.labels).mean())
        result.accuracy = float((second == data.labels).mean())
    result.value = {
        "accuracy": result.accuracy or 0.0,
        "agreement": float((first == second).mean()),
        "error": float(np.linalg.norm(coded - real) / np.linalg.norm(real)),
    }[network.measure]


def markdown(results: list[Result], samples: int, method: str) -> Iterator[str]:
    """Yield the page's tables."""
    builds = ", ".join(" ".join(build) for build in BUILDS)
    yield f"{datetime.date.today().isoformat()}, {describe()}"
    yield ", ".join(f"{k} {v}" for k, v in versions().items())
    yield "; ".join(find_compiler(name).version for name in sorted({name for name, _ in BUILDS}))
    yield f"calibration: {method}; {samples} samples each; C: {builds}, with each requantization"
    yield "ONNX Runtime: " + ", ".join(sorted({r.ort_level for r in results}))
    yield ""
    yield "| network | MACs | flash | arena | C outputs: bytes, differ | C steps: bytes, differ |"
    yield "|---|---|---|---|---|---|"
    for r in results:
        yield (
            f"| {r.name} | {r.macs:,} | {r.flash_bytes:,} | {r.arena_bytes:,} "
            f"| {r.output_bytes:,}, {r.output_mismatches:,} "
            f"| {r.step_bytes:,}, {r.step_mismatches:,} |"
        )
    yield ""
    yield "| network | ONNX Runtime: tensors, elements, differ | judged | int8, float | bar |"
    yield "|---|---|---|---|---|"
    for r in results:
        yield (
            f"| {r.name} | {r.ort_tensors}, {r.ort_elements:,}, {r.ort_mismatches:,} "
            f"| {r.judged:,} | {verdict(r)} | {'none' if r.bar is None else f'{r.bar:.1%}'} |"
        )
    yield ""
    yield from (f"- {r.name}: {r.source}. {' '.join(r.notices)}" for r in results)


def verdict(r: Result) -> str:
    """Say how the quantized network does beside the float one."""
    said = [] if r.measure == "accuracy" else [f"{r.measure} {r.value:.2%}"]
    if r.accuracy is not None and r.float_accuracy is not None:
        said.append(f"accuracy {r.accuracy:.2%}, float {r.float_accuracy:.2%}")
    return "; ".join(said)


def main() -> int:
    """Run and print; return the exit status."""
    names = [n.name for n in NETWORKS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--calibration-method", choices=sorted(METHODS), default="minmax")
    parser.add_argument("--networks", nargs="+", choices=names, default=names)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    for network in NETWORKS:
        if network.name not in options.networks:
            continue
        print(f"{network.name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="midge-five-") as scratch:
            method = options.calibration_method
            results.append(prove(network, options.samples, method, Path(scratch)))
    print("\n".join(markdown(results, options.samples, options.calibration_method)))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    return 0 if all(r.holds for r in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(str(error))
