"""When a conversion fails in an unforeseen way: is the file that was read at fault?

A file can be well-formed and yet make no sense, as when a weight does not fit its input. ONNX
Runtime refuses to run such a file, and then so does midge, in ONNX Runtime's words.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from onnxruntime import InferenceSession

from midge.convert import graph as g
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import example_inputs
from midge.convert.ort import make_session, run
from midge.core.errors import InputError, MidgeError, ToolError

Array = npt.NDArray[Any]
P = ParamSpec("P")
T = TypeVar("T")
NUMPY_TYPES = {
    "tensor(bool)": "bool",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{f"tensor({name})": name for name in ("int8", "uint8", "int16", "uint16", "int32", "int64")},
}
FromFile = Callable[Concatenate[str | Path, P], T]


def blames_source(convert: FromFile[P, T]) -> FromFile[P, T]:
    """Make a function, whose first argument is an ONNX file, blame the file where it is at fault.

    An error that midge raised on purpose stays, but for a ToolError: that may be the file's fault.
    """

    @wraps(convert)
    def call(path: str | Path, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return convert(path, *arguments, **keywords)
        except Exception as error:
            if isinstance(error, ToolError) or not isinstance(error, MidgeError):
                _require_sound(path)
            raise

    return call


def _require_sound(path: str | Path) -> None:
    """Run a file once, where the sizes of its inputs are known."""
    model = read_model(path, dynamic=True)
    shapes = [g.dims(value) for value in model.graph.inputs]
    if all(shape is not None and None not in shape[1:] for shape in shapes):
        require_runs(path, example_inputs(model))


def require_runs(
    path: str | Path, feeds: Mapping[str, Array], values: Mapping[str, float] | None = None
) -> None:
    """Refuse a file that ONNX Runtime does not run, as parts of it do not fit together.

    Args:
        path: of the file.
        feeds: by name of the input.
        values: numbers that further inputs hold.

    Raises:
        InputError: in ONNX Runtime's words.
    """
    try:
        session = make_session(Path(path), level="none")
        run(session, {**feeds, **_constants(session, values or {})})
    except ToolError as error:
        raise InputError(f"{path} does not run: {error}") from error


def _constants(session: InferenceSession, values: Mapping[str, float]) -> dict[str, Array]:
    """Return arrays that hold the numbers, of one element along every axis that has no size."""
    inputs = {i.name: i for i in session.get_inputs()}
    return {
        name: np.full([d if isinstance(d, int) else 1 for d in inputs[name].shape], number).astype(
            NUMPY_TYPES[inputs[name].type]
        )
        for name, number in values.items()
    }
