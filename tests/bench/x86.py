"""The page docs/x86.md: `python tests/bench/x86.py --peers-python PYTHON --output docs/x86.md`.

The networks of MLPerf Tiny, two MobileNetV2 and ResNet-18 run as C of every instruction set of this
processor beside ONNX Runtime, LiteRT and OpenVINO. Needs MIDGE_MODELS, PyTorch for the networks
that are exported (kept in the cache of midge), and a Python with the other engines. It waits for a
busy machine. --json FILE keeps the numbers. An answer of the C that is wrong ends it with status 1.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import x86_networks
from x86_page import QUIET, page
from x86_tflite import write_tflite

import midge
from midge.cli.bench import CEntry, PeerEntry, c_entries, race
from midge.cli.machine import describe, versions
from midge.convert.bench_host import CHUNKS
from midge.convert.bench_peak import FLOAT32, INT8, peaks
from midge.convert.bench_peers import ENGINES, LITERT, installed, peers_python
from midge.convert.bench_program import FLAGS
from midge.convert.compile import arrange, random_inputs, read_plan
from midge.convert.lower import lower
from midge.convert.onnx_in import read_model
from midge.convert.plan import Plan
from midge.convert.size import measure
from midge.convert.target import host_target
from midge.core.errors import InputError
from midge.core.native import cache_directory, find_compiler

Array = npt.NDArray[Any]
SPEED, SIZE, EVERYTHING = "speed", "size", "all channels"
TINY = "mlperf_tiny"
AD_DATA = f"{TINY}/ad01_one_sample_normal_f32_640.bin"
POLL_S = 15


@dataclass(frozen=True, slots=True)
class Network:
    """One row of the page.

    Args:
        name: of the network.
        kind: INT8 or FLOAT32.
        onnx: file below MIDGE_MODELS; "" for one that is exported.
        tflite: the same; "" where it is written from the Plan.
        official: another .tflite file of the network, with other scales.
        threads: for which a race is run.
        dead: whether it has channels that are left out, so that a build keeps them.
    """

    name: str
    kind: str
    onnx: str = ""
    tflite: str = ""
    official: str = ""
    threads: tuple[int, ...] = (1,)
    dead: bool = False


NETWORKS = (
    Network("KWS", INT8, "kws01_dscnn_int8_qdq.onnx", "kws01_dscnn_int8.tflite"),
    Network("VWW", INT8, "vww_mnv1_025_96_int8_qdq.onnx", "vww_mnv1_025_96_int8.tflite", dead=True),
    Network("IC", INT8, "ic01_resnet8_int8_qdq.onnx", "ic01_resnet8_int8.tflite"),
    Network("AD", INT8, "ad01_autoencoder_fp32.onnx", official="ad01_autoencoder_int8.tflite"),
    Network("MobileNetV2-224", INT8, threads=(1, 2)),
    Network("MobileNetV2-0.3-80", INT8),
    Network("ResNet-18", INT8, threads=(1, 2)),
    Network("KWS", FLOAT32, "kws01_dscnn_fp32.onnx"),
    Network("VWW", FLOAT32, "vww_mnv1_025_96_fp32.onnx", "vww_mnv1_025_96_fp32.tflite"),
    Network("IC", FLOAT32, "ic01_resnet8_fp32.onnx", "ic01_resnet8_fp32.tflite"),
    Network("AD", FLOAT32, "ad01_autoencoder_fp32.onnx"),
    Network("one Relu", FLOAT32),
)


@dataclass
class Build:
    """One folder of C; bytes."""

    arena: int
    flash: int
    const: int
    records: int
    ideal: int


@dataclass
class Result:
    """What came out for one network and number of threads."""

    name: str
    kind: str
    threads: int
    macs: int
    race: dict[str, Any] = field(default_factory=dict)
    builds: dict[str, Build] = field(default_factory=dict)
    build_of: dict[str, str] = field(default_factory=dict)  # label of a row -> of its build


def files(network: Network, scratch: Path, python: str, engines: dict[str, str]) -> dict[str, Path]:
    """Return the .onnx and, where LiteRT is there, the .tflite of a network."""
    folder = Path(os.environ["MIDGE_MODELS"])
    made = {".onnx": scratch / "network.onnx", ".tflite": scratch / "network.tflite"}
    source = folder / TINY / network.onnx if network.onnx else exported(network.name)
    if network.kind == FLOAT32 or network.onnx.endswith("qdq.onnx"):
        made[".onnx"] = source
    else:
        data = (
            np.fromfile(folder / AD_DATA, np.float32).reshape(-1, 640)
            if network.onnx
            else x86_networks.calibration(network.name, 8)[:, 0]
        )
        midge.quantize(source, made[".onnx"], data, io_type="int8")
    if network.tflite:
        made[".tflite"] = folder / TINY / network.tflite
    elif LITERT in engines:
        write_tflite(read_plan(made[".onnx"], "network"), made[".tflite"], python)
    return {suffix: path for suffix, path in made.items() if path.exists()}


def exported(name: str) -> Path:
    """Return the float file of an exported network, made once for each state of the script."""
    text = Path(x86_networks.__file__).read_bytes()
    path = (
        cache_directory() / f"{name.replace(' ', '-')}-{hashlib.sha256(text).hexdigest()[:12]}.onnx"
    )
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            x86_networks.export(name, Path(folder) / path.name)
            (Path(folder) / path.name).rename(path)
    return path


def plans(network: Network, path: Path) -> Iterator[tuple[str, Plan]]:
    """Yield the builds of a network: (what is special, placed Plan)."""
    for optimize in (SPEED, SIZE):
        yield optimize, read_plan(path, "network", None, host_target(), optimize=optimize)
    if network.dead:
        plan = lower(read_model(path), name="network")
        arrange(plan, host_target(), optimize=SPEED)
        yield EVERYTHING, plan


def ideal_bytes(plan: Plan) -> int:
    """Return the bytes of weights, biases and one multiplier for each output channel."""
    total = 0
    for op in plan.ops:
        weight, bias = (getattr(op.params, name, None) for name in ("weight", "bias"))
        if weight is not None and bias is not None:
            total += weight.nbytes + bias.nbytes + 4 * len(bias) * (weight.dtype == np.int8)
    return total


@dataclass
class Prepared:
    """A network that is compiled; entries of the C with their builds' names."""

    network: Network
    plan: Plan
    paths: dict[str, Path]
    builds: dict[str, Build]
    entries: list[tuple[str, CEntry]]


def prepare(network: Network, scratch: Path, python: str) -> Prepared:
    """Write and compile every build of a network."""
    paths = files(network, scratch, python, installed(python))
    made = list(plans(network, paths[".onnx"]))
    prepared = Prepared(network, made[0][1], paths, {}, [])
    for special, plan in made:
        folder = scratch / special.replace(" ", "_")
        note, every = ("", True) if special == SPEED else (special, False)
        found, written = c_entries(
            plan, folder, host_target(), network.kind, every=every, note=note
        )
        size = measure(folder, "network", flags=(*FLAGS, "-fstack-usage"))
        prepared.builds[special] = Build(
            plan.arena_bytes,
            size.flash,
            written.const_bytes,
            written.record_bytes,
            ideal_bytes(plan),
        )
        prepared.entries += [(special, entry) for entry in found]
    return prepared


def run(ready: Prepared, threads: int, options: argparse.Namespace) -> Result:
    """Race one network; on several threads the best instruction set only, beside one thread."""
    network, engines = ready.network, installed(options.python)
    many = f", {threads} threads" if threads > 1 else ""
    entries = ready.entries
    if threads > 1:
        (special, one), *_ = ready.entries
        entries = [
            (special, one),
            (special, replace(one, label=one.label + many, threads=threads)),
        ]
    rivals = [
        PeerEntry(name + many, name, ready.paths[engine.suffix], threads=threads)
        for name, engine in ENGINES.items()
        if name in engines and engine.suffix in ready.paths
    ]
    if network.official and LITERT in engines:
        other = Path(os.environ["MIDGE_MODELS"]) / TINY / network.official
        rivals.append(PeerEntry(f"{LITERT}, official file", LITERT, other, judged=False))
    sample = [x[0] for x in random_inputs(ready.plan, 1, seed=0)]
    programs = [entry for _, entry in entries]
    done = race(ready.plan, sample, programs, rivals, python=options.python, chunks=options.chunks)
    macs = sum(op.macs for op in ready.plan.ops)
    build_of = {entry.label: special for special, entry in entries}
    used = {special: ready.builds[special] for special in build_of.values()}
    return Result(network.name, network.kind, threads, macs, done.to_json(), used, build_of)


def await_quiet(patience_s: float) -> None:
    """Wait until the machine is quiet, at most so long."""
    end = time.monotonic() + patience_s
    while os.getloadavg()[0] > QUIET and time.monotonic() < end:
        time.sleep(POLL_S)


def main() -> int:
    """Run and write; return the exit status."""
    names = list(dict.fromkeys(n.name for n in NETWORKS))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=names, default=names)
    parser.add_argument("--kinds", nargs="+", choices=(INT8, FLOAT32), default=(INT8, FLOAT32))
    parser.add_argument("--chunks", type=int, default=CHUNKS)
    parser.add_argument("--wait", type=float, default=300, help="seconds for a quiet machine")
    parser.add_argument("--peers-python", dest="python")
    parser.add_argument("--output", type=Path, help="the page", required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.python = peers_python(options.python)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="midge-x86-") as scratch:
        ready = []
        for index, network in enumerate(NETWORKS):
            if network.name in options.networks and network.kind in options.kinds:
                print(f"compiling {network.name}, {network.kind}", file=sys.stderr, flush=True)
                folder = Path(scratch) / str(index)
                folder.mkdir()
                ready.append(prepare(network, folder, options.python))
        await_quiet(options.wait)
        for prepared in ready:
            for threads in prepared.network.threads:
                results.append(run(prepared, threads, options))
                print("\n".join(results[-1].race["notices"]), end="", file=sys.stderr)
                write(results, options)  # what is there survives an interruption
    return 0


def write(results: list[Result], options: argparse.Namespace) -> None:
    """Write the page and the numbers of these results."""
    facts = {
        "machine": describe(),
        "versions": {**versions(), **installed(options.python)},
        "compiler": f"{find_compiler().version} {' '.join(FLAGS)}",
        "peaks": {f"{level}, {kind}": rate for (level, kind), rate in peaks().items()},
        "chunks": options.chunks,
        "results": [asdict(result) for result in results],
    }
    if options.output:
        options.output.write_text(page(facts), encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(str(error))
