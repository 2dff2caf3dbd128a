import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from midge.core import native
from midge.core.errors import InputError, ToolError
from midge.core.kernels import library

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wdouble-promotion", "-Werror")
EVERY_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget the loaded kernels before and after a test."""
    library.load.cache_clear()
    yield
    library.load.cache_clear()


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("vectors", [(), ("-mavx2", "-mfma")], ids=["baseline", "avx2"])
def test_the_sources_are_clean_c99(
    name: str, vectors: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    if vectors and "avx2" not in native.cpu_features():
        pytest.skip("no AVX2")
    monkeypatch.setenv("MIDGE_CACHE", str(tmp_path))
    flags = ("-std=c99", "-O1", *STRICT, *vectors)
    sources = [library.FOLDER / source for source in library.SOURCES]
    native.compile_shared(sources, flags=flags, compiler=native.find_compiler(name))


def test_every_source_in_the_folder_is_built() -> None:
    assert sorted(p.name for p in library.FOLDER.glob("*.c")) == sorted(library.SOURCES)


def test_without_a_compiler_the_twins_work(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object, **options: object) -> Path:
        raise InputError("no C compiler found")

    monkeypatch.setattr(library, "compile_shared", none)
    assert library.load() is None
    assert library.library_for(np.zeros(1, np.float32)) is None


def test_a_compiler_that_fails_is_told_in_a_warning(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> Path:
        raise ToolError("cc could not compile im2col.c")

    monkeypatch.setattr(library, "compile_shared", broken)
    with pytest.warns(RuntimeWarning, match=r"fast kernels are off.*im2col\.c"):
        assert library.load() is None


@pytest.mark.parametrize(
    ("features", "flag"),
    [
        ({"sse2"}, None),
        ({"avx2"}, None),
        ({"avx2", "fma"}, "-mavx2"),
        ({"avx2", "fma", *EVERY_AVX512}, "-mavx512f"),
        ({"avx2", "fma", "avx512f"}, "-mavx2"),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_the_widest_vectors_of_the_machine_are_used(
    features: set[str], flag: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "cpu_features", lambda: frozenset(features))
    flags = library.vector_flags()
    assert flags[:1] == ((flag,) if flag else ())


def test_other_dtypes_go_to_the_twins() -> None:
    assert library.library_for(np.zeros(1, np.float64)) is None
    assert library.library_for(np.zeros(1, np.float32), np.zeros(1, np.float16)) is None
