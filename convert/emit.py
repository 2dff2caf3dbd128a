"""Writes a Plan as a self-contained folder of C: model, runtime, build files, host programs."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert import emit_c, emit_host
from midge.convert.build import MATH_HEADER
from midge.convert.emit_program import program
from midge.convert.onnx_out import check_folder
from midge.convert.pack import ConstData
from midge.convert.plan import Plan
from midge.convert.target import C99, Target, runtime_folder, runtime_text
from midge.core.errors import InputError, UnsupportedError

Array = npt.NDArray[Any]

ARENA_LIMIT = 2**31  # kernels count pixels in int32
OVERRUN = np.zeros(16, np.uint32)  # 64 bytes, the widest load
POOL = ("midge_pthreads.c", "midge_pthreads.h")  # threads for midge_run_parallel on a host
# of every folder; float models need more
HEADERS = ("midge.h", "midge_kernel.h", "midge_model.h", "midge_requantize.h")
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class "
        "compl const constexpr const_cast continue decltype default delete do double "
        "dynamic_cast else enum explicit export extern false float for friend goto if inline "
        "int long main mutable namespace new noexcept not not_eq nullptr operator or or_eq "
        "private protected public register reinterpret_cast restrict return short signed sizeof "
        "static static_assert static_cast struct switch template this thread_local throw true "
        "try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t "
        "while xor xor_eq",
    )
)


@dataclass(frozen=True, slots=True)
class EmitReport:
    """What was written.

    Attributes:
        files: paths relative to the folder.
        const_bytes: weights, biases, multipliers and tables.
        record_bytes: the records.
        arena_bytes: RAM of one session.
        macs: multiply-accumulates of one run.
    """

    files: tuple[str, ...]
    const_bytes: int
    record_bytes: int
    arena_bytes: int
    macs: int


def emit(
    plan: Plan,
    directory: Path,
    name: str,
    *,
    golden: tuple[list[Array], list[Array]] | None = None,
    target: Target = C99,
) -> EmitReport:
    """Write the C of a placed Plan.

    Args:
        plan: with offsets and arena_bytes, and with the target's scratch.
        directory: created where absent. Files that midge writes are replaced, each at once; others
            stay. Nothing is touched before everything has been generated.
        name: prefix of files and symbols, a C identifier.
        golden: inputs and outputs of some samples, one array [samples, *shape] per tensor in graph
            order; None leaves NAME_test.c out.
        target: what the C is for.

    Raises:
        InputError: `name` is no usable C identifier, or the golden vectors do not fit.
        UnsupportedError: the arena is too large, or a step does not fit the record format, named.
    """
    check_name(name)
    if plan.arena_bytes >= ARENA_LIMIT:
        raise UnsupportedError(
            f"{plan.name}: an arena of {plan.arena_bytes} bytes; the C runtime addresses less than "
            f"{ARENA_LIMIT}."
        )
    data = ConstData()
    records = program(plan, data, target)
    if target.packed:
        data.append("what vector loads behind the last weights may touch", OVERRUN)
    stems = {"midge_session"} | {
        target.kernel(k, level) for k in records.kernels for level in target.levels
    }
    if target.probe:
        stems |= {"midge_x86", "midge_parallel"}
    runtime = [f"{stem}.c" for stem in sorted(stems)]
    sources = [f"{name}.c", *runtime]
    with_test = golden is not None
    directory = Path(directory)
    with_math = any(MATH_HEADER in text for text in _runtime_texts(runtime).values())
    texts = {
        f"{name}.h": emit_c.header(plan, name),
        f"{name}.c": emit_c.source(plan, name, records, data, target),
        "Makefile": emit_host.makefile(name, sources, with_test, with_math),
        "CMakeLists.txt": emit_host.cmake_lists(name, sources, with_test, with_math),
        f"host/{name}_main.c": emit_host.main_program(plan, name, records),
    }
    if target.probe:
        texts |= {f"host/{file}": runtime_text(file) for file in POOL}
    if golden is not None:
        texts[f"host/{name}_test.c"] = emit_host.test_program(plan, name, golden)
    texts |= _runtime_texts([*runtime, *_present_runtime(directory)])
    _write_all(directory, texts)
    return EmitReport(
        tuple(sorted(texts)),
        4 * data.words,
        64 * len(records.records),
        plan.arena_bytes,
        sum(op.macs for op in plan.ops),
    )


def check_name(name: str) -> None:
    """Refuse a name that cannot prefix C symbols and files.

    Raises:
        InputError: it is no ASCII identifier, a keyword, or begins as the runtime's names do.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in _KEYWORDS:
        suggestion = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_0123456789")
        suggestion = suggestion if suggestion and suggestion not in _KEYWORDS else "net"
        raise InputError(f"--name {name!r} is no C identifier; try {suggestion!r}.")
    if name.lower().startswith("midge"):
        raise InputError(f"--name {name!r} begins with 'midge', as the runtime's own names do.")


def _runtime_texts(sources: Iterable[str]) -> dict[str, str]:
    """Return these sources of the runtime and the headers that they need, by file name."""
    texts: dict[str, str] = {}
    waiting = [*HEADERS, *sources]
    while waiting:
        name = waiting.pop()
        if name not in texts:
            texts[name] = runtime_text(name)
            waiting += re.findall(r'#include "(midge\w*\.h)"', texts[name])
    return texts


def _present_runtime(directory: Path) -> list[str]:
    """Return the runtime sources that another model left in the folder: they must fit ours."""
    known = {path.name for path in runtime_folder().glob("*/midge_*.c")}
    return sorted(path.name for path in directory.glob("midge_*.c") if path.name in known)


def _write_all(directory: Path, texts: Mapping[str, str]) -> None:
    """Write every file beside the folder first, then move all in; whatever fails is taken back."""
    check_folder(directory)
    where = directory
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}-"))
        try:
            for name, text in texts.items():
                where = directory / name
                _write(staging / "new" / name, text.encode())
                if where.exists():
                    _write(staging / "old" / name, where.read_bytes())
            _move(staging / "new", staging / "old", directory, texts)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{where}: cannot write the C sources ({error.strerror}).") from error


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _move(new: Path, old: Path, directory: Path, names: Iterable[str]) -> None:
    """Put files in place; what stops half-way, an interruption too, leaves the old ones."""
    moved = []
    try:
        for name in names:
            moved.append(name)
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(new / name, directory / name)
    except BaseException:
        for name in reversed(moved):
            target = directory / name
            if (old / name).exists():
                os.replace(old / name, target)
            else:
                target.unlink(missing_ok=True)
            with suppress(OSError):
                target.parent.rmdir()  # only where nothing is left in it
        raise
