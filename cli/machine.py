"""This machine and its tools, in words: what a measurement or a report must name."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from midge.core.native import cpu_features

# What decides the speed of INT8 on a CPU, in the spelling of /proc/cpuinfo
INT8_FEATURES = (
    "sse4_1",
    "avx2",
    "avx512bw",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "asimd",
    "asimddp",
    "i8mm",
)
PACKAGES = ("midge", "numpy", "onnx", "onnx-ir", "onnxruntime")
_TOOL_TIMEOUT_S = 20


def cpu_name() -> str:
    """Return the CPU's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def describe() -> str:
    """Return one line: CPU, cores, instruction sets, system."""
    features = cpu_features()
    int8 = " ".join(f for f in INT8_FEATURES if f in features) or "no known INT8 instructions"
    cores = os.cpu_count()
    return f"{cpu_name()}, {cores} cores, {int8}, {platform.system()} {platform.machine()}"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def package_version(name: str) -> str | None:
    """Return the version of an installed package, or None; nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def tool_version(program: str) -> str | None:
    """Return the first line of `program --version`, or None when it is missing or broken."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_TOOL_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.stdout.strip().splitlines()
    return lines[0] if lines else path


def gpus() -> list[str]:
    """Return the name and memory of every NVIDIA GPU that the driver reports."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return []
    query = [path, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.strip().splitlines() if answer.returncode == 0 else []
