"""save and load: nested dicts, lists and tensors in one file, written at once and read safely.

The file is a zip archive of .npy members and one JSON member that says how they hang together.
Nothing in it is code, so loading a file from a stranger runs none.
"""

import contextlib
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from midge.core.backend import Array, is_array, to_numpy
from midge.core.errors import InputError
from midge.core.tensor import Tensor

_FORMAT = "midge-1"
_STRUCTURE = "structure.json"
# A fixed time, so that the same content gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def save(value: Any, path: str | Path) -> None:
    """Write a value to a file, complete or not at all.

    Args:
        value: tensors, arrays, numbers, strings, None, and dicts (keys str or int), lists and
            tuples of them. Tensors on one memory are written once.
        path: the file; an old one is replaced.

    Raises:
        InputError: something of another type, named by its place.
    """
    path = Path(path)
    writer = _Writer()
    structure = {"format": _FORMAT, "value": writer.encode(value, "value")}
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            with zipfile.ZipFile(stream, "w") as archive:
                text = json.dumps(structure, separators=(",", ":"))
                archive.writestr(zipfile.ZipInfo(_STRUCTURE, _EPOCH), text)
                for index, array in enumerate(writer.arrays):
                    info = zipfile.ZipInfo(f"{index}.npy", _EPOCH)
                    with archive.open(info, "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    """Return the process's umask; mkstemp ignores it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


class _Writer:
    """Turns a value into JSON and collects its arrays."""

    def __init__(self) -> None:
        """Start without arrays."""
        self.arrays: list[Array] = []
        self.numbers: dict[tuple[Any, ...], int] = {}

    def encode(self, value: Any, place: str) -> Any:
        """Return JSON for a value; containers and arrays are tagged lists."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return ["float", value.hex()]  # exact, and JSON has no infinity
        if isinstance(value, Tensor):
            return ["tensor", self._number(value.array), value.requires_grad]
        if is_array(value):
            return ["array", self._number(value)]
        if isinstance(value, list | tuple):
            parts = [self.encode(v, f"{place}[{i}]") for i, v in enumerate(value)]
            return ["tuple" if isinstance(value, tuple) else "list", parts]
        if isinstance(value, dict):
            return ["dict", [self._item(k, v, place) for k, v in value.items()]]
        raise InputError(
            f"save: {place} is a {type(value).__name__}; tensors, arrays, numbers, strings, None, "
            "dicts, lists and tuples can be saved."
        )

    def _item(self, key: Any, value: Any, place: str) -> list[Any]:
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise InputError(f"save: {place} has the key {key!r}; keys must be str or int.")
        return [key, self.encode(value, f"{place}[{key!r}]")]

    def _number(self, array: Array) -> int:
        """Return the member number of an array; arrays on one memory share it."""
        view = to_numpy(array)
        pointer = view.__array_interface__["data"][0]
        key = (pointer, view.shape, view.strides, view.dtype.str)
        if view.size == 0 or key not in self.numbers:
            self.numbers[key] = len(self.arrays)
            self.arrays.append(view)
        return self.numbers[key]


def load(path: str | Path) -> Any:
    """Read a value that `save` wrote; tensors are on the CPU.

    Raises:
        InputError: no such file, or not one of ours.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            structure = json.loads(archive.read(_STRUCTURE))
            if structure["format"] != _FORMAT:
                raise InputError(
                    f"{path}: written in the format {structure['format']!r}, this version reads "
                    f"{_FORMAT!r}; update midge."
                )
            return _Reader(archive).decode(structure["value"])
    except FileNotFoundError:
        raise InputError(f"{path}: no such file.") from None
    except InputError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError, OSError) as error:
        raise InputError(
            f"{path}: not a file written by midge.core.save, or damaged ({error})."
        ) from None


class _Reader:
    """Turns JSON back into a value."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        """Read members from an open archive."""
        self.archive = archive
        self.arrays: dict[int, Array] = {}

    def decode(self, node: Any) -> Any:
        """Return the value of a JSON node."""
        if not isinstance(node, list):
            return node
        kind, content = node[0], node[1]
        if kind == "float":
            return float.fromhex(content)
        if kind == "tensor":
            return Tensor(self._array(content), node[2])
        if kind == "array":
            return self._array(content)
        if kind == "dict":
            return {key: self.decode(v) for key, v in content}
        if kind in ("list", "tuple"):
            parts = [self.decode(v) for v in content]
            return tuple(parts) if kind == "tuple" else parts
        raise ValueError(f"unknown kind {kind!r}")

    def _array(self, number: int) -> Array:
        if number not in self.arrays:
            with self.archive.open(f"{int(number)}.npy") as member:
                self.arrays[number] = np.lib.format.read_array(member, allow_pickle=False)
        return self.arrays[number]
