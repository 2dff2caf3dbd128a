"""Writing ONNX files: checked, run once, the same bytes every time, and never half a file."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.checker
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.large_models import Message, message, placed
from midge.convert.ort import make_session, one_line, run
from midge.core.errors import InputError, ToolError

Array = npt.NDArray[Any]
PRODUCER = "midge"


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the model as a message, with midge as its producer."""
    return to_message(model).proto


def to_message(model: ir.Model) -> Message:
    """Return the model as a message, large tensors apart, with midge as its producer."""
    model.producer_name = PRODUCER
    model.producer_version = None
    return message(model)


def write_model(
    model: ir.Model, path: str | Path, sample: Mapping[str, Array] | None = None
) -> None:
    """Check a model, run it once in ONNX Runtime and write it.

    Args:
        model: any graph.
        path: of the file; it appears complete or not at all.
        sample: inputs for the run; ones by default, with 1 for unknown dimensions.

    Raises:
        ToolError: onnx or ONNX Runtime finds fault with the model.
        InputError: the file cannot be written.
    """
    made = to_message(model)
    if made.weights:
        _write_large(model, made, Path(path), sample)
    else:
        write_bytes(Path(path), checked_bytes(model, Path(path), sample))


def checked_bytes(model: ir.Model, path: Path, sample: Mapping[str, Array] | None = None) -> bytes:
    """Check a model, run it once in ONNX Runtime and return the bytes of its file.

    Args:
        model: any graph.
        path: where they go, for messages.
        sample: inputs for the run; ones by default, with 1 for unknown dimensions.

    Raises:
        ToolError: onnx or ONNX Runtime finds fault with the model.
        InputError: it is larger than one file can be.
    """
    if to_message(model).weights:
        raise InputError(f"{path} would be over 2 GB, which no quantized model of midge may be.")
    raw = bytes(to_proto(model).SerializeToString(deterministic=True))
    check_bytes(raw, model, path, sample)
    return raw


def check_bytes(
    raw: bytes, model: ir.Model, path: Path, sample: Mapping[str, Array] | None = None
) -> None:
    """Check the bytes of a file and run them once in ONNX Runtime.

    Args:
        raw: the bytes.
        model: the model that they hold.
        path: where they go, for messages.
        sample: inputs for the run; ones by default, with 1 for unknown dimensions.

    Raises:
        ToolError: onnx or ONNX Runtime finds fault with the model.
    """
    try:
        onnx.checker.check_model(raw, full_check=True)
    except Exception as error:
        raise _refused(path, error) from error
    run(make_session(raw), sample or example_inputs(model))


def _refused(path: Path, error: Exception) -> ToolError:
    return ToolError(f"{path.name}: onnx refuses the model: {one_line(error)}")


def _write_large(
    model: ir.Model, large: Message, path: Path, sample: Mapping[str, Array] | None
) -> None:
    """Check, run once and write a model and, beside it, PATH.data."""
    data = path.with_name(f"{path.name}.data")
    raw, places = placed(large, data.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            parts = [Path(folder) / p.name for p in (data, path)]
            with parts[0].open("wb") as file:
                for offset, array in places:
                    file.seek(offset)
                    array.tofile(file)
            parts[1].write_bytes(raw)
            try:
                onnx.checker.check_model(str(parts[1]), full_check=True)
            except Exception as error:
                raise ToolError(
                    f"{path.name}: onnx refuses the model: {one_line(error)}"
                ) from error
            run(make_session(parts[1]), sample or example_inputs(model))
            for part, final in zip(parts, (data, path), strict=True):
                os.replace(part, final)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error


def example_inputs(model: ir.Model) -> dict[str, Array]:
    """Return an array of ones for every input, with 1 for unknown dimensions."""
    feeds = {}
    for value in model.graph.inputs:
        dtype = value.dtype.numpy() if value.dtype is not None else np.float32
        feeds[g.name_of(value)] = np.ones(
            [1 if d is None else d for d in g.dims(value) or ()], dtype
        )
    return feeds


def check_output(source: str | Path, path: Path) -> None:
    """Refuse an output that cannot be written, before the work is done.

    Args:
        source: the file that is read; it must not be the one that is written.
        path: of the output.

    Raises:
        InputError: naming what stands in the way.
    """
    if path.is_dir():
        raise InputError(f"{path} is a directory; give a file name.")
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise InputError(f"{path} is the model that is read; give another output.")
    _check_place(path, path.absolute().parent)


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be written, before the work is done.

    Raises:
        InputError: naming what stands in the way.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a folder.")
    _check_place(path, path.absolute())


def _check_place(path: Path, folder: Path) -> None:
    """Refuse a path whose folder neither is one that can be written nor can be made."""
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: {folder} is no directory.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path} cannot be written: no permission to write in {folder}.")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it into place.

    Raises:
        InputError: the file cannot be written.
    """
    write_files({path: data})


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files that belong together: every one under a temporary name, then all renamed.

    Args:
        files: content by path.

    Raises:
        InputError: one cannot be written; none has been replaced.
    """
    temporary = {p: p.with_name(f".{p.name}.{os.getpid()}.part") for p in files}
    path = Path()
    try:
        for path, data in files.items():
            if path.is_dir():
                raise InputError(f"{path} is a directory; give a file name.")
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary[path].write_bytes(data)
        for path in files:
            os.replace(temporary[path], path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        for part in temporary.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)
