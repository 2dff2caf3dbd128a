"""The builds of a model's C that `verify` holds against the executor."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from midge.convert.build import HostProgram, host_program, model_name
from midge.convert.compile import arrange
from midge.convert.emit import emit
from midge.convert.plan import Plan
from midge.convert.target import C99, Target, host_target
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
    """

    label: str
    outputs: HostProgram
    trace: HostProgram | None
    level: int | None = None

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


def folder_build(folder: Path, *, compiler: Compiler | None, requant: str | None) -> Build:
    """Return the build of a folder that `midge compile` wrote.

    Raises:
        InputError: it is none.
    """
    name = model_name(folder)
    streams = (folder / "midge_stream.c").exists()
    outputs, trace = _programs(folder, name, compiler, requant)
    return Build(f"{folder}, host", outputs, None if streams else trace)


def _builds(
    plan: Plan,
    source: Path,
    target: Target,
    optimize: str,
    compiler: Compiler | None,
    requant: str | None,
) -> list[Build]:
    plan = deepcopy(plan)
    arrange(plan, target, optimize=optimize)
    if optimize == "size" and not plan.streams:
        return []  # the same records at other offsets
    emit(plan, source, NAME, target=target)
    outputs, trace = _programs(source, NAME, compiler, requant)
    shown = None if plan.streams else trace
    if not target.probe:
        how = "C99" if shown else "C99 strip by strip"
        return [Build(how, outputs, shown)]
    levels = outputs.levels(len(target.levels))
    return [Build(f"{target.name} {target.levels[i]}", outputs, shown, i) for i in levels]


def _programs(
    source: Path, name: str, compiler: Compiler | None, requant: str | None
) -> Sequence[HostProgram]:
    return [
        host_program(source, name, compiler=compiler, requant=requant, trace=trace)
        for trace in (False, True)
    ]
