"""midge doctor: what this machine can do, and the remedy for what it cannot."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from midge.cli import machine
from midge.cli.console import Console
from midge.cli.options import common_options
from midge.core.errors import CheckError, MidgeError
from midge.core.native import find_compiler

COMPILERS = ("gcc", "clang")
CROSS = {
    "arm-none-eabi-gcc": ("C for Cortex-M", "gcc-arm-none-eabi"),
    "riscv64-unknown-elf-gcc": ("C for RISC-V", "gcc-riscv64-unknown-elf"),
    "qemu-system-arm": ("emulated Cortex-M boards", "qemu-system-arm"),
    "qemu-system-riscv32": ("emulated RISC-V boards", "qemu-system-misc"),
}
VALGRIND = "valgrind"
EXTRAS = {
    "scikit-learn": ("midge demo", "demo"),
    "pillow": ("calibration on images", "images"),
    "ziglang": ("a C compiler in a wheel", "cross"),
    "ai-edge-litert": ("LiteRT in midge bench --peers", "peers"),
    "openvino": ("OpenVINO in midge bench --peers", "peers"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the answer.

    Args:
        part: the heading it belongs to.
        name: of the program, package or device.
        found: its version or description, None when it is missing.
        use: what it serves.
        remedy: how to get it, empty when it is there.
        needed: midge can do nothing useful without it.
    """

    part: str
    name: str
    found: str | None
    use: str
    remedy: str = ""
    needed: bool = False


def examine() -> Iterator[Finding]:
    """Yield a finding for everything midge can use."""
    yield Finding("machine", "CPU", machine.describe(), "host C and training")
    for name, number in machine.versions().items():
        yield Finding("package", name, number, "required")
    yield _compiler()
    for program in COMPILERS:
        yield _program("compiler", program, "host C", program)
    for program, (use, package) in CROSS.items():
        yield _program("cross", program, use, package)
    yield _program("measuring", VALGRIND, "midge bench --instructions", VALGRIND)
    for package, (use, extra) in EXTRAS.items():
        found = machine.package_version(package)
        yield Finding("extra", package, found, use, _unless(found, f"pip install midge[{extra}]"))
    yield from _gpu()


def _unless(found: str | None, remedy: str) -> str:
    return "" if found else remedy


def _compiler() -> Finding:
    use = "the compiler that midge uses"
    try:
        compiler = find_compiler()
    except MidgeError as error:
        return Finding("compiler", "C compiler", None, use, str(error), needed=True)
    return Finding("compiler", "C compiler", f"{compiler}: {compiler.version}", use, needed=True)


def _program(part: str, program: str, use: str, package: str) -> Finding:
    found = machine.tool_version(program)
    return Finding(part, program, found, use, _unless(found, f"apt-get install {package}"))


def _gpu() -> Iterator[Finding]:
    devices = machine.gpus()
    for device in devices:
        yield Finding("gpu", "NVIDIA GPU", device, "training and calibration")
    if not devices:
        yield Finding("gpu", "NVIDIA GPU", None, "training and calibration", "none needed")
    cupy = next(
        (v for x in ("12x", "13x") if (v := machine.package_version(f"cupy-cuda{x}"))), None
    )
    remedy = "pip install midge[cuda12]" if devices else "only with an NVIDIA GPU"
    yield Finding("gpu", "cupy", cupy, "arrays on the GPU", _unless(cupy, remedy))


@click.command("doctor")
@common_options
def command(as_json: bool, quiet: bool) -> None:
    """Say what this machine can do: compilers, emulators, GPU, instruction sets.

    Exit status 1 when something is missing that midge cannot do without.
    """
    console = Console(as_json, quiet)
    with console.working("Looking around"):
        findings = list(examine())
    rows = [(f.part, f.name, f.found or "-", f.use, f.remedy) for f in findings]
    console.table(("part", "name", "found", "used for", "remedy"), rows)
    console.result({"findings": [asdict(f) for f in findings]})
    missing = [f for f in findings if f.needed and f.found is None]
    if missing:
        raise CheckError(f"{missing[0].name} is missing. {missing[0].remedy}")
