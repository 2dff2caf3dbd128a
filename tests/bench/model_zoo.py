"""Every ONNX file of MIDGE_MODELS, the whole road: `python tests/bench/model_zoo.py`.

Each file is quantized on random inputs (one that is quantized already stays as it is), lowered,
written as C and verified; or it is refused, and the message stands below the table. Prints the
tables of docs/model-zoo.md; --json FILE keeps the numbers, --only TEXT takes the files whose
path contains it. Exit status 1 when something differs.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

import midge
from midge.cli.machine import describe, versions
from midge.convert import ort
from midge.convert.onnx_in import read_model
from midge.convert.verify import verify
from midge.core.errors import InputError, ToolError, UnsupportedError
from midge.quant.analysis import sqnr_db

Array = npt.NDArray[Any]
Sample = dict[str, Array]
CALIBRATION, JUDGED = 16, 8  # samples
# Shapes of inputs with unknown dimensions other than the leading one.
SHAPES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "ppocr_cls_mobile_v2": {"x": (1, 3, 48, 192)},
    "silero_vad_16k_op15": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad_If_subgraphs": {"input": (1, 512), "state": (2, 1, 128)},
}
VALUES = {"sr": 16000}  # inputs that are no signal
INTEGERS = 256  # integer inputs are bytes


@dataclass
class Result:
    """What came out for one file; `*_mismatches` count elements outside what verify allows.

    Args:
        name: path below MIDGE_MODELS.
        counts: nodes per state, empty for a file that is quantized already.
        sqnr: of the least accurate output, in dB.
        tensors: outputs and quantized tensors that were compared.
        c_mismatches: executor against C.
        ort_mismatches: executor against ONNX Runtime.
        level: of ONNX Runtime.
        refused: step and message where one refused the file.
        seconds: for everything.
    """

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    sqnr: float | None = None
    tensors: int = 0
    elements: int = 0
    c_mismatches: int | None = None
    ort_mismatches: int | None = None
    holds: bool = True
    level: str = ""
    refused: str = ""
    seconds: float = 0.0


def inputs_of(path: Path, count: int, seed: int) -> list[Sample]:
    """Return random samples that fit a file: a normal signal, bytes, or what VALUES says."""
    shapes = SHAPES.get(path.stem, {})
    model, rng = read_model(path, shapes), np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        sample = {}
        for value in model.graph.inputs:
            name = str(value.name)
            shape = [d if isinstance(d, int) else 1 for d in value.shape or ()]
            assert value.dtype is not None
            dtype = value.dtype.numpy()
            if name in VALUES:
                sample[name] = np.full(shape, VALUES[name], dtype)
            elif np.issubdtype(dtype, np.integer):
                sample[name] = rng.integers(0, INTEGERS, shape).astype(dtype)
            else:
                sample[name] = rng.standard_normal(shape).astype(dtype)
        samples.append(sample)
    return samples


def values_of(path: Path) -> dict[str, float]:
    """Return what is known of a file's inputs before it runs: --input-value."""
    inputs = onnx.load(path, load_external_data=False).graph.input
    return {i.name: VALUES[i.name] for i in inputs if i.name in VALUES}


def is_quantized(path: Path) -> bool:
    """Tell whether a file holds codes already."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    return any(node.op_type == "QuantizeLinear" for node in nodes)


def examine(path: Path, name: str, scratch: Path) -> Result:
    """Take one file down the road as far as it goes."""
    result, start, step = Result(name), time.perf_counter(), "read"
    shapes = SHAPES.get(path.stem, {})
    try:
        samples = inputs_of(path, JUDGED, seed=1)
        file = path
        if not is_quantized(path):
            step, file = "quantize", scratch / "model.int8.onnx"
            data = inputs_of(path, CALIBRATION, seed=0)
            values = values_of(path)
            signals = [{k: x for k, x in d.items() if k not in values} for d in data]
            options = {"input_shapes": shapes, "input_values": values}
            result.counts = midge.quantize(path, file, signals, **options).counts
            result.sqnr = sqnr(path, file, samples)
        step = "compile"
        left = {name: shape for name, shape in shapes.items() if name not in values_of(path)}
        report = verify(file, samples, count=JUDGED, input_shapes=left)
        result.tensors, result.elements = len(report.checks), report.elements
        result.c_mismatches = sum(c.c_mismatches or 0 for c in report.checks)
        result.ort_mismatches = sum(c.ort_mismatches or 0 for c in report.checks)
        result.holds, result.level = report.holds, report.level or ""
    except (InputError, ToolError, UnsupportedError) as error:
        result.refused = f"{step}: {str(error).replace(str(path.parent), '').lstrip('/')}"
    result.seconds = time.perf_counter() - start
    return result


def sqnr(path: Path, file: Path, samples: list[Sample]) -> float:
    """Return the SQNR of the quantized file's worst output over all samples, in dB."""
    sessions = [ort.make_session(p, exact=True) for p in (path, file)]
    runs = []
    for session in sessions:
        names = {i.name for i in session.get_inputs()}
        feeds = [{k: x for k, x in sample.items() if k in names} for sample in samples]
        runs.append([ort.run(session, feed) for feed in feeds])
    columns = [[np.stack(arrays) for arrays in zip(*run, strict=True)] for run in runs]
    return min(sqnr_db(a, b) for a, b in zip(*columns, strict=True))


def markdown(results: list[Result]) -> Iterator[str]:
    """Yield the table and what it rests on."""
    yield f"{datetime.date.today().isoformat()}, {describe()}"
    yield ", ".join(f"{k} {v}" for k, v in versions().items())
    yield f"calibration: {CALIBRATION} random samples; verified on {JUDGED} more, with the C."
    yield ""
    yield "| file | quantized / float / folded / refused | SQNR | tensors | C | ONNX Runtime | s |"
    yield "|---|---|---|---|---|---|---|"
    for number, r in enumerate(results, 1):
        states = "refused" if r.refused else "as it is"
        states = " / ".join(map(str, r.counts.values())) if r.counts else states
        db = "" if r.sqnr is None else f"{r.sqnr:.1f} dB"
        same = [verdict(r, n) for n in (r.c_mismatches, r.ort_mismatches)]
        tensors = f"{r.tensors}" if r.tensors else ""
        cells = (f"{number}. {r.name}", states, db, tensors, *same, f"{r.seconds:.1f}")
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from (f"{i}. {r.refused}" for i, r in enumerate(results, 1) if r.refused)


def verdict(r: Result, mismatches: int | None) -> str:
    """Say how many of all elements differ."""
    if mismatches is None:
        return "refused"
    return f"{mismatches:,} of {r.elements:,}"


def main() -> int:
    """Run and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = os.environ.get("MIDGE_MODELS")
    if not folder:
        raise InputError("MIDGE_MODELS is not set; it names the folder of models.")
    results = []
    for path in sorted(Path(folder).rglob("*.onnx")):
        name = path.relative_to(folder).as_posix()
        if options.only not in name:
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="midge-zoo-") as scratch:
            results.append(examine(path, name, Path(scratch)))
    print("\n".join(markdown(results)))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    return 0 if all(r.holds for r in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(str(error))
