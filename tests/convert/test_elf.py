"""Section sizes of object files, against the numbers that a compiler was asked for."""

import shutil
import subprocess
from pathlib import Path

import pytest

from midge.convert.elf import section_sizes
from midge.core.errors import ToolError

SOURCE = "const unsigned char table[777] = {1}; static int state[5]; int *f(void) { return state; }"
COMPILERS = ["gcc", "clang", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc"]


def compiled(compiler: str, folder: Path) -> Path:
    """Return an object made from SOURCE, or skip."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (folder / "a.c").write_text(SOURCE)
    subprocess.run([compiler, "-O1", "-c", "a.c"], cwd=folder, check=True)
    return folder / "a.o"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_sections_have_the_sizes_of_what_lies_in_them(compiler: str, tmp_path: Path) -> None:
    sizes = dict(section_sizes(compiled(compiler, tmp_path)))
    assert sum(n for section, n in sizes.items() if section.startswith(".rodata")) == 777
    assert sum(n for section, n in sizes.items() if "bss" in section) == 20
    assert sizes[".text"] > 0
    assert ".comment" not in sizes


def test_they_are_those_that_binutils_counts(tmp_path: Path) -> None:
    if shutil.which("size") is None:
        pytest.skip("binutils is not installed")
    path = compiled("gcc", tmp_path)
    listing = subprocess.run(["size", "-A", path], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listing.stdout.splitlines() if line.startswith("."))
    wanted = {row[0]: int(row[1]) for row in rows}
    found = dict(section_sizes(path))
    assert found == {name: size for name, size in wanted.items() if name in found}
    assert {".text", ".rodata", ".bss"} <= set(found)


@pytest.mark.parametrize("content", [b"", b"not an object", b"\x7fELF\x02\x01\x01"])
def test_what_is_no_object_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.o").write_bytes(content)
    with pytest.raises(ToolError, match=r"a\.o is no ELF object"):
        section_sizes(tmp_path / "a.o")


def test_a_cut_object_is_told(tmp_path: Path) -> None:
    path = compiled("gcc", tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ToolError, match="no ELF object"):
        section_sizes(path)
