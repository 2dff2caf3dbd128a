"""Compiles C sources one by one, each once for all programs that contain it, and links them."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from midge.core.errors import ToolError

if TYPE_CHECKING:
    from midge.core.native import Compiler

_ERROR_LINES = 6
_LINK_ONLY = ("-l", "-Wl", "-shared", "-static", "-nostartfiles", "-nostdlib", "-T")
KEPT_BYTES = 256 * 1024  # of a source; the weights of a model are compiled for its program only


def build(
    compiler: "Compiler",
    sources: Sequence[tuple[Path, str]],
    flags: Sequence[str],
    include: Sequence[Path],
    target: Path,
) -> None:
    """Compile and link to a temporary name beside `target` and rename.

    Args:
        compiler: what compiles and links.
        sources: absolute path of each source, and a key of all that decides its object.
        flags: of the compiler and the linker; those that start with -l or -Wl stand at the end.
        include: folders for `#include`.
        target: the result; objects are kept in its folder.

    Raises:
        ToolError: the compiler failed; its first error lines are in the message.
    """
    linker = [f for f in flags if f.startswith(("-l", "-Wl"))]
    command = [*compiler.argv, *_zig_defaults(compiler, flags)]
    command += [f for f in flags if f not in linker]
    command += [f"-I{folder}" for folder in include]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as name:
        folder = Path(name)
        paths = [path for path, _ in sources]
        if len(paths) > 1:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                made = [
                    pool.submit(_object, compiler, command, path, key, folder, target)
                    for path, key in sources
                ]
                paths = [future.result() for future in made]
        _run(compiler, [*command, *map(str, paths)], linker, paths, folder / target.name)
        os.replace(folder / target.name, target)


def _object(
    compiler: "Compiler", command: Sequence[str], source: Path, key: str, folder: Path, target: Path
) -> Path:
    """Return the object of a source, from the cache where it is there."""
    kept = target.parent / f"{source.stem}-{key}.o"
    if kept.exists():
        return kept
    output = folder / kept.name
    alone = [f for f in command if not f.startswith(_LINK_ONLY)]
    _run(compiler, [*alone, "-c", str(source)], [], [source], output)
    if source.stat().st_size <= KEPT_BYTES:
        os.replace(output, kept)
        return kept
    return output


def _run(
    compiler: "Compiler",
    command: Sequence[str],
    linker: Sequence[str],
    sources: Sequence[Path],
    output: Path,
) -> None:
    """Run the compiler.

    Raises:
        ToolError: it failed.
    """
    answer = subprocess.run(
        [*command, "-o", str(output), *linker],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if answer.returncode != 0 or not output.exists():
        names = ", ".join(s.name for s in sources[:3]) + (", ..." if len(sources) > 3 else "")
        lines = "\n  ".join(_first_errors(answer.stderr or answer.stdout))
        raise ToolError(f"{compiler} could not compile {names}:\n  {lines}")


def _zig_defaults(compiler: "Compiler", flags: Sequence[str]) -> list[str]:
    """Return what makes `zig cc` behave as gcc: no native CPU and no hidden sanitizer."""
    if compiler.kind != "zig":
        return []
    given = [*compiler.argv, *flags]
    result = []
    if not any(f.startswith(("-mcpu", "-target", "--target", "-march")) for f in given):
        result.append("-mcpu=baseline")
    if not any(f.startswith("-fsanitize") for f in given):
        result.append("-fno-sanitize=undefined")
    return result


def _first_errors(text: str) -> list[str]:
    """Return the compiler's first error lines, or its first lines where none says "error"."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "undefined" in line.lower()]
    return (errors or lines or ["it printed nothing"])[:_ERROR_LINES]
