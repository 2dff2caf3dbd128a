"""What runs inside the emulated machine: `python emulated_guest.py FOLDER`.

Reads FOLDER/work.json, a list of networks as emulated.py writes it, and prints a line "midge: JSON"
for each program and engine. Time there is the number of instructions, so that what is measured
are instructions and not seconds.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench_worker
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
INT8 = "session.qdqisint8allowed"
CALIBRATION = 20_000_000  # turns of a loop of two instructions


def rate(folder: Path) -> float:
    """Return the instructions in a second of the clock."""
    command = [str(folder / "calibrate"), str(CALIBRATION)]
    none = seconds(lambda: subprocess.run(command[:1], check=True))
    return 2 * CALIBRATION / (seconds(lambda: subprocess.run(command, check=True)) - none)


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes by the clock."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def program(folder: Path, work: dict[str, Any], name: str, level: int) -> dict[str, Any]:
    """Run a program over all samples and compare every byte, or with the first program's."""
    command, samples = [str(folder / name), str(level)], folder / "inputs.bin"
    empty = seconds(lambda: subprocess.run(command, stdin=subprocess.DEVNULL, check=False))
    with samples.open("rb") as stream:
        start = time.perf_counter()
        done = subprocess.run(command, stdin=stream, capture_output=True, check=False)
        spent = time.perf_counter() - start - empty
    expected = folder / "want.bin"
    if not expected.exists():  # sums of float32 depend on their order
        expected.write_bytes(done.stdout)
    want, got = (np.frombuffer(b, np.uint8) for b in (expected.read_bytes(), done.stdout))
    wrong = int((got != want).sum()) if got.size == want.size else int(want.size)
    return {"bytes": int(want.size), "differ": wrong, "seconds": spent / work["samples"]}


def engine(folder: Path, work: dict[str, Any], name: str) -> dict[str, Any]:
    """Run an engine on the first samples; compare where its outputs are the file's."""
    opened, package = bench_worker.ENGINES[name]
    with np.load(folder / "inputs.npz") as file:
        inputs = [file[str(i)] for i in range(len(file.files))]
    path = str(folder / f"network{'.tflite' if name == 'litert' else '.onnx'}")
    call, _ = opened(path, [x[0] for x in inputs], work["params"], 1)
    call()
    calls = work["calls"]
    found = {"seconds": seconds(lambda: [call() for _ in range(calls)]) / calls}
    if name == "onnxruntime" and work["codes"]:
        found.update(differences(folder, path, inputs, {}))
    return {**found, "version": bench_worker.version(package)}


def differences(
    folder: Path, path: str, inputs: list[Array], entries: dict[str, str]
) -> dict[str, int]:
    """Return the output bytes of ONNX Runtime, with all its optimizations, that differ.

    Args:
        folder: of the network.
        path: of the file.
        inputs: [samples, ...] each.
        entries: of the session's configuration.
    """
    import onnxruntime as rt

    options = rt.SessionOptions()
    options.intra_op_num_threads = 1
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    session = rt.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names, got = [value.name for value in session.get_inputs()], []
    for sample in zip(*inputs, strict=True):
        ys = session.run(None, dict(zip(names, sample, strict=True)))
        got += [np.ascontiguousarray(y).reshape(-1).view(np.uint8) for y in ys]
    want = np.frombuffer((folder / "want.bin").read_bytes(), np.uint8)
    all_ = np.concatenate(got)
    return {"bytes": int(all_.size), "differ": int((all_ != want[: all_.size]).sum())}


def results(folder: Path, work: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what came out for one network."""
    for build in work["builds"]:
        for name, level in work["levels"].items():
            yield {"what": f"C {name}, {build}", **program(folder, work, build, level)}
    for name in work["engines"]:
        try:
            yield {"what": name, **engine(folder, work, name)}
        except Exception as error:
            yield {"what": name, "error": f"{type(error).__name__}: {error}"[:300]}
    if work["codes"]:  # files of int8 activations are integers throughout with this entry alone
        with np.load(folder / "inputs.npz") as file:
            inputs = [file[str(i)] for i in range(len(file.files))]
        path = str(folder / "network.onnx")
        yield {"what": f"onnxruntime, {INT8}=1", **differences(folder, path, inputs, {INT8: "1"})}


def say(**facts: Any) -> None:
    """Print a line for the host."""
    print("midge:", json.dumps(facts), flush=True)


def main() -> None:
    """Measure everything."""
    folder = Path(sys.argv[1])
    per_second = rate(folder)
    for work in json.loads((folder / "work.json").read_text()):
        for found in results(folder / work["folder"], work):
            if "seconds" in found:
                found["instructions"] = round(found.pop("seconds") * per_second)
            say(network=work["name"], **found)


if __name__ == "__main__":
    main()
