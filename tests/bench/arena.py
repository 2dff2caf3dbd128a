"""The arena of six networks, `python tests/bench/arena.py`: whole tensors, streams, the bound.

MLPerf Tiny's four as int8 (three as they are shipped, the autoencoder quantized here) and two
MobileNetV2 exported from PyTorch with random weights, which do not matter here. Everything counts:
inputs, outputs, rings and scratch. Every placement is replayed row by row and compared with the
executor. Prints Markdown; --json FILE keeps the numbers. Needs MIDGE_MODELS and torch. Exit status
1 when a bar is missed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from x86_networks import calibration, export

import midge
from midge.convert.compile import arrange, random_inputs, read_plan
from midge.convert.executor import Executor
from midge.convert.memory_check import Arena
from midge.convert.plan import Plan
from midge.convert.target import C99, X86_64, Target
from midge.core.errors import CheckError, InputError, UnsupportedError

KB = 1024
SEED, SAMPLES = 0, 4
BARS = {  # bytes that --optimize size may take
    "AD": 1.3 * KB,
    "IC": 34 * KB,
    "KWS": 9.5 * KB,
    "VWW": 38 * KB,
    "MobileNetV2-0.3-80": 32 * KB,
    "MobileNetV2-224": 420 * KB,
}
SHIPPED = {
    "IC": "ic01_resnet8_int8_qdq.onnx",
    "KWS": "kws01_dscnn_int8_qdq.onnx",
    "VWW": "vww_mnv1_025_96_int8_qdq.onnx",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One network for one target; bytes.

    Args:
        network: its name.
        target: of the C.
        speed: arena for --optimize speed.
        size: arena for --optimize size --max-ram BAR.
        bound: no streams and no placement in this order of steps take less.
        bar: that `size` may not exceed.
        streams: of `size`.
        seconds: that planning for size took.
    """

    network: str
    target: str
    speed: int
    size: int
    bound: int
    bar: float
    streams: int
    seconds: float


def quantized(name: str, folder: Path) -> Path:
    """Return the int8 file of a network."""
    tiny = Path(os.environ.get("MIDGE_MODELS") or "") / "mlperf_tiny"
    if not os.environ.get("MIDGE_MODELS") or not tiny.is_dir():
        raise InputError(f"{tiny}: no such folder; MIDGE_MODELS must name the folder of models.")
    if name in SHIPPED:
        return tiny / SHIPPED[name]
    source, target = folder / f"{name}.onnx", folder / f"{name}.int8.onnx"
    if name == "AD":
        source = tiny / "ad01_autoencoder_fp32.onnx"
        x = np.random.default_rng(SEED).standard_normal((SAMPLES, 640)).astype(np.float32)
    else:
        export(name, source)
        x = np.concatenate(list(calibration(name, SAMPLES)))
    midge.quantize(source, target, x, io_type="int8")
    return target


def measure(name: str, plan: Plan, target: Target) -> Row:
    """Place a Plan for speed and for size."""
    arrange(plan, target, optimize="speed")
    replay(plan)
    speed = plan.arena_bytes
    start = time.perf_counter()
    with suppress(UnsupportedError):  # the table says by how much it is missed
        arrange(plan, target, optimize="size", max_ram=int(BARS[name]))
    seconds = time.perf_counter() - start
    replay(plan)
    size, bound, streams = plan.arena_bytes, plan.arena_bound, len(plan.streams)
    return Row(name, target.name, speed, size, bound, BARS[name], streams, seconds)


def replay(plan: Plan) -> None:
    """Watch every byte of one run.

    Raises:
        CheckError: the placement is wrong.
    """
    inputs = [x[0] for x in random_inputs(plan, 1, SEED)]
    pairs = zip(Arena(plan).run(inputs), Executor(plan).run(inputs), strict=True)
    if not all(np.array_equal(a, b) for a, b in pairs):
        raise CheckError(f"{plan.name}: the replay differs from the executor.")


def markdown(rows: list[Row]) -> Iterator[str]:
    """Yield the table."""
    yield "| network | target | speed | size | lower bound | gap | bar | streams | planned in |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        gap = r.size / r.bound - 1
        held = "" if r.size <= r.bar else ", missed"
        yield (
            f"| {r.network} | {r.target} | {r.speed:,} | {r.size:,} | {r.bound:,} | {gap:.1%} "
            f"| {r.bar:,.0f}{held} | {r.streams} | {r.seconds:.1f} s |"
        )


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(BARS), default=list(BARS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="midge-arena-") as scratch:
        for name in options.networks:
            print(f"{name} ...", file=sys.stderr, flush=True)
            file = quantized(name, Path(scratch))
            for target in (C99, X86_64):
                rows.append(measure(name, read_plan(file, name, target=target), target))
    print("\n".join(markdown(rows)))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return 0 if all(r.size <= r.bar for r in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(str(error))
