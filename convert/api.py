"""The Python interface: what the commands do, as three functions and a class.

Example:
    midge.quantize("model.onnx", "model.int8.onnx", images)  # a NumPy array of inputs
    midge.compile("model.int8.onnx", "c")
    assert midge.verify("model.int8.onnx").holds
    scores = midge.Session("model.int8.onnx").run(images[:1])[0]
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy.typing as npt

from midge.convert.calibration_data import InMemory
from midge.convert.compile import HOST, CompileReport, compile_file
from midge.convert.pipeline import QuantizeOptions, QuantizeReport, quantize_file
from midge.convert.session import Session
from midge.convert.verify import verify
from midge.core.errors import InputError, did_you_mean

__all__ = ["Session", "compile", "quantize", "verify"]

Array = npt.NDArray[Any]
Item = Array | Mapping[str, Array]
Calibration = str | Path | Item | Iterable[Item] | Callable[[], Iterable[Item]]


def quantize(
    model: str | Path,
    output: str | Path,
    calib_data: Calibration | None = None,
    *,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> QuantizeReport:
    """Quantize a float ONNX file to INT8.

    Args:
        model: path of the float file.
        output: path of the file to write; its parameters go beside it as .quant.json.
        calib_data: inputs that the model will see: an array (one input) or a dict of arrays by
            input name, samples along axis 0; an iterable of these; a function that returns one; or
            a path or spec as for `midge quantize --calib-data`. None with mode="dynamic" or
            mode="weight-only".
        progress: called with the number of calibration samples done.
        options: fields of QuantizeOptions, e.g. per_channel=False, io_type="int8".

    Raises:
        InputError: the model, the data or an option is at fault; nothing is written.
    """
    known = [f.name for f in fields(QuantizeOptions)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"quantize() has no option {name!r}.{hint}")
    spec: str | InMemory | None = None
    if calib_data is not None:
        named = isinstance(calib_data, str | Path)
        spec = str(calib_data) if named else InMemory(calib_data)
    return quantize_file(model, output, spec, QuantizeOptions(**options), progress=progress)


def compile(
    model: str | Path,
    directory: str | Path,
    name: str | None = None,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    input_values: Mapping[str, float] | None = None,
    target: str = HOST,
    optimize: str | None = None,
    max_ram: int | None = None,
) -> CompileReport:
    """Write an ONNX file as a self-contained folder of C that has passed its golden test.

    Args:
        model: path of the file.
        directory: of the C sources.
        name: prefix of files and symbols, a C identifier; by default made from the file's name.
        input_shapes: shapes of inputs with unknown dimensions, by name.
        input_values: numbers that inputs hold throughout, by name; they become constants.
        target: "host", "c99" or "x86-64".
        optimize: "speed" or "size"; None leaves what suits the target.
        max_ram: bytes that the arena may have.

    Raises:
        InputError: the file, the name, a shape or an option is at fault.
        UnsupportedError: the arena would be larger than `max_ram`.
        CheckError: the compiled C differs from the integer executor.
    """
    chosen = name_from(model) if name is None else name
    return compile_file(
        model,
        directory,
        chosen,
        input_shapes=input_shapes,
        input_values=input_values,
        target=target,
        optimize=optimize,
        max_ram=max_ram,
    )


def name_from(model: str | Path) -> str:
    """Return a C identifier made from a file's name: "kws-v2.int8.onnx" gives "kws_v2"."""
    stem = re.sub(r"\W+", "_", Path(model).name.partition(".")[0], flags=re.ASCII).strip("_")
    return stem if stem[:1].isalpha() else f"model_{stem}".rstrip("_")
