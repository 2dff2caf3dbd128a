"""Measures an emitted folder as compiled: flash, RAM and stack."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from midge.convert.build import link_flags, model_sources
from midge.convert.elf import section_sizes
from midge.core.errors import InputError, ToolError
from midge.core.native import Compiler, find_compiler

_MEASURING = ("-fno-sanitize=undefined", "-fstack-usage")  # zig would add a sanitizer
FLAGS = ("-Os", *_MEASURING)
_CODE = re.compile(r"\.text(?!\.startup)|\.init|\.fini")
_CONST = re.compile(r"\.rodata|\.data\.rel\.ro|\.srodata")


@dataclass(frozen=True, slots=True)
class SizeReport:
    """Sizes in bytes.

    Attributes:
        text: code (.text) of the model and the runtime.
        rodata: const data without the weights: records, tensor descriptions, jump tables.
        weights: weights, biases, multipliers and tables.
        arena: RAM of one session.
        stack: the most that midge_run needs, an upper bound; None where the compiler cannot say.
        label: compiler, target and flags of these figures.
    """

    text: int
    rodata: int
    weights: int
    arena: int
    stack: int | None
    label: str

    @property
    def flash(self) -> int:
        """All that must be stored."""
        return self.text + self.rodata + self.weights


def measure(
    directory: Path,
    name: str,
    *,
    compiler: Compiler | None = None,
    flags: Sequence[str] = FLAGS,
) -> SizeReport:
    """Compile NAME.c and its runtime and add up their sections.

    Args:
        directory: written by `emit`.
        name: of the model.
        compiler: default: the first one found, whose figures are those of this host.
        flags: of the compiler; -fstack-usage gives the stack.

    Raises:
        InputError: a file or a compiler is missing.
        ToolError: the compiler failed, or its objects are not in ELF format.
    """
    compiler = compiler or find_compiler()
    directory = Path(directory).absolute()
    with tempfile.TemporaryDirectory(prefix="midge-size-") as folder:
        work = Path(folder)
        for source in model_sources(directory, name):
            _compile(compiler, source, directory, flags, work)
        text, const = _sections(sorted(work.glob("*.o")))
        stack = _stack(work)
    weights = 4 * len(re.findall(r"0x[0-9a-f]{8},", _data_block(directory, name)))
    shown = " ".join(flag for flag in flags if flag not in _MEASURING)
    library = ", libm not counted" if link_flags(model_sources(directory, name)) else ""
    label = f"host ({compiler.version}, {shown}{library})"
    return SizeReport(text, const - weights, weights, _arena(directory, name), stack, label)


def _compile(
    compiler: Compiler, source: Path, include: Path, flags: Sequence[str], work: Path
) -> None:
    """Compile one source to an object, and its .su beside it."""
    command = [*compiler.argv, *flags, "-c", str(source), f"-I{include}", "-o", f"{source.stem}.o"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        first = (done.stderr.strip() or "no message").splitlines()[0]
        raise ToolError(f"{compiler} could not compile {source.name}: {first}")


def _sections(objects: Sequence[Path]) -> tuple[int, int]:
    """Return the bytes of code and of const data."""
    sizes = [section for path in objects for section in section_sizes(path)]
    text = sum(size for name, size in sizes if _CODE.match(name))
    return text, sum(size for name, size in sizes if _CONST.match(name))


def _stack(work: Path) -> int | None:
    """Return an upper bound on the stack of midge_run from the compiler's .su files.

    midge_run calls one kernel at a time, perhaps through midge_stream, and a kernel calls only
    functions of its own file, none of them twice on one path (nothing recurses): the frames of a
    file add up to at least its deepest path. Library functions that a target without FPU needs
    for float32 are not in these files.
    """
    frames: dict[str, dict[str, int]] = {}
    for path in work.glob("midge_*.su"):
        rows = re.findall(r":(\w+)\t(\d+)\t", path.read_text(encoding="utf-8"))
        frames[path.stem] = {function: int(size) for function, size in rows}
    if not frames:
        return None
    for outside in ("midge_x86", "midge_parallel"):
        frames.pop(outside, None)
    session = frames.pop("midge_session", {})
    run = session.get("midge_run", 0) + session.get("run_op", 0)
    run += sum(frames.pop("midge_stream", {}).values())
    return run + max((sum(file.values()) for file in frames.values()), default=0)


def _data_block(directory: Path, name: str) -> str:
    """Return the text of the model's const data in NAME.c."""
    text = (directory / f"{name}.c").read_text(encoding="utf-8")
    start = text.index(f"uint32_t {name}_data[]")
    return text[start : text.index("};", start)]


def _arena(directory: Path, name: str) -> int:
    """Return NAME_ARENA_BYTES."""
    text = (directory / f"{name}.h").read_text(encoding="utf-8")
    found = re.search(rf"{name.upper()}_ARENA_BYTES (\d+)u", text)
    if found is None:
        raise InputError(f"{directory / name}.h has no {name.upper()}_ARENA_BYTES.")
    return int(found[1])
