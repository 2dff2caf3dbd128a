"""The golden test passes on emulated boards."""

import shutil
import subprocess

import pytest

from midge.convert.emit import emit
from midge.convert.emit_c import runtime_folder

BOARDS = [
    ("cortex-m4", "FLOAT", ("arm-none-eabi-gcc", "qemu-system-arm")),
    ("cortex-m4", "INT", ("arm-none-eabi-gcc", "qemu-system-arm")),
    ("cortex-m55", "FLOAT", ("arm-none-eabi-gcc", "qemu-system-arm")),
    ("rv32imc", "INT", ("riscv64-unknown-elf-gcc", "qemu-system-riscv32")),
]


@pytest.fixture(scope="module")
def folder(zoo, tmp_path_factory):
    directory = tmp_path_factory.mktemp("zoo")
    emit(zoo.plan(), directory, "zoo", golden=(zoo.feeds, zoo.wants))
    return directory


@pytest.mark.board
@pytest.mark.parametrize(("board", "form", "tools"), BOARDS)
def test_every_operator_passes_on_the_board(folder, tmp_path, board, form, tools):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    sources = [*folder.glob("*.c"), folder / "host" / "zoo_test.c"]
    script = runtime_folder() / "targets" / "run.sh"
    flags = [f"-I{folder}", f"-DMIDGE_REQUANT_{form}"]
    command = ["sh", script, board, tmp_path / "zoo.elf", *sources, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "zoo: pass, 2 samples\n"), done.stderr
