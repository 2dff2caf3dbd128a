"""One engine in one process, a script of its own: it may run where midge is not installed.

Reads a JSON command a line on stdin, answers with a JSON line on stdout:

    {"load": ENGINE, "path": FILE, "inputs": NPZ, "params": [...], "threads": N} -> {"version": V}
    {"bursts": B, "calls": K} -> {"wall_ns": [...], "cpu_ns": [...]}
    {"outputs": NPZ} -> {}

The inputs are the arrays 0, 1, ... of NPZ in graph order, `params` the scale and zero-point of
those that are codes. The timed call is the engine's own run on
inputs that are in place, by its cheapest entry from Python. Whatever fails answers {"error": ...}.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Call = Callable[[], object]
Outputs = Callable[[], list[Array]]
Params = list[tuple[float, int] | None]


def onnxruntime(
    path: str, inputs: list[Array], params: Params, threads: int
) -> tuple[Call, Outputs]:
    """Open an ONNX file in ONNX Runtime with inputs and outputs bound once."""
    import onnxruntime as rt

    options = rt.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = rt.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    first = session.run(None, dict(zip(names, inputs, strict=True)))
    kept = [rt.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x)) for x in (*inputs, *first)]
    binding = session.io_binding()
    for name, value in zip(names, kept, strict=False):
        binding.bind_ortvalue_input(name, value)
    for output, value in zip(session.get_outputs(), kept[len(names) :], strict=True):
        binding.bind_ortvalue_output(output.name, value)
    run, bound = session._sess.run_with_iobinding, binding._iobinding
    return lambda keep=kept: run(bound, None), binding.copy_outputs_to_cpu


def openvino(path: str, inputs: list[Array], params: Params, threads: int) -> tuple[Call, Outputs]:
    """Open an ONNX file in OpenVINO with one stream; its default for float32 may be bfloat16."""
    import openvino as ov

    config = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = ov.Core()
    model = core.read_model(path)
    model.reshape({value: list(x.shape) for value, x in zip(model.inputs, inputs, strict=True)})
    compiled = core.compile_model(model, "CPU", config)
    request = compiled.create_infer_request()
    kept = [ov.Tensor(np.ascontiguousarray(x)) for x in inputs]
    for index, tensor in enumerate(kept):
        request.set_input_tensor(index, tensor)

    def outputs() -> list[Array]:
        return [np.array(request.get_output_tensor(i).data) for i in range(len(compiled.outputs))]

    return lambda keep=kept: request.infer(share_inputs=True, share_outputs=True), outputs


def litert(path: str, inputs: list[Array], params: Params, threads: int) -> tuple[Call, Outputs]:
    """Open a .tflite file in LiteRT, whose interpreter computes with XNNPACK."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=threads)
    interpreter.allocate_tensors()
    for detail, x, known in zip(interpreter.get_input_details(), inputs, params, strict=True):
        interpreter.set_tensor(detail["index"], as_input(x, known, detail))
    details = interpreter.get_output_details()

    def outputs() -> list[Array]:
        return [as_real(interpreter.get_tensor(d["index"]), d["quantization"]) for d in details]

    return interpreter._interpreter.Invoke, outputs


def as_input(x: Array, params: tuple[float, int] | None, detail: dict[str, Any]) -> Array:
    """Return the same real values in the layout, NHWC, and the codes of a .tflite file."""
    shape = tuple(detail["shape"])
    x = as_real(x, params or (0.0, 0))
    if x.shape != shape and x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)
    x = np.ascontiguousarray(x.reshape(shape))
    dtype, (scale, zero_point) = np.dtype(detail["dtype"]), detail["quantization"]
    if dtype.kind == "f":
        return x
    limits = np.iinfo(dtype)
    codes: Array = np.clip(np.rint(x / scale) + zero_point, limits.min, limits.max).astype(dtype)
    return codes


def as_real(x: Array, params: tuple[float, int]) -> Array:
    """Return the real values of codes; scale 0 stands for real values."""
    scale, zero_point = params
    if not scale:
        return np.array(x)
    real: Array = (x.astype(np.float32) - zero_point) * np.float32(scale)
    return real


ENGINES = {
    "onnxruntime": (onnxruntime, "onnxruntime"),
    "openvino": (openvino, "openvino"),
    "litert": (litert, "ai-edge-litert"),
}


def burst(call: Call, bursts: int, calls: int) -> dict[str, list[int]]:
    """Time `bursts` times `calls` calls, wall and CPU time."""
    wall, cpu = [], []
    clock, used, times = time.perf_counter_ns, time.process_time_ns, range(calls)
    for _ in range(bursts):
        used_before, before = used(), clock()
        for _ in times:
            call()
        wall.append(clock() - before)
        cpu.append(used() - used_before)
    return {"wall_ns": wall, "cpu_ns": cpu}


def no_model() -> object:
    """Stand for the call before a model is loaded."""
    raise RuntimeError("no model is loaded")


def no_outputs() -> list[Array]:
    """Stand for the outputs before a model is loaded."""
    return []


def main() -> None:
    """Answer commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what native libraries print must not mix with the answers
    call, outputs = no_model, no_outputs
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if "load" in command:
                opened, package = ENGINES[command["load"]]
                with np.load(command["inputs"]) as file:
                    inputs = [file[str(index)] for index in range(len(file.files))]
                answer["version"] = version(package)
                call, outputs = opened(
                    command["path"], inputs, command["params"], command["threads"]
                )
                call()
            elif "bursts" in command:
                answer = dict(burst(call, command["bursts"], command["calls"]))
            else:
                call()
                arrays: dict[str, Any] = {str(i): y for i, y in enumerate(outputs())}
                np.savez(command["outputs"], **arrays)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
