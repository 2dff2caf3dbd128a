"""Time and memory of calibration: `python tests/bench/calibration.py [MODEL.onnx]`.

Prints, for each method, the time of midge and of onnxruntime.quantization's calibrator of the same
method over the same samples, with plain inference as the floor; all candidates take turns in one
run. Then the peak memory of a process that calibrates on 64 and on 4,096 samples.

The model is the canonical form of MODEL; by default of the ResNet-8 below MIDGE_MODELS.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime as rt
from onnxruntime.quantization.calibrate import (
    CalibrationDataReader,
    CalibrationMethod,
    create_calibrator,
)

from midge.convert import graph as g
from midge.convert.activation_params import tensors_to_observe
from midge.convert.calibrate import METHODS, calibrate
from midge.convert.onnx_in import read_model
from midge.convert.ort import make_session, run
from midge.convert.pipeline import convert_file
from midge.convert.select import select

# Method of midge -> method and options of onnxruntime.quantization; it has no MSE.
THEIRS = {
    "minmax": (CalibrationMethod.MinMax, {}),
    "average": (CalibrationMethod.MinMax, {"moving_average": True}),
    "percentile": (CalibrationMethod.Percentile, {}),
    "entropy": (CalibrationMethod.Entropy, {}),
}
PEAKS = (64, 4096)  # samples
Samples = Callable[[], Iterator[dict[str, Any]]]


def samples_for(model: Path, count: int) -> Samples:
    """Return a function that yields random inputs, one at a time, the same every time."""
    inputs = [
        (g.name_of(v), [d or 1 for d in g.dims(v) or ()]) for v in read_model(model).graph.inputs
    ]

    def samples() -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng(0)
        for _ in range(count):
            yield {name: rng.standard_normal(shape, np.float32) for name, shape in inputs}

    return samples


def plain(model: Path, samples: Samples) -> None:
    session = make_session(model)
    for sample in samples():
        run(session, sample)


def ours(model: Path, samples: Samples, method: str) -> None:
    graph = read_model(model)
    calibrate(graph, samples(), method, tensors=tensors_to_observe(select(graph)))


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Samples as onnxruntime.quantization wants them."""

    def __init__(self, samples: Samples) -> None:
        self.items = samples()

    def get_next(self) -> dict[str, Any] | None:
        return next(self.items, None)


def theirs(model: Path, samples: Samples, method: str) -> None:
    kind, extra = THEIRS[method]
    with tempfile.TemporaryDirectory() as folder:
        calibrator = create_calibrator(
            model,
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=kind,
            extra_options=extra,
        )
        calibrator.collect_data(Reader(samples))
        calibrator.compute_data()


def timings(model: Path, count: int, repeats: int) -> dict[str, list[float]]:
    """Return seconds of every candidate, all taking turns."""
    samples = samples_for(model, count)
    candidates: dict[str, Callable[[], None]] = {"plain inference": lambda: plain(model, samples)}
    for method in METHODS:
        candidates[f"midge {method}"] = lambda m=method: ours(model, samples, m)  # type: ignore[misc]
        if method in THEIRS:
            candidates[f"theirs {method}"] = lambda m=method: theirs(model, samples, m)  # type: ignore[misc]
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, candidate in candidates.items():
            begin = time.perf_counter()
            candidate()
            taken[name].append(time.perf_counter() - begin)
    return taken


def peak_mb(model: Path, method: str, count: int) -> float:
    """Return the peak of resident memory of a process that calibrates."""
    command = [sys.executable, __file__, str(model), "--peak", method, "--samples", str(count)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def own_peak_mb() -> float:
    """Return the peak of this process alone; ru_maxrss would hold that of its parent too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(model: Path, count: int, repeats: int) -> None:
    taken = {name: median(times) for name, times in timings(model, count, repeats).items()}
    base = taken["plain inference"]
    print(f"plain inference of {count} samples: {base:.2f} s\n")
    print(
        "| method | midge, s | onnxruntime.quantization, s | midge / theirs | midge / inference |"
    )
    print("|---|---:|---:|---:|---:|")
    for method in METHODS:
        mine, other = taken[f"midge {method}"], taken.get(f"theirs {method}")
        ratio = f"{other:.2f} | {mine / other:.2f}" if other else "none | -"
        print(f"| {method} | {mine:.2f} | {ratio} | {mine / base:.2f} |")
    print(f"\n| method | {' | '.join(f'{n:,} samples, MB' for n in PEAKS)} |\n|---|---:|---:|")
    for method in METHODS:
        print(f"| {method} | {' | '.join(f'{peak_mb(model, method, n):.0f}' for n in PEAKS)} |")


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peak", help="a method: print this process's peak of memory in MB")
    options = parser.parse_args()
    if options.peak:
        ours(options.model, samples_for(options.model, options.samples), options.peak)
        print(own_peak_mb())
        return
    folder = Path(os.environ.get("MIDGE_MODELS", "."))
    source = options.model or next(folder.rglob("ic01_resnet8_fp32.onnx"))
    print(f"{source.name}; {cpu()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, onnxruntime {rt.__version__}"
    )
    with tempfile.TemporaryDirectory() as work:
        convert_file(source, Path(work) / "model.onnx")
        show(Path(work) / "model.onnx", options.samples, options.repeats)


if __name__ == "__main__":
    main()
