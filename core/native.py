"""The one compiler service: it finds a C compiler, compiles, caches and reports failures.

A result is stored under a key made of everything that decides its bits: the bytes of the sources
and of the headers they include, the flags, the compiler's version and the machine. A file lock
makes parallel processes compile once; an atomic rename makes a half-written file impossible.
"""

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from midge.core.errors import InputError
from midge.core.native_objects import build

__all__ = [
    "Compiler",
    "cache_directory",
    "compile_program",
    "compile_shared",
    "cpu_features",
    "find_compiler",
]

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]', re.MULTILINE)
_REMEDY = "install gcc or clang, set CC, or 'pip install ziglang'"


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler.

    Attributes:
        argv: The command and its leading arguments, `("/usr/bin/gcc",)` or
            `("python", "-m", "ziglang", "cc")`.
        kind: "gcc", "clang" or "zig".
        version: The first line of `--version`; part of the cache key.
    """

    argv: tuple[str, ...]
    kind: str
    version: str

    def __str__(self) -> str:
        """Return the command as one types it."""
        return shlex.join(self.argv)


def find_compiler(prefer: str | None = None) -> Compiler:
    """Return a working C compiler.

    Args:
        prefer: A command ("clang", "/opt/gcc/bin/gcc", "zig"). Only this one is tried. Without it
            the order is $CC, cc, gcc, clang and the ziglang wheel.

    Raises:
        InputError: No compiler, or the one asked for, was found.
    """
    asked = prefer or os.environ.get("CC")
    if asked:
        compiler = _probe(_command(asked))
        if compiler is None:
            source = "the compiler" if prefer else "the environment variable CC"
            raise InputError(f"{source} {asked!r} is not a working C compiler; {_REMEDY}")
        return compiler
    for name in ("cc", "gcc", "clang", "zig"):
        if compiler := _probe(_command(name)):
            return compiler
    raise InputError(f"no C compiler found (tried $CC, cc, gcc, clang, ziglang); {_REMEDY}")


def _command(text: str) -> tuple[str, ...]:
    """Return the argv for a command line; an empty tuple where its program does not exist."""
    if text == "zig":
        return (sys.executable, "-m", "ziglang", "cc") if find_spec("ziglang") else ()
    words = shlex.split(text)
    program = shutil.which(words[0]) if words else None
    return (program, *words[1:]) if program else ()


@cache
def _probe(argv: tuple[str, ...]) -> Compiler | None:
    """Ask a command for its version; None where it is no C compiler."""
    if not argv:
        return None
    try:
        answer = subprocess.run(
            [*argv, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0 or not answer.stdout.strip():
        return None
    version = answer.stdout.splitlines()[0].strip()
    if "zig" in " ".join(argv).lower():
        return Compiler(argv, "zig", version)
    return Compiler(argv, "clang" if "clang" in version.lower() else "gcc", version)


@cache
def cpu_features() -> frozenset[str]:
    """Return this machine's CPU features by the kernel's names ("avx2", "fma", "avx512_vnni").

    Empty where /proc/cpuinfo does not exist; callers then use portable code.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def cache_directory() -> Path:
    """Return the folder that holds compiled files, created and writable.

    $MIDGE_CACHE, else $XDG_CACHE_HOME/midge, else ~/.cache/midge; where that cannot be written, a
    folder of this user's under the system's temporary folder.
    """
    chosen = os.environ.get("MIDGE_CACHE")
    xdg = os.environ.get("XDG_CACHE_HOME")
    wanted = Path(chosen) if chosen else (Path(xdg) if xdg else Path("~/.cache")) / "midge"
    with contextlib.suppress(OSError, RuntimeError):
        folder = wanted.expanduser().absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return _temporary_cache()


@cache
def _temporary_cache() -> Path:
    """Return a private folder under the temporary folder.

    Programs are loaded from it, so a folder that another user made or can write is not trusted.
    """
    folder = Path(tempfile.gettempdir()) / f"midge-cache-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        owned = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if owned and not found.st_mode & 0o022:
            return folder
    return Path(tempfile.mkdtemp(prefix="midge-cache-"))


def compile_shared(
    sources: Sequence[Path],
    *,
    flags: Sequence[str] = ("-O3",),
    include: Sequence[Path] = (),
    compiler: Compiler | None = None,
) -> Path:
    """Compile C sources to a shared library and return its path in the cache.

    Args:
        sources: C files.
        flags: Compiler flags; -shared and -fPIC are added.
        include: Folders for `#include`.
        compiler: Default: `find_compiler()`.

    Raises:
        InputError: No compiler, a missing source, or a flag that must not be cached.
        ToolError: The compiler failed; its first error lines are in the message.
    """
    return _build(sources, (*flags, "-shared", "-fPIC"), include, compiler, ".so")


def compile_program(
    sources: Sequence[Path],
    output: Path | None = None,
    *,
    flags: Sequence[str] = ("-O2",),
    include: Sequence[Path] = (),
    compiler: Compiler | None = None,
) -> Path:
    """Compile and link C sources to a program.

    Args:
        sources: C (or assembler) files.
        output: Where to put the program; None leaves it in the cache.
        flags: Compiler flags; those that start with -l or -Wl stand after the sources.
        include: Folders for `#include`.
        compiler: Default: `find_compiler()`.

    Returns:
        `output`, or the program's path in the cache.

    Raises:
        InputError: No compiler, a missing source, or a flag that must not be cached.
        ToolError: The compiler failed; its first error lines are in the message.
    """
    built = _build(sources, flags, include, compiler, "")
    if output is None:
        return built
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    os.close(handle)
    shutil.copy(built, name)  # copy() keeps the permission bits
    os.replace(name, output)
    return output


def _build(
    sources: Sequence[Path],
    flags: Sequence[str],
    include: Sequence[Path],
    compiler: Compiler | None,
    suffix: str,
) -> Path:
    """Return the cached result, compiling it once if it is not there."""
    native = [f for f in flags if re.fullmatch(r"-m(arch|cpu|tune)=native", f)]
    if native:
        raise InputError(
            f"{native[0]} is refused: the cache may be shared by machines with other CPUs; "
            "name the features (-mavx2) or use target attributes"
        )
    compiler = compiler or find_compiler()
    paths = [Path(s).absolute() for s in sources]
    folders = [Path(i).absolute() for i in include]
    key = _key(paths, [*compiler.argv[1:], *flags], folders, compiler)
    stem = paths[0].stem if paths else "empty"
    folder = cache_directory()
    target = folder / f"{stem}-{key}{suffix}"
    if target.exists():
        return target
    with _lock(folder / f"lock-{key[0]}"):  # sixteen lock files, whatever the number of results
        if not target.exists():
            keys = [_key([p], [*compiler.argv[1:], *flags], folders, compiler) for p in paths]
            build(compiler, list(zip(paths, keys, strict=True)), flags, folders, target)
    return target


def _key(
    sources: Sequence[Path], flags: Sequence[str], include: Sequence[Path], compiler: Compiler
) -> str:
    """Hash everything that decides the result."""
    digest = hashlib.sha256()
    facts = [platform.system(), platform.machine(), compiler.kind, compiler.version, *flags]
    if any(f.startswith("-m") for f in flags):
        facts += sorted(cpu_features())
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    joined = [Path(f[2:]) for f in flags if f[:2] in ("-I", "-T") and len(f) > 2]
    files = [p for p in (*(Path(f) for f in flags), *joined) if p.is_file()]
    folders = [*include, *(p for p in (*(Path(f) for f in flags), *joined) if p.is_dir())]
    for path, content in _closure([*sources, *files], folders):
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:32]


def _closure(sources: Sequence[Path], include: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield each source and every header that it includes, once, in the order of reading.

    Conditional compilation is ignored, so too many headers may be read but never too few. System
    headers are left to the compiler's version.
    """
    seen: set[Path] = set()
    waiting = list(reversed(sources))
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: the source cannot be read ({error.strerror})") from error
        yield path, content
        for match in reversed(_INCLUDE.findall(content)):
            name = os.fsdecode(match)
            found = next((f / name for f in (path.parent, *include) if (f / name).is_file()), None)
            if found is not None:
                waiting.append(Path(os.path.normpath(found)))


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the system drops it when the process dies."""
    import fcntl

    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
