"""What a wheel and an sdist carry, and that every folder of the tree is declared."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import pytest

import midge

ROOT = Path(str(files("midge")))
PYPROJECT = ROOT / "pyproject.toml"
TOP = ("cli", "convert", "core", "models", "quant", "runtime_c")
NO_FOLDERS_OF_THE_PACKAGE = {"tests", "docs", "build", "dist"}
BUILD_TIMEOUT_S = 300

checkout = pytest.mark.skipif(
    not PYPROJECT.exists(), reason="midge is installed from a wheel: there is no checkout"
)


def settings() -> dict[str, object]:
    """Return [tool.setuptools] of pyproject.toml."""
    loaded = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    tool = loaded["tool"]["setuptools"]
    assert isinstance(tool, dict)
    return tool


def test_the_installed_version_is_the_imported_one() -> None:
    assert midge.__version__ == version("midge")


def test_every_public_name_resolves() -> None:
    for name in midge.__all__:
        assert getattr(midge, name) is not None


def test_type_information_and_page_template_are_installed() -> None:
    for name in ("py.typed", "cli/report.html", "cli/report.css"):
        assert (files("midge") / name).is_file(), name


def test_the_c_runtime_is_installed() -> None:
    runtime = files("midge.runtime_c")
    assert any(f.name.endswith(".h") for f in (runtime / "include").iterdir())
    assert any(f.name.endswith(".c") for f in (runtime / "src").iterdir())


@checkout
def test_every_folder_with_python_is_listed_as_a_package() -> None:
    found = {"midge"} | {
        ".".join(("midge", *file.parent.relative_to(ROOT).parts))
        for top in TOP
        for file in (ROOT / top).rglob("*.py")
    }
    assert sorted(found) == settings()["packages"]


@checkout
def test_no_other_python_file_lies_at_the_root() -> None:
    assert [file.name for file in ROOT.glob("*.py")] == ["__init__.py"]


@checkout
def test_the_typing_links_name_every_folder() -> None:
    links = {link.name for link in (ROOT / ".typing" / "midge").iterdir()}
    assert links == {*TOP, "__init__.py", "py.typed"}
    assert all((ROOT / ".typing" / "midge" / name).exists() for name in links)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, offline with the installed setuptools."""
    if not PYPROJECT.exists():
        pytest.skip("midge is installed from a wheel: there is no checkout")
    pytest.importorskip("build")
    pytest.importorskip("setuptools")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def sources(patterns: tuple[str, ...]) -> set[str]:
    """Return files of the package folders, relative to the root."""
    return {
        file.relative_to(ROOT).as_posix()
        for top in TOP
        for pattern in patterns
        for file in (ROOT / top).rglob(pattern)
    }


@checkout
def test_the_wheel_holds_every_source_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    data = ("*.py", "*.c", "*.h", "*.cu", "*.ld", "*.S", "*.sh", "*.html", "*.css", "*.yaml")
    wanted = {"__init__.py", "py.typed", *sources(data)}
    assert names == {f"midge/{name}" for name in wanted}


@checkout
def test_the_sdist_holds_tests_and_pages_but_no_typing_links(
    distributions: tuple[Path, Path],
) -> None:
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "Makefile", "CHANGELOG.md", "tests/test_packaging.py"}
    assert wanted <= names
    assert not any(name.startswith(".typing") for name in names)
