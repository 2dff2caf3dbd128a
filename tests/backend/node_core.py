"""Runs onnx's node tests through midge.core: each case as an imported module."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from node_cases import Array, Case, type_name
from onnx import TensorProto
from onnx.numpy_helper import to_array

from midge.convert.to_module import KEPT, load_module
from midge.core import no_grad
from midge.core.errors import MidgeError

# Element types that tensors of midge.core have and the front end reads.
TYPES = {
    *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.UINT8),
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
}


def run(case: Case, path: Path) -> list[Array]:
    """Return the outputs of a case.

    Args:
        case: with tensors as inputs.
        path: of a file to write and read.

    Raises:
        MidgeError: it is refused.
    """
    path.write_bytes(case.bound().SerializeToString())
    module = load_module(path)
    with no_grad():
        found = module(*map(_array, case.inputs.values()))
    return [y.array for y in (found if isinstance(found, tuple) else (found,))]


def _array(value: Any) -> Array:
    return to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def foreign_type(case: Case) -> str:
    """Return an element type that midge.core has no tensors of, or nothing."""
    for kind in _kinds(case.model.graph):
        if kind not in TYPES:
            return type_name(kind) if kind else "no tensor"
    return ""


def _kinds(graph: onnx.GraphProto) -> Iterator[int]:
    """Yield the types of inputs and outputs, then those of Casts; 0 for what is no tensor."""
    for value in (*graph.output, *graph.input):
        plain = value.type.WhichOneof("value") == "tensor_type"
        yield value.type.tensor_type.elem_type if plain else 0
    for node in graph.node:
        yield from (a.i for a in node.attribute if node.op_type == "Cast" and a.name == "to")


def lacking(case: Case, error: MidgeError) -> str:
    """Return the operator that a case is refused for, or nothing."""
    named = re.match(r"\S+ \((\w+)\): |onnx cannot write (\w+)", str(error))
    if named:
        return "" if named[1] in KEPT else named[1] or named[2]
    return next((n.op_type for n in case.model.graph.node if n.op_type not in KEPT), "")


def path_in(folder: Path) -> Path:
    """Return the file that each case is written to in turn."""
    return folder / "core.onnx"


def outcomes(
    cases: Sequence[Case], folder: Path
) -> Iterator[tuple[Case, list[Array] | MidgeError]]:
    """Yield what became of each case of tensors: its outputs, or the error that refused it."""
    for case in cases:
        try:
            yield case, run(case, path_in(folder))
        except MidgeError as error:
            yield case, error
