"""Models over 2 GB: their large tensors stay in the files that hold them.

No message of protobuf is larger than 2 GB. What is read, checked and inferred is the model with its
large initializers as inputs; what ONNX Runtime gets is that model and arrays by name; what is
written is that model and one file of data beside it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

Array = npt.NDArray[Any]

LIMIT = 2**31 - 2**27  # bytes of tensors in one message
LARGE = 2**20  # bytes of a tensor that stays in its file
ALIGNMENT = 4096  # of tensors in a file of data, so that they can be mapped


@dataclass(frozen=True, slots=True)
class Message:
    """A model as a message, without the tensors that would make it too large.

    Args:
        proto: the model; those tensors are marked as external.
        weights: the tensors, by name.
    """

    proto: onnx.ModelProto
    weights: dict[str, Array] = field(default_factory=dict)


def set_aside(proto: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Take large external initializers out of a model that is too large with them.

    They become inputs, so that the rest of the model can be checked.

    Args:
        proto: its external data are not loaded.

    Returns:
        The initializers, by name; none where everything fits.
    """
    external = [t for t in proto.graph.initializer if _external_bytes(t)]
    if sum(map(_external_bytes, external)) + proto.ByteSize() < LIMIT:
        return {}
    large = {t.name: t for t in external if _external_bytes(t) >= LARGE}
    inputs = {i.name for i in proto.graph.input}
    for name, tensor in large.items():
        if name not in inputs:
            info = onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            proto.graph.input.append(info)
    kept = [t for t in proto.graph.initializer if t.name not in large]
    taken = {}
    for name, tensor in large.items():
        taken[name] = onnx.TensorProto()
        taken[name].CopyFrom(tensor)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    return taken


def _external_bytes(tensor: onnx.TensorProto) -> int:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return 0
    item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(np.prod(tensor.dims, dtype=np.int64)) * int(item)


def check_external(tensors: Iterable[onnx.TensorProto], folder: Path) -> None:
    """Refuse external tensors that lie outside of the folder or of their file.

    Raises:
        ValueError: naming the tensor.
    """
    for tensor in tensors:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        file = (folder / entries["location"]).resolve()
        if not file.is_relative_to(folder.resolve()) or not file.is_file():
            raise ValueError(f"tensor {tensor.name!r}: no file {entries['location']!r} beside it")
        offset, size = int(entries.get("offset", 0)), _external_bytes(tensor)
        if offset < 0 or offset + size > file.stat().st_size:
            raise ValueError(f"tensor {tensor.name!r} reaches beyond {entries['location']!r}")


def put_back(model: ir.Model, taken: dict[str, onnx.TensorProto], folder: Path) -> None:
    """Make initializers of the inputs that `set_aside` made.

    Args:
        model: read from the message.
        taken: what was set aside.
        folder: of the files that hold the data.
    """
    inputs = {str(v.name): v for v in model.graph.inputs}
    for name, proto in taken.items():
        value = inputs[name]
        entries = {entry.key: entry.value for entry in proto.external_data}
        tensor = ir.ExternalTensor(
            entries["location"],
            int(entries.get("offset", 0)),
            _external_bytes(proto),
            ir.DataType(proto.data_type),
            shape=ir.Shape(proto.dims),
            name=name,
            base_dir=folder,
        )
        model.graph.inputs.remove(value)
        value.const_value = tensor
        model.graph.register_initializer(value)


def message(model: ir.Model) -> Message:
    """Return a model as a message, its large tensors apart where it is too large with them."""
    tensors = {n: v.const_value for n, v in model.graph.initializers.items() if v.const_value}
    if sum(t.nbytes for t in tensors.values()) < LIMIT:
        with _as(model, {n: _held(t) for n, t in tensors.items()}):
            return Message(ir.to_proto(model))
    large = {name: t for name, t in tensors.items() if t.nbytes >= LARGE}
    marks: dict[str, ir.TensorProtocol] = {}
    for name, t in large.items():
        marks[name] = ir.ExternalTensor(
            "weights", 0, t.nbytes, t.dtype, shape=ir.Shape(t.shape.numpy()), name=name
        )
    with _as(model, marks):
        proto = ir.to_proto(model)
    return Message(proto, {name: np.ascontiguousarray(t.numpy()) for name, t in large.items()})


def _held(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor with its data in memory, as a message holds them."""
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor
    return ir.tensor(tensor.numpy(), name=tensor.name)


@contextmanager
def _as(model: ir.Model, tensors: dict[str, ir.TensorProtocol]) -> Iterator[None]:
    """Let initializers be other tensors for a while."""
    values = {name: model.graph.initializers[name] for name in tensors}
    before = {name: value.const_value for name, value in values.items()}
    for name, value in values.items():
        value.const_value = tensors[name]
    try:
        yield
    finally:
        for name, value in values.items():
            value.const_value = before[name]


def placed(large: Message, file: str) -> tuple[bytes, list[tuple[int, Array]]]:
    """Return the bytes of a model whose weights lie in a file, and where each lies in it.

    Args:
        large: with weights.
        file: name of the file of data, beside the model.
    """
    at, places = 0, []
    by_name = {t.name: t for t in large.proto.graph.initializer}
    for name, array in large.weights.items():
        at = -(-at // ALIGNMENT) * ALIGNMENT
        tensor = by_name[name]
        del tensor.external_data[:]
        for key, value in (("location", file), ("offset", at), ("length", array.nbytes)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        places.append((at, array))
        at += array.nbytes
    return bytes(large.proto.SerializeToString(deterministic=True)), places
