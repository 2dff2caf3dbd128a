"""The road from a quantized ONNX file to a folder of C that has passed its own test."""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.blame import blames_source, require_runs
from midge.convert.build import link_flags, model_sources
from midge.convert.canonical import canonicalize
from midge.convert.emit import check_name, emit
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.onnx_in import notices, read_model
from midge.convert.onnx_out import check_folder
from midge.convert.passes.dead_channels import remove_dead_channels
from midge.convert.plan import Plan
from midge.convert.plan_general import Gather, GatherElements
from midge.convert.size import SizeReport, measure
from midge.convert.target import (
    C99,
    OPTIMIZE,
    SMALL_BLOCKS,
    X86_64,
    Target,
    fit_scratch,
    host_target,
)
from midge.core.errors import CheckError, InputError, ToolError, did_you_mean
from midge.core.native import Compiler, compile_program

Array = npt.NDArray[Any]
GOLDEN_SAMPLES = 4
BYTES = 256
HOST = "host"
TARGETS = {
    HOST: "C99, built, tested and measured on this machine",
    C99.name: "the same C99, only written: no compiler is needed",
    X86_64.name: "kernels for AVX2, AVX-VNNI, AVX512F and AVX512-VNNI, chosen at run time, and C99 "
    "for the rest; built, tested and measured where this machine is an x86-64",
}
SELF_TEST_TIMEOUT_S = 600
UNTESTED = "nothing was built or measured here; run `make test` in the folder."


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What compiling a file gave.

    Args:
        directory: the folder written.
        name: prefix of its files and symbols.
        files: written, relative to the folder.
        macs: multiply-accumulates of one run.
        arena_bytes: of the arena.
        arena_bound: no placement in this order needs fewer bytes.
        size: of the host build, None where the tools to measure it are missing.
        notices: lines that the user must see.
        tested: the golden test has passed on this machine.
    """

    directory: Path
    name: str
    files: tuple[str, ...]
    macs: int
    arena_bytes: int
    arena_bound: int
    size: SizeReport | None
    notices: tuple[str, ...]
    tested: bool

    @property
    def ram_bytes(self) -> int:
        """Arena and worst stack; the arena alone where the stack is unknown."""
        return self.arena_bytes + (self.size.stack or 0 if self.size else 0)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        value = {**asdict(self), "directory": str(self.directory)}
        if self.size is not None:
            value["size"]["flash"] = self.size.flash
        return value


def compile_file(
    path: str | Path,
    directory: str | Path,
    name: str,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, float] | None = None,
    seed: int = 0,
    target: str = HOST,
    optimize: str | None = None,
    max_ram: int | None = None,
    compiler: Compiler | None = None,
) -> CompileReport:
    """Write a quantized ONNX file as C, compile it for this machine and run its golden test.

    Args:
        path: a QDQ file: midge's own or another tool's.
        directory: of the C sources.
        name: prefix of files and symbols, a C identifier.
        input_shapes: shapes of inputs with unknown dimensions, by name.
        input_values: numbers that inputs hold throughout, by name; they become constants.
        seed: of the random golden inputs.
        target: one of TARGETS.
        optimize: "speed" or "size"; None leaves what suits the target.
        max_ram: bytes that the arena may have.
        compiler: for the golden test; default: the first one found.

    Raises:
        InputError: the file, the name or an option is at fault.
        UnsupportedError: a node has no C form, named.
        CheckError: the compiled C differs from the integer executor.
    """
    check_name(name)
    check_target(target)
    directory = Path(directory)
    check_folder(directory)
    family = X86_64 if target == X86_64.name else C99
    plan = read_plan(
        path,
        name,
        input_shapes,
        family,
        input_values=input_values,
        optimize=optimize,
        max_ram=max_ram,
    )
    inputs = random_inputs(plan, GOLDEN_SAMPLES, seed)
    names = [plan.tensors[i].name for i in plan.inputs]
    feeds = {name: x[0] for name, x in zip(names, inputs, strict=True)}
    require_runs(path, feeds, input_values)
    golden = inputs, Executor(plan).run_batch(inputs)
    built = target == HOST or (target != C99.name and family == host_target())
    if built:
        with tempfile.TemporaryDirectory(prefix="midge-compile-") as scratch:
            # What fails its test never reaches the user's folder.
            emit(plan, Path(scratch) / "c", name, golden=golden, target=family)
            self_test(Path(scratch) / "c", name, compiler=compiler)
    written = emit(plan, directory, name, golden=golden, target=family)
    size, lines = _size(directory, name) if built else (None, [f"target {target}: {UNTESTED}"])
    return CompileReport(
        directory,
        name,
        written.files,
        written.macs,
        plan.arena_bytes,
        plan.arena_bound,
        size,
        (*plan.notices, *lines),
        built,
    )


def check_target(target: str) -> None:
    """Refuse a target that does not exist.

    Raises:
        InputError: with those that do.
    """
    if target not in TARGETS:
        known = "; ".join(f"{name} ({what})" for name, what in TARGETS.items())
        raise InputError(
            f"--target {target!r} does not exist; the targets are {known}."
            f"{did_you_mean(target, TARGETS)}"
        )


@blames_source
def read_plan(
    path: str | Path,
    name: str,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    target: Target = C99,
    *,
    input_values: Mapping[str, float] | None = None,
    optimize: str | None = None,
    max_ram: int | None = None,
) -> Plan:
    """Return the placed Plan of a quantized ONNX file, the notices of reading it included.

    Channels that change no bit of the outputs are left out.

    Args:
        path: of the file.
        name: of the model.
        input_shapes: shapes of inputs with unknown dimensions, by name.
        target: what the C is for.
        input_values: numbers that inputs hold throughout, by name; they become constants.
        optimize: "speed" or "size"; None leaves what suits the target.
        max_ram: bytes that the arena may have.

    Raises:
        InputError: the file is at fault or needs `input_shapes`.
        UnsupportedError: a node has no integer form, named.
    """
    model = read_model(path, input_shapes, input_values=input_values)
    if input_values:  # an If that they decide is resolved before the sizes inside are asked for
        canonicalize(model)
    reduction = remove_dead_channels(model)
    plan = lower(model, name=name)
    arrange(plan, target, optimize=optimize, max_ram=max_ram)
    plan.notices[:0] = [*notices(model), *reduction.notices()]
    return plan


def arrange(
    plan: Plan, target: Target, *, optimize: str | None = None, max_ram: int | None = None
) -> None:
    """Place a Plan in memory as a target needs it; the arguments are those of `read_plan`.

    Raises:
        InputError: `optimize` is unknown.
        UnsupportedError: the arena would be larger than `max_ram`; what sets the peak is named.
    """
    chosen = optimize or target.optimize
    if chosen not in OPTIMIZE:
        raise InputError(f"--optimize {chosen!r} does not exist; it is one of {OPTIMIZE}.")
    if chosen == "speed":
        fit_scratch(plan, target)
        place(plan, optimize=chosen, max_ram=max_ram)
        return
    for block in SMALL_BLOCKS:
        fit_scratch(plan, target, block)
        place(plan, optimize=chosen)
        if max_ram is None or plan.arena_bytes <= max_ram:
            return
    place(plan, optimize=chosen, max_ram=max_ram)


def _size(directory: Path, name: str) -> tuple[SizeReport | None, list[str]]:
    """Return the size of the host build, or why there is none."""
    try:
        return measure(directory, name), []
    except ToolError as error:
        return None, [f"flash and stack were not measured: {error}"]


def random_inputs(plan: Plan, count: int, seed: int) -> list[Array]:
    """Return [count, *shape] arrays for every input, over the whole range of its codes.

    A float input that is quantized first gets real values from a little below its range to a
    little above, so that saturation is met too.
    """
    rng = np.random.default_rng(seed)
    arrays = []
    for index in plan.inputs:
        tensor = plan.tensors[index]
        shape = (count, *(tensor.file_shape or tensor.shape))
        if tensor.dtype == "float32":
            low, high = _real_range(plan, index)
            margin = (high - low) / 16
            arrays.append(rng.uniform(low - margin, high + margin, shape).astype(np.float32))
        else:
            low, high = _whole_range(plan, index)
            arrays.append(rng.integers(low, high + 1, shape).astype(tensor.dtype))
    return arrays


def _whole_range(plan: Plan, index: int) -> tuple[int, int]:
    """Return what an integer input may be: any code, a truth, or a byte that is a good index."""
    tensor = plan.tensors[index]
    if tensor.dtype != "int32":
        info = np.iinfo(tensor.dtype)
        return int(info.min), int(info.max)
    if tensor.file_dtype == "bool":
        return 0, 1
    sizes = [BYTES]
    for op in plan.ops:
        reads = op.inputs and plan.tensors[op.inputs[-1]].buffer == tensor.buffer
        if reads and isinstance(op.params, Gather | GatherElements):
            table = op.params.table if isinstance(op.params, Gather) else None
            shape = plan.tensors[op.inputs[0]].shape if table is None else table.shape
            sizes.append(shape[1])
    return 0, min(sizes) - 1


def _real_range(plan: Plan, index: int) -> tuple[float, float]:
    """Return the real values that the codes of a float input can express, (-1, 1) where unknown."""
    for op in plan.ops:
        params = plan.tensors[op.output].params
        if index in op.inputs and params is not None:
            scale, zero = float(params.scale), params.zero_point
            return (params.qmin - zero) * scale, (params.qmax - zero) * scale
    return -1.0, 1.0


def self_test(directory: Path, name: str, *, compiler: Compiler | None = None) -> None:
    """Compile NAME_test.c of an emitted folder and run it.

    Raises:
        CheckError: an output bit differs from the golden vectors.
        ToolError: the compiler failed.
    """
    sources = [*model_sources(directory, name), directory / "host" / f"{name}_test.c"]
    program = compile_program(
        sources, flags=["-O2", *link_flags(sources)], include=[directory], compiler=compiler
    )
    done = subprocess.run(
        [str(program)],
        capture_output=True,
        text=True,
        timeout=SELF_TEST_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        why = (done.stdout + done.stderr).strip() or f"exit status {done.returncode}"
        raise CheckError(f"{directory}: the golden test of the compiled C fails: {why}.")
