"""Compiles an emitted folder into a host program and runs it on raw samples."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from midge.core.errors import InputError, ToolError
from midge.core.native import Compiler, compile_program

MATH_HEADER = "#include <math.h>"
NO_LEVEL = 3  # exit status of NAME_main where midge_select refuses
REQUANT_FORMS = ("float", "int")


@dataclass(frozen=True, slots=True)
class HostProgram:
    """A compiled NAME_main.

    Attributes:
        path: the program.
        trace: whether `run` returns the output of every operator instead of the model's outputs.
    """

    path: Path
    trace: bool = False

    def run(self, samples: bytes, level: int | None = None) -> bytes:
        """Return the raw results of raw samples.

        Args:
            samples: any number of samples, each the raw elements of every input in graph order.
            level: instruction set, as for midge_select; None leaves the best.

        Returns:
            Per sample the raw elements of every output in graph order; with `trace`, of every
            operator's output in the order and layout of the Plan.

        Raises:
            ToolError: the program failed.
        """
        done = self._run(samples, level)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
            raise ToolError(f"{self.path.name}: {why}")
        return done.stdout

    def levels(self, count: int) -> list[int]:
        """Return those of the first `count` levels that this processor and the model have."""
        return [i for i in range(count) if self._run(b"", i).returncode != NO_LEVEL]

    def _run(self, samples: bytes, level: int | None) -> "subprocess.CompletedProcess[bytes]":
        command = [str(self.path)] + ["--tensors"] * self.trace
        command += [] if level is None else ["--level", str(level)]
        return subprocess.run(command, input=samples, capture_output=True, check=False)


def host_program(
    directory: Path,
    name: str,
    *,
    compiler: Compiler | None = None,
    flags: Sequence[str] = ("-O2",),
    requant: str | None = None,
    trace: bool = False,
) -> HostProgram:
    """Compile the filter NAME_main of an emitted folder; the result is cached.

    Args:
        directory: written by `emit`.
        name: of the model.
        compiler: default: the first one found.
        flags: of the compiler.
        requant: "float" or "int" forces a requantization form; None leaves the target's default.
        trace: run it with --tensors.

    Raises:
        InputError: a file or a compiler is missing.
        ToolError: the compiler failed.
    """
    if requant is not None and requant not in REQUANT_FORMS:
        raise InputError(f"requant={requant!r} is neither 'float' nor 'int'.")
    define = [f"-DMIDGE_REQUANT_{requant.upper()}"] if requant else []
    sources = [*model_sources(directory, name), Path(directory) / "host" / f"{name}_main.c"]
    include = [Path(directory)]
    flags = [*flags, *define, *link_flags(sources)]
    path = compile_program(sources, flags=flags, include=include, compiler=compiler)
    return HostProgram(path, trace)


def model_sources(directory: Path, name: str) -> list[Path]:
    """Return NAME.c and the runtime sources of an emitted folder.

    Raises:
        InputError: NAME.c is missing.
    """
    model = Path(directory) / f"{name}.c"
    if not model.is_file():
        raise InputError(f"{model} does not exist; `midge compile -o {directory}` writes it.")
    return [model, *sorted(Path(directory).glob("midge_*.c"))]


def model_name(directory: Path) -> str:
    """Return NAME of an emitted folder: its one source that is not the runtime's.

    Raises:
        InputError: there is none, or there are several.
    """
    names = [p.stem for p in sorted(directory.glob("*.c")) if not p.stem.startswith("midge_")]
    if len(names) != 1:
        raise InputError(f"{directory} is no folder that `midge compile` wrote.")
    return names[0]


def link_flags(sources: Sequence[Path]) -> list[str]:
    """Return what linking these sources needs: -lm where one uses the mathematical library."""
    uses = any(MATH_HEADER in source.read_text(encoding="utf-8") for source in sources)
    return ["-lm"] if uses else []
