"""Session: the compiled C of a model, called from Python in this process."""

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.build import link_flags, model_name, model_sources
from midge.convert.compile import read_plan
from midge.convert.emit import emit
from midge.convert.target import host_target
from midge.core.errors import InputError, ToolError
from midge.core.native import compile_shared

Array = npt.NDArray[Any]
NAME = "session"
ALIGNMENT = 16  # bytes, MIDGE_ARENA_ALIGNMENT
MAX_RANK = 8
DTYPES = ("int8", "uint8", "int32", "float32")  # midge_dtype


class _Session(ctypes.Structure):
    """midge_session of midge.h."""

    _fields_ = (
        ("model", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("kernels", ctypes.c_void_p),
        ("next", ctypes.c_uint32),
    )


class _Info(ctypes.Structure):
    """midge_tensor_info of midge.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("offset", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("shape", ctypes.c_uint32 * MAX_RANK),
        ("scale", ctypes.c_float),
        ("zero_point", ctypes.c_int32),
    )


class Session:
    """A model as C, compiled for this machine and called through the runtime's own interface.

    Args:
        path: a quantized ONNX file, or a folder that `midge compile` wrote.
        input_shapes: shapes of inputs with unknown dimensions, by name.

    Raises:
        InputError: the file or folder is at fault.
        UnsupportedError: a node has no C form, named.
        ToolError: the compiler failed.

    Attributes:
        inputs: (name, shape, dtype) of each input, in graph order.
        outputs: the same of each output.
    """

    def __init__(
        self, path: str | Path, input_shapes: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """Compile (or find in the cache) and open the model."""
        path = Path(path)
        if path.is_dir():
            name = model_name(path)
            library = _library(path, name)
        else:
            name = NAME
            target = host_target()
            plan = read_plan(path, name, input_shapes, target)
            with tempfile.TemporaryDirectory(prefix="midge-session-") as scratch:
                emit(plan, Path(scratch) / "c", name, golden=None, target=target)
                library = _library(Path(scratch) / "c", name)
        self._c = ctypes.CDLL(str(library))
        self._c.midge_info.restype = ctypes.POINTER(_Info)
        self._model = ctypes.addressof(ctypes.c_uint32.in_dll(self._c, f"{name}_model"))
        # The header of midge_model: abi, arena and scratch bytes, op_count, then two 16-bit counts.
        header = (ctypes.c_uint32 * 5).from_address(self._model)
        count = header[4] & 0xFFFF
        infos = [self._info(i) for i in range(count + (header[4] >> 16))]
        self.inputs = tuple((n, s, d) for n, s, d, _ in infos[:count])
        self.outputs = tuple((n, s, d) for n, s, d, _ in infos[count:])
        self._arena = np.zeros(header[1] + ALIGNMENT, np.uint8)
        start = -self._arena.ctypes.data % ALIGNMENT
        arena = self._arena[start : start + header[1]]
        self._views = [
            arena[o : o + np.dtype(d).itemsize * int(np.prod(s))].view(d).reshape(s)
            for _, s, d, o in infos
        ]
        self._session = _Session()
        status = self._c.midge_open(
            ctypes.byref(self._session),
            ctypes.c_void_p(self._model),
            ctypes.c_void_p(arena.ctypes.data),
            ctypes.c_size_t(arena.nbytes),
        )
        if status:
            raise ToolError(f"{path}: midge_open returned status {status}.")

    def _info(self, index: int) -> tuple[str, tuple[int, ...], str, int]:
        """Name, shape, dtype and arena offset of an input or output."""
        info = self._c.midge_info(ctypes.c_void_p(self._model), ctypes.c_uint32(index)).contents
        shape = tuple(info.shape[: info.rank])
        return info.name.decode(), shape, DTYPES[info.dtype], info.offset

    def run(self, *inputs: Array) -> list[Array]:
        """Run one sample.

        Args:
            inputs: in graph order, of the shapes and dtypes in `inputs`.

        Returns:
            Copies of the outputs, in graph order.

        Raises:
            InputError: an input is missing or does not fit, named.
        """
        if len(inputs) != len(self.inputs):
            raise InputError(f"the model takes {len(self.inputs)} inputs, not {len(inputs)}.")
        for view, array, (name, shape, dtype) in zip(
            self._views, inputs, self.inputs, strict=False
        ):
            if array.shape != shape or array.dtype != dtype:
                got = f"{array.dtype}{list(array.shape)}"
                raise InputError(
                    f"input {name!r}: got {got}; the model takes {dtype}{list(shape)}."
                )
            view[...] = array
        status = self._c.midge_run(ctypes.byref(self._session))
        if status:
            raise ToolError(f"midge_run returned status {status}.")
        return [view.copy() for view in self._views[len(self.inputs) :]]


def _library(directory: Path, name: str) -> Path:
    """Compile a folder to a shared library."""
    sources = model_sources(directory, name)
    flags = ["-O2", "-ffp-contract=off", *link_flags(sources)]
    return compile_shared(sources, flags=flags, include=[directory])
