"""How many threads NumPy's matrix products use: one, unless the environment says otherwise.

BLAS threads wait for each other by spinning. The products of a small network are short, so on a
machine that does anything else two threads made a ResNet-8 step ten times slower, and on a quiet
one only slightly faster. They also compete with the threads of a data loader or a test runner.
"""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from midge.core.errors import InputError

# The environment variables that OpenBLAS and MKL read; one that is set is obeyed.
_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("64_", "")


def _candidates() -> list[Path]:
    """Return the files of the BLAS libraries that NumPy may have loaded."""
    package = Path(np.__file__).parent
    for folder in (package.with_name("numpy.libs"), package / ".dylibs"):
        if bundled := sorted(folder.glob("*openblas*")):
            return bundled
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths = {Path(line.split(maxsplit=5)[-1]) for line in lines if "openblas" in line}
    return sorted(p for p in paths if p.is_file() and "torch" not in p.parts)


@cache
def _functions() -> tuple[Any, Any] | None:
    """Return BLAS's own functions that set and get the number of threads, if they are found."""
    for path in _candidates():
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for prefix in _PREFIXES:
            for suffix in _SUFFIXES:
                setter = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                getter = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                if setter is not None and getter is not None:
                    return setter, getter
    return None


def set_num_threads(count: int) -> None:
    """Let matrix products use `count` threads; for all of NumPy in this process.

    A BLAS library that offers no such call (Apple's Accelerate) keeps its own number.

    Raises:
        InputError: count is below 1.
    """
    if count < 1:
        raise InputError(f"set_num_threads: {count} threads; at least 1 is needed.")
    found = _functions()
    if found is not None:
        found[0](ctypes.c_int(count))


def get_num_threads() -> int | None:
    """Return how many threads matrix products use, or None where BLAS does not tell."""
    found = _functions()
    return None if found is None else int(found[1]())


def obey_environment() -> None:
    """Use one thread unless an environment variable names another number."""
    if not any(os.environ.get(name) for name in _VARIABLES):
        set_num_threads(1)
