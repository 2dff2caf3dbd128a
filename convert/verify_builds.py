"""The builds of a model's C that `verify` holds against the executor."""

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from midge.convert.build import HostProgram, host_program, model_name
from midge.convert.compile import arrange
from midge.convert.emit import emit
from midge.convert.emit_c import comment_text
from midge.convert.plan import Plan
from midge.convert.target import C99, X86_64, Target, host_target
from midge.core.errors import InputError
from midge.core.native import Compiler

NAME = "network"  # prefix of the C that is written to be verified


@dataclass(frozen=True, slots=True)
class Build:
    """One program, or one instruction set of it.

    Args:
        label: for the report.
        outputs: gives the outputs.
        trace: gives what every step wrote; None where steps run strip by strip.
        level: instruction set, None for the best.
        order: the Plan's tensors in the order of the trace: that of the steps, which is another
            for every placement.
    """

    label: str
    outputs: HostProgram
    trace: HostProgram | None
    level: int | None = None
    order: tuple[int, ...] = ()

    def run(self, samples: bytes) -> bytes:
        """Return the outputs of raw samples."""
        return self.outputs.run(samples, self.level)

    def steps(self, samples: bytes) -> bytes | None:
        """Return what every step wrote, one sample after another."""
        return self.trace.run(samples, self.level) if self.trace else None


def builds(
    plan: Plan, scratch: Path, *, compiler: Compiler | None, requant: str | None
) -> list[Build]:
    """Write and compile a model for this machine: portable C, then every instruction set.

    Args:
        plan: not yet placed; it is copied.
        scratch: folder for the sources.
        compiler: default: the first one found.
        requant: form of requantization, None leaves the default.

    Returns:
        Builds that show their steps first.
    """
    made = _builds(plan, scratch / "c", C99, "speed", compiler, requant)
    made += _builds(plan, scratch / "small", C99, "size", compiler, requant)
    if host_target() != C99:
        made += _builds(plan, scratch / "host", host_target(), "speed", compiler, requant)
    return sorted(made, key=lambda build: build.trace is None)


def folder_builds(
    plan: Plan, folder: Path, *, compiler: Compiler | None, requant: str | None
) -> list[Build]:
    """Return the builds of a folder that `midge compile` wrote: one for each instruction set.

    Args:
        plan: of the model that it should have been written from.
        folder: of the sources.
        compiler: default: the first one found.
        requant: form of requantization, None leaves the default.

    Raises:
        InputError: it is none, or another model's.
    """
    name = model_name(folder)
    header = (folder / f"{name}.h").read_text(encoding="utf-8")
    sizes = re.findall(rf"#define {name.upper()}_(?:IN|OUT)PUT_\d+_BYTES (\d+)u", header)
    wanted = [plan.tensors[t].bytes for t in (*plan.inputs, *plan.outputs)]
    if [int(size) for size in sizes] != wanted:
        raise InputError(
            f"{folder} was written from another model: its inputs and outputs have "
            f"{', '.join(sizes)} bytes, not {', '.join(map(str, wanted))}; compile the model again."
        )
    target = X86_64 if (folder / "midge_x86.c").exists() else C99
    return _by_level(plan, folder, name, target, str(folder), compiler, requant)


def _builds(
    unplaced: Plan,
    source: Path,
    target: Target,
    optimize: str,
    compiler: Compiler | None,
    requant: str | None,
) -> list[Build]:
    plan = deepcopy(unplaced)
    arrange(plan, target, optimize=optimize)
    if optimize == "size" and not plan.streams:
        return []  # the same records at other offsets
    emit(plan, source, NAME, target=target)
    label = target.name if target.probe else "C99 strip by strip" if plan.streams else "C99"
    return _by_level(unplaced, source, NAME, target, label, compiler, requant)


def _by_level(
    plan: Plan,
    source: Path,
    name: str,
    target: Target,
    label: str,
    compiler: Compiler | None,
    requant: str | None,
) -> list[Build]:
    """Compile a folder; return a build for each level that this processor has."""
    outputs, trace = _programs(source, name, compiler, requant)
    streams = (source / "midge_stream.c").exists()
    order = () if streams else _order(plan, source, name)
    shown = trace if order else None  # inside of a stream no tensor lies whole
    if not target.probe:
        return [Build(label, outputs, shown, order=order)]
    levels = outputs.levels(len(target.levels))
    return [Build(f"{label} {target.levels[i]}", outputs, shown, i, order) for i in levels]


def _order(plan: Plan, source: Path, name: str) -> tuple[int, ...]:
    """Return the tensors of the Plan that NAME_main.c writes with --tensors, in its order.

    Raises:
        InputError: the steps are those of another model.
    """
    text = (source / "host" / f"{name}_main.c").read_text(encoding="utf-8")
    rows = re.findall(r"^    \{\d+, \d+, \d+\}, /\* (.*) \*/$", text, re.MULTILINE)
    # Of tensors with one name the one is made of the other, so that they keep their order.
    known: dict[str, list[int]] = {}
    for op in plan.ops:
        known.setdefault(comment_text(plan.tensors[op.output].name), []).append(op.output)
    if sorted(rows) != sorted(name for name, tensors in known.items() for _ in tensors):
        raise InputError(
            f"{source} was written from another model, or by another version of midge: its steps "
            "are others; compile the model again."
        )
    return tuple(known[row].pop(0) for row in rows)


def _programs(
    source: Path, name: str, compiler: Compiler | None, requant: str | None
) -> Sequence[HostProgram]:
    return [
        host_program(source, name, compiler=compiler, requant=requant, trace=trace)
        for trace in (False, True)
    ]
