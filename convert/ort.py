"""Running ONNX files in ONNX Runtime: sessions made in one way, their errors in one line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as rt

from midge.convert.large_models import Message
from midge.core.errors import ToolError

Array = npt.NDArray[Any]
UNKNOWN = "Could not find an implementation"  # of an operator as a newer opset has it
FATAL_ONLY = 4  # severity: what goes wrong comes back as an exception, not as a line on stderr

LEVELS = {
    "all": rt.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "basic": rt.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "none": rt.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


WIDER = {"tensor(int64)": np.int64, "tensor(bool)": np.bool_}  # what int32 stands for


def make_session(
    model: onnx.ModelProto | Message | bytes | Path,
    *,
    level: str = "all",
    threads: int = 0,
    exact: bool = False,
    keep_int8: bool = False,
    dump: Path | None = None,
) -> rt.InferenceSession:
    """Load a model in ONNX Runtime on the CPU.

    Args:
        model: a model, its bytes, or the path of a file.
        level: "all", "basic" or "none": graph optimizations.
        threads: of one operator; 0 lets ONNX Runtime choose.
        exact: on x86 without VNNI, use kernels that do not saturate uint8 x int8 products.
        keep_int8: do not rewrite int8 activations to uint8, which leaves parts of a file in float.
        dump: where to write the optimized model.

    Raises:
        ToolError: ONNX Runtime refuses the model; its own words are kept.
    """
    options = rt.SessionOptions()
    options.log_severity_level = FATAL_ONLY
    options.graph_optimization_level = LEVELS[level]
    options.intra_op_num_threads = threads
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    if keep_int8:
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    if dump is not None:
        options.optimized_model_filepath = str(dump)
    weights = dict[str, rt.OrtValue]()
    if isinstance(model, Message):
        weights = {n: rt.OrtValue.ortvalue_from_numpy(w) for n, w in model.weights.items()}
        options.add_external_initializers(list(weights), list(weights.values()))
        model = model.proto
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    source = str(source) if isinstance(source, Path) else source
    try:
        session = rt.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        session.midge_weights = weights  # it reads their memory
        return session
    except Exception as error:
        text = one_line(error)
        if UNKNOWN in text:
            text += "; update onnxruntime, or export the model with an older opset."
        raise ToolError(f"ONNX Runtime refuses the model: {text}") from error


def run(
    session: rt.InferenceSession, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> list[Array]:
    """Run a session once.

    Args:
        session: as made.
        feeds: by name; int32 may stand for int64 and bool.
        outputs: names of those wanted; None takes all.

    Raises:
        ToolError: ONNX Runtime fails; its own words are kept.
    """
    try:
        return [np.asarray(v) for v in session.run(outputs, _fitting(session, feeds))]
    except Exception as error:
        raise ToolError(f"ONNX Runtime failed: {one_line(error)}") from error


def _fitting(session: rt.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the feeds with int32 made int64 or bool where the model wants that."""
    wanted = {i.name: WIDER.get(i.type) for i in session.get_inputs()}
    return {
        name: x.astype(wanted[name]) if x.dtype == np.int32 and wanted.get(name) else x
        for name, x in feeds.items()
    }


def one_line(error: BaseException) -> str:
    """Return the first line of a message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
