"""Arrays in .npy and .npz files, read row by row, so that a file may be larger than memory."""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from midge.core.errors import InputError

Array = npt.NDArray[Any]
CHUNK = 1 << 20  # bytes


class ArrayFile:
    """One array in a .npz file, iterated over its rows.

    Args:
        path: of the file.
        member: its name in the archive.
    """

    def __init__(self, path: Path, member: str) -> None:
        """Read the header, and the rest once: damage must not show after half of the work.

        Raises:
            ValueError: it holds other than what the header says.
        """
        self.path, self.member = path, member
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            self.shape, self.fortran, self.dtype = _header(stream)
            have = archive.getinfo(member).file_size - stream.tell()
            while stream.read(CHUNK):  # to the end, where the checksum is compared
                pass
        need = math.prod(self.shape) * self.dtype.itemsize
        if min(self.shape, default=0) < 0 or have != need:
            raise ValueError(f"{member} of shape {self.shape} needs {need} bytes and has {have}")

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0] if self.shape else 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read everything."""
        with self._stream() as stream:
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array if dtype is None else array.astype(dtype)

    def __iter__(self) -> Iterator[Array]:
        """Give the rows, one in memory at a time.

        Raises:
            InputError: the file is damaged.
        """
        if self.fortran or not self.shape:
            yield from np.atleast_1d(np.asarray(self))
            return
        size = self.dtype.itemsize * math.prod(self.shape[1:])
        with self._stream() as stream:
            _header(stream)
            for _ in range(self.shape[0]):
                raw = stream.read(size)
                if len(raw) < size:
                    raise InputError(f"{self.path}: {self.member} is cut short.")
                yield np.frombuffer(raw, self.dtype).reshape(self.shape[1:])

    @contextmanager
    def _stream(self) -> Iterator[IO[bytes]]:
        """Open the member; damage that shows while it is read is told."""
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                yield stream
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{self.path}: {self.member} cannot be read: {error}.") from error


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return shape, fortran, dtype


def _why(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def open_npy(path: Path) -> Array:
    """Map a .npy file into memory.

    Raises:
        InputError: it is none, or damaged.
    """
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise InputError(f"{path} is no readable .npy file: {_why(error)}.") from error
    return array


def open_npz(path: Path) -> dict[str, ArrayFile]:
    """Open the arrays of a .npz file by name.

    Raises:
        InputError: it is none, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.namelist() if m.endswith(".npy")]
        return {m.removesuffix(".npy"): ArrayFile(path, m) for m in members}
    except Exception as error:
        raise InputError(f"{path} is no readable .npz file: {_why(error)}.") from error
