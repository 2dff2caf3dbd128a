"""Runs emitted C on emulated boards."""

import shutil
import subprocess

import pytest

from midge.convert.build import link_flags
from midge.convert.target import runtime_folder

TOOLS = {
    "cortex-m4": ("arm-none-eabi-gcc", "qemu-system-arm"),
    "cortex-m55": ("arm-none-eabi-gcc", "qemu-system-arm"),
    "rv32imc": ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
}


def run(work, folder, name, board, form):
    """Build NAME_test.c of a folder for a board and run it; return (exit status, output)."""
    missing = [tool for tool in TOOLS[board] if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    sources = [*folder.glob("*.c"), folder / "host" / f"{name}_test.c"]
    flags = [f"-I{folder}", f"-DMIDGE_REQUANT_{form}", *link_flags(sources)]
    script = runtime_folder() / "targets" / "run.sh"
    command = ["sh", script, board, work / "program.elf", *sources, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr
