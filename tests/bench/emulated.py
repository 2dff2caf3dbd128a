"""Networks on a processor that is not there: `python tests/bench/emulated.py > docs/vnni.md`.

Boots Linux in Bochs, which emulates an Ice Lake with AVX512-VNNI instruction by instruction, and
runs there the C of each network on every instruction set, ONNX Runtime on the same file, and other
engines. Compares every output byte with the integer executor and counts instructions, those of the
kernel included. How long they take on a real processor it cannot say.

Needs MIDGE_MODELS, and from Debian: bochs bochsbios vgabios linux-image-amd64 isolinux
syslinux-common genisoimage busybox-static cpio. --peers-python names a Python with the engines.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import x86
import x86_bits

from midge.cli.machine import versions
from midge.convert import bench_worker
from midge.convert.bench_peers import ENGINES, installed, peers_python
from midge.convert.compile import random_inputs, read_plan
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.target import OPTIMIZE, X86_64
from midge.core.native import compile_program

CPU, LEVELS = "corei7_icelake_u", ("avx2", "avx512vnni")
# Bochs 2.7 states sizes of the extended registers that Linux does not believe while PKU and the
# compact forms are there, and its fast string moves, which ERMS stands for, lose bytes.
KERNEL = (
    "console=ttyS0 quiet mitigations=off nokaslr nosmp noapic nolapic acpi=off lsm=yama "
    "rootfstype=ramfs random.trust_cpu=on lpj=4000000 tsc=reliable clocksource=tsc noxsaves "
    "clearcpuid=pku,xsavec,xsaves,erms,fsrm"
)
BOCHS = """megs: {megs}
cpu: model={cpu}, count=1, ips=100000000, reset_on_triple_fault=0
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
display_library: rfb, options="timeout=0"
ata0-master: type=cdrom, path={folder}/cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={folder}/serial.txt
log: {folder}/bochs.log
clock: sync=none
"""
ISOLINUX = f"DEFAULT linux\nLABEL linux\n KERNEL vmlinuz\n INITRD initrd\n APPEND {KERNEL}\n"
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1 </dev/null
export HOME=/tmp OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONPATH={path}
{python} /guest/emulated_guest.py /guest
echo "midge: done"
/bin/busybox poweroff -f
"""
CALIBRATE = """#include <stdlib.h>
int main(int argc, char **argv) {
    long turns = argc > 1 ? atol(argv[1]) : 1;
    __asm__ volatile("1: dec %0\\n jnz 1b" : "+r"(turns));
    return 0;
}
"""
LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "ensurepip", "pip", "setuptools")
DEVICES = ("libopenvino_intel_gpu*", "libopenvino_intel_npu*", "*.pyi")


def prepare(network: x86.Network, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Write programs, inputs and expected outputs of a network; return its entry in work.json."""
    engines = installed(options.python)
    with tempfile.TemporaryDirectory(prefix="midge-emulated-") as scratch:
        paths = x86.files(network, Path(scratch), options.python, engines)
        for suffix, path in paths.items():
            shutil.copy(path, folder / f"network{suffix}")
    file = folder / "network.onnx"
    plan = read_plan(file, "net")
    macs = sum(op.macs for op in plan.ops)
    samples = int(np.clip(options.macs // max(macs, 1), 4, options.samples))
    x = random_inputs(plan, samples, seed=0)
    x86_bits.rows(x).tofile(folder / "inputs.bin")
    if network.kind == x86.INT8:
        x86_bits.rows(Executor(plan).run_batch(x)).tofile(folder / "want.bin")
    np.savez(folder / "inputs.npz", **{str(i): a for i, a in enumerate(x)})
    builds = dict(programs(file, folder))
    codes = [plan.tensors[t].file_params for t in plan.inputs]
    return {
        "name": f"{network.name}, {network.kind}",
        "folder": folder.name,
        "samples": samples,
        "calls": max(samples // 10, 2),
        "builds": list(builds),
        "levels": {name: X86_64.levels.index(name) for name in options.levels},
        "engines": [ENGINES[name].key for name in engines],
        "params": [None if p is None else (float(p.scale), p.zero_point) for p in codes],
        "codes": network.kind == x86.INT8,
    }


def programs(file: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Compile a network for speed and for size, without shared libraries."""
    for optimize in OPTIMIZE:
        plan = read_plan(file, "net", None, X86_64, optimize=optimize)
        with tempfile.TemporaryDirectory(prefix="midge-emulated-") as scratch:
            emit(plan, Path(scratch) / "c", "net", target=X86_64)
            made = x86_bits.build(
                Path(scratch) / "c", 1, flags=("-O3", "-pthread", "-static", "-lm")
            )
            yield optimize, Path(shutil.copy(made, folder / optimize))


def root_of(python: str, root: Path) -> None:
    """Copy a Python, its packages and every shared library that they name."""
    ask = "import sys, sysconfig, json; print(json.dumps([sys.base_prefix, sysconfig.get_paths()]))"
    done = subprocess.run([python, "-c", ask], capture_output=True, check=True)
    _, paths = json.loads(done.stdout)
    binary = Path(os.path.realpath(python))
    for source, more in ((paths["stdlib"], ["site-packages"]), (paths["purelib"], DEVICES)):
        kept = shutil.ignore_patterns(*LEFT_OUT, "config-*", *more)
        inside = root / Path(source).relative_to("/")
        shutil.copytree(source, inside, ignore=kept, symlinks=True, dirs_exist_ok=True)
    for file in (binary, Path("/bin/busybox")):
        (root / file.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file.relative_to("/"))
    objects = [
        binary,
        *(Path("/") / p.relative_to(root) for p in root.rglob("*.so*") if p.is_file()),
    ]
    for library in sorted({name for file in objects for name in needed(file)}):
        inside = root / Path(library).relative_to("/")
        if not inside.exists():
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, inside)
    (root / "init").write_text(INIT.format(python=binary, path=paths["purelib"]))
    (root / "init").chmod(0o755)


def needed(file: Path) -> Iterator[str]:
    """Yield the shared libraries that a file loads."""
    done = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        for word in line.split():
            if word.startswith("/") and Path(word).exists():
                yield word


def image(folder: Path, root: Path) -> None:
    """Write the CD that the machine boots from: the root lies in memory."""
    cd = folder / "cd"
    cd.mkdir()
    kernel = max(Path("/boot").glob("vmlinuz-*"), key=lambda p: p.stat().st_mtime)
    shutil.copy(kernel, cd / "vmlinuz")
    for name in ("/usr/lib/ISOLINUX/isolinux.bin", "/usr/lib/syslinux/modules/bios/ldlinux.c32"):
        shutil.copy(name, cd)
    (cd / "isolinux.cfg").write_text(ISOLINUX)
    with (cd / "initrd").open("wb") as stream:
        names = subprocess.Popen(["find", "."], cwd=root, stdout=subprocess.PIPE)
        pack = ["cpio", "-o", "-H", "newc", "--quiet"]
        subprocess.run(pack, cwd=root, stdin=names.stdout, stdout=stream, check=True)
    boot = ("-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot", "-boot-load-size", "4")
    command = ["genisoimage", "-quiet", "-o", str(folder / "cd.iso"), *boot, "-boot-info-table"]
    subprocess.run([*command, str(cd)], check=True, stderr=subprocess.DEVNULL)
    shutil.rmtree(cd)


def boot(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Start the machine and yield what it says, until it is done."""
    text = BOCHS.format(folder=folder, cpu=options.cpu, megs=options.megs)
    (folder / "bochsrc").write_text(text)
    serial, said = folder / "serial.txt", 0
    machine = subprocess.Popen(
        ["bochs", "-q", "-f", "bochsrc"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=(folder / "bochs.txt").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        assert machine.stdin is not None
        machine.stdin.write(b"c\n")  # Debian's Bochs waits for its debugger
        machine.stdin.flush()
        end = time.monotonic() + options.seconds
        while time.monotonic() < end and machine.poll() is None:
            time.sleep(2)
            text = serial.read_text(errors="replace") if serial.exists() else ""
            lines = [part.split("\n")[0] for part in text.split("midge: ")[1:]]
            whole = lines if text.endswith("\n") else lines[:-1]
            for line in whole[said:]:
                if line.strip() == "done":
                    return
                yield json.loads(line)
            said = max(said, len(whole))  # a line is only half there at times
        bochs = (folder / "bochs.txt").read_text(errors="replace")
        sys.exit(f"the machine did not come to an end; it said:\n{bochs[-800:]}\n{text[-2000:]}")
    finally:
        machine.kill()


def row(found: dict[str, Any], rival: dict[str, int]) -> str:
    """Return a line of the table."""
    name = found["network"]
    if "error" in found:
        return f"| {name} | {found['what']} | {found['error']} | | | |"
    compared = f"{found['bytes']:,} | {found['differ']:,}" if "bytes" in found else " | "
    if "instructions" not in found:
        return f"| {name} | {found['what']} |  |  | {compared} |"
    times = f"{found['instructions'] / rival[name]:.2f}" if name in rival else ""
    return (
        f"| {name} | {found['what']} | {found['instructions'] / 1e6:.3f} | {times} | {compared} |"
    )


def page(found: list[dict[str, Any]], options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of docs/vnni.md."""
    known = {**versions(), **installed(options.python)}
    yield from (
        "# AVX512-VNNI, emulated",
        "",
        "`python tests/bench/emulated.py > docs/vnni.md` writes this page; nothing here is typed.",
        "",
        f"Bochs emulates the processor ({options.cpu}) one instruction after another: what runs on "
        "it computes the bits that the processor's manuals define. C and ONNX Runtime, with all "
        "its optimizations and no other option, computed the same random inputs; every output byte "
        "was compared with the integer executor, of float32 networks with the first row. Of files "
        "with int8 activations ONNX Runtime leaves parts in float, and differs there, unless "
        "session.qdqisint8allowed is 1.",
        "",
        "Instructions are those of one inference on one thread, in millions, the kernel's and an "
        "engine's Python call included. **They are no time:** instructions differ in what they "
        "cost, and an emulator has no caches to miss.",
        "",
        f"{', '.join(f'{name} {version}' for name, version in known.items())}",
        "",
        "| network | program | instructions | x ONNX Runtime | bytes | differ |",
        "|---|---|--:|--:|--:|--:|",
    )
    rival = {f["network"]: f["instructions"] for f in found if f["what"] == "onnxruntime"}
    yield from (row(f, rival) for f in found)


def main() -> int:
    """Run and print Markdown; return 1 where a byte differs."""
    networks = {f"{n.name}, {n.kind}": n for n in x86.NETWORKS if n.name != "one Relu"}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=networks, default=list(networks))
    parser.add_argument(
        "--levels", nargs="+", choices=X86_64.levels, default=["avx2", "avx512vnni"]
    )
    parser.add_argument("--samples", type=int, default=1000, help="at most, of each network")
    parser.add_argument("--macs", type=float, default=4e9, help="of all samples of a network")
    parser.add_argument("--seconds", type=float, default=3600, help="after which to give up")
    parser.add_argument("--megs", type=int, default=2048, help="2048 at most")
    parser.add_argument("--cpu", default=CPU, help="as Bochs names it")
    parser.add_argument("--peers-python", dest="python")
    options = parser.parse_args()
    options.python = peers_python(options.python)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="midge-emulated-") as scratch:
        folder, root = Path(scratch), Path(scratch) / "root"
        work = root / "guest"
        work.mkdir(parents=True)
        entries = []
        for index, name in enumerate(options.networks):
            print(f"compiling {name}", file=sys.stderr, flush=True)
            (work / str(index)).mkdir()
            entries.append(prepare(networks[name], work / str(index), options))
        (work / "work.json").write_text(json.dumps(entries))
        source = folder / "calibrate.c"
        source.write_text(CALIBRATE)
        made = compile_program([source], flags=["-O1", "-static"], include=[])
        shutil.copy(made, work / "calibrate")
        for script in (Path(__file__).with_name("emulated_guest.py"), Path(bench_worker.__file__)):
            shutil.copy(script, work)
        root_of(options.python, root)
        image(folder, root)
        shutil.rmtree(root)
        for answer in boot(folder, options):
            found.append(answer)
            print(json.dumps(answer), file=sys.stderr, flush=True)
    print("\n".join(page(found, options)))
    return 1 if any(f.get("differ") and f["what"].startswith("C ") for f in found) else 0


if __name__ == "__main__":
    sys.exit(main())
