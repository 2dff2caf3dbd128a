"""Other engines beside the C: each in a process of its own, blocked on a pipe while others run."""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert import bench_worker
from midge.convert import graph as g
from midge.convert.bench_host import Laps
from midge.convert.onnx_in import Shapes, read_model
from midge.convert.onnx_values import Values, constants
from midge.core.errors import InputError, ToolError
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]
WORKER = Path(bench_worker.__file__)
PYTHON_VARIABLE = "MIDGE_PEERS_PYTHON"
ANSWER_S = 300  # a load that takes longer hangs
LITERT = "LiteRT"
REMEDY = (
    "`pip install 'midge[peers]'`, or install it elsewhere and name that Python with --peers-python"
)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that the worker knows.

    Args:
        key: its name in bench_worker.
        module: what is imported, to find out whether it is installed.
        package: on PyPI.
        suffix: of the files that it runs.
    """

    key: str
    module: str
    package: str
    suffix: str = ".onnx"


ENGINES: Mapping[str, Engine] = {
    "ONNX Runtime": Engine("onnxruntime", "onnxruntime", "onnxruntime"),
    LITERT: Engine("litert", "ai_edge_litert", "ai-edge-litert", ".tflite"),
    "OpenVINO": Engine("openvino", "openvino", "openvino"),
}


def peers_python(chosen: str | None = None) -> str:
    """Return the interpreter of the workers: the one chosen, $MIDGE_PEERS_PYTHON, or this one."""
    return chosen or os.environ.get(PYTHON_VARIABLE) or sys.executable


def installed(python: str) -> dict[str, str]:
    """Return the versions of the engines that an interpreter has, by name.

    Raises:
        InputError: it does not run.
    """
    script = (
        "import json, sys; from importlib.metadata import version; found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = version(name)\n"
        "    except Exception: pass\n"
        "print(json.dumps(found))"
    )
    packages = {engine.package: name for name, engine in ENGINES.items()}
    try:
        done = subprocess.run(
            [python, "-P", "-c", script, *packages], capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InputError(
            f"{python}: is no Python 3.11 or later; --peers-python or {PYTHON_VARIABLE} names it."
        ) from error
    return {packages[package]: number for package, number in found.items()}


def every_input(
    path: Path, shapes: Shapes, values: Values, given: Mapping[str, Array]
) -> tuple[Array, ...]:
    """Return an array for each input of an ONNX file, in its order.

    Args:
        path: of the file.
        shapes: of inputs with unknown dimensions, by name.
        values: number by name of an input that holds it throughout.
        given: the others, by name.

    Raises:
        InputError: the file is at fault, or an input has neither.
    """
    model = read_model(path, shapes, dynamic=True)
    arrays = {**given, **constants(model.graph.inputs, values)}
    names = [g.name_of(value) for value in model.graph.inputs]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError(f"{path} has an input {missing[0]!r}, which the timed model lacks.")
    return tuple(arrays[name] for name in names)


@dataclass(slots=True)
class Peer:
    """A worker with a model.

    Args:
        name: of the engine.
        process: whose stdin and stdout are pipes.
        version: of the engine's package.
    """

    name: str
    process: "subprocess.Popen[str]"
    version: str = ""

    def time(self, bursts: int, calls: int) -> Laps:
        """Run `bursts` times `calls` times: a bench_host.Timer."""
        answer = self.ask(bursts=bursts, calls=calls)
        wall, cpu = (np.array(answer[key]) / (1e3 * calls) for key in ("wall_ns", "cpu_ns"))
        return Laps(wall.tolist(), cpu.tolist())

    def outputs(self) -> list[Array]:
        """Return the outputs; those of LiteRT as real values."""
        with tempfile.TemporaryDirectory(prefix="midge-peer-") as folder:
            path = Path(folder) / "outputs.npz"
            self.ask(outputs=str(path))
            with np.load(path) as file:
                return [file[str(index)] for index in range(len(file.files))]

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and return the answer.

        Raises:
            ToolError: the engine refuses, dies or hangs; its own words are kept.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
                raise ToolError(f"{self.name} gave no answer in {ANSWER_S} s.")
            line = self.process.stdout.readline()
        if not line:
            raise ToolError(f"{self.name} died with status {self.process.wait()}.")
        answer = json.loads(line)
        if "error" in answer:
            raise ToolError(f"{self.name}: {' '.join(answer['error'].split())}")
        assert isinstance(answer, dict)
        return answer


@contextmanager
def peer(
    name: str,
    path: Path,
    sample: Sequence[Array],
    params: Sequence[QuantParams | None],
    *,
    python: str,
    threads: int = 1,
) -> Iterator[Peer]:
    """Start a worker with a model and keep it waiting for work.

    Args:
        name: a key of ENGINES.
        path: of the model.
        sample: every input as the ONNX file has it, in graph order.
        params: of the inputs that are codes, so that a .tflite file with another scale gets the
            same real values; None for real inputs.
        python: its interpreter.
        threads: of the engine.

    Raises:
        ToolError: the engine refuses the model.
    """
    # An engine must not inherit the number of threads of this process.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    environment |= {"OMP_NUM_THREADS": str(threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory(prefix="midge-peer-") as folder:
        inputs = Path(folder) / "inputs.npz"
        arrays: dict[str, Any] = {str(i): x for i, x in enumerate(sample)}
        np.savez(inputs, **arrays)
        process = subprocess.Popen(
            [python, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        try:
            made = Peer(name, process)
            answer = made.ask(
                load=ENGINES[name].key,
                path=str(path),
                inputs=str(inputs),
                params=[p and [float(p.scale), p.zero_point] for p in params],
                threads=threads,
            )
            made.version = answer["version"]
            yield made
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]  # both are pipes
