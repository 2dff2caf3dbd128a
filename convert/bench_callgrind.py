"""Instructions of one inference and of each kernel, counted by valgrind: the same on every run."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from midge.convert.bench_program import FLAGS, build_program
from midge.core.errors import InputError, ToolError
from midge.core.native import Compiler

RUN = "midge_run"
STREAM = "midge_stream"
TIMEOUT_S = 1200
# Who calls a kernel; the compiler may put one into the other.
CALLERS = (RUN, "run_op", STREAM)
_POSITION = re.compile(r"(c?fn)=\((\d+)\)(?: (\S+))?")


@dataclass(frozen=True, slots=True)
class Instructions:
    """What one run executes.

    Args:
        total: instructions of midge_run and all that it calls.
        kernels: the same of each kernel, most first; those of midge_stream are its own.
        version: of valgrind.
    """

    total: int
    kernels: dict[str, int]
    version: str


def count_instructions(
    directory: Path,
    name: str,
    sample: bytes,
    *,
    level: int | None = None,
    compiler: Compiler | None = None,
    flags: Sequence[str] = FLAGS,
) -> Instructions:
    """Run an emitted folder once under callgrind.

    Args:
        directory: written by emit.emit.
        name: of the model.
        sample: raw elements of every input in graph order.
        level: instruction set, as for midge_select; None takes the best that valgrind knows.
        compiler: default: the first one found.
        flags: of the compiler; -g is added, which changes no instruction.

    Raises:
        InputError: valgrind is missing.
        ToolError: it failed.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise InputError("valgrind is not installed; it counts the instructions.")
    program = build_program(directory, name, compiler=compiler, flags=[*flags, "-g"])
    version = subprocess.run([valgrind, "--version"], capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="midge-callgrind-") as folder:
        data, out = Path(folder) / "sample", Path(folder) / "out"
        data.write_bytes(sample)
        command = [valgrind, "--tool=callgrind", f"--toggle-collect={RUN}"]
        command += [f"--callgrind-out-file={out}", str(program), str(data)]
        command += [] if level is None else [str(level)]
        done = subprocess.run(
            command, input="t 1 1\n", capture_output=True, text=True, timeout=TIMEOUT_S
        )
        if done.returncode or not out.exists():
            lines = done.stderr.strip().splitlines() or ["it printed nothing"]
            raise ToolError(f"valgrind ended with status {done.returncode}: {lines[-1]}")
        total, kernels = read_counts(out.read_text(encoding="utf-8"))
    return Instructions(total, kernels, version.strip())


def read_counts(text: str) -> tuple[int, dict[str, int]]:
    """Return total and instructions of each kernel from a file that callgrind wrote.

    In the format a function stands once with its name, then as a number: "fn=(3) midge_run", later
    "fn=(3)". Lines of costs follow; the one below "calls=" is what the called function "cfn=" and
    all below it cost.
    """
    names: dict[str, str] = {}
    current, called = "", ""
    kernels: dict[str, int] = {}
    below_calls = False
    for line in text.splitlines():
        found = _POSITION.match(line)
        if found:
            names[found[2]] = function = (found[3] or names[found[2]]).split("'")[0]
            current, called = (function, called) if found[1] == "fn" else (current, function)
        elif line.startswith("calls="):
            below_calls = True
        elif re.match(r"[+\-*\d]", line):
            cost = int(line.split()[1]) if len(line.split()) > 1 else 0
            if below_calls and current in CALLERS and called not in CALLERS:
                kernels[called] = kernels.get(called, 0) + cost
            if not below_calls and current == STREAM:
                kernels[STREAM] = kernels.get(STREAM, 0) + cost
            below_calls = False
    total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
    if total is None or not int(total[1]):
        raise ToolError("callgrind counted nothing: the program was built without symbols.")
    order = sorted(kernels, key=lambda kernel: -kernels[kernel])
    return int(total[1]), {kernel: kernels[kernel] for kernel in order}
