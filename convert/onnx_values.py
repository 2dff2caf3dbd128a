"""--input-value: inputs that are known before the network runs become constants of the graph."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from midge.convert import graph as g
from midge.core.errors import InputError, did_you_mean

Array = npt.NDArray[Any]
Values = Mapping[str, float]


def bind_values(graph: onnx.GraphProto, values: Values, path: Path) -> None:
    """Turn inputs into constants that hold one number throughout.

    Constant folding then removes what depends on them alone, an If too.

    Args:
        graph: changed in place.
        values: number by name of the input; a bool is 0 or 1.
        path: of the file, for messages.

    Raises:
        InputError: an input does not exist, its sizes are not known, or its type does not hold the
            number.
    """
    inputs = {i.name: i for i in graph.input}
    for name, number in values.items():
        if name not in inputs:
            raise InputError(
                f"{path} has no input {name!r}; its inputs are {', '.join(map(repr, inputs))}."
                f"{did_you_mean(name, inputs)}"
            )
        array = _filled(inputs[name], number, path)
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        graph.input.remove(inputs[name])
    if values:
        if not graph.input:
            raise InputError(f"{path}: --input-value leaves no input to compute from.")
        del graph.value_info[:]


def constants(inputs: Iterable[ir.Value], values: Values) -> dict[str, Array]:
    """Return arrays for the inputs that hold a number, with 1 for unknown dimensions.

    They are for engines that run the file as it stands.

    Args:
        inputs: of the graph.
        values: number by name; one of no input is left out.
    """
    return {
        g.name_of(v): np.full(
            [d or 1 for d in g.dims(v) or ()], values[g.name_of(v)], v.dtype.numpy()
        )
        for v in inputs
        if g.name_of(v) in values and v.dtype is not None
    }


def _filled(value: onnx.ValueInfoProto, number: float, path: Path) -> Array:
    """Return an array of an input's shape and type that holds the number."""
    kind = value.type.tensor_type
    sizes = [d.dim_value for d in kind.shape.dim]
    option = f"{path}: --input-value {value.name}={number:.15g}"
    if not kind.HasField("shape") or any(size < 1 for size in sizes):
        raise InputError(f"{option}: its shape is not known; give it with --input-shape.")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype.kind not in "biuf":
        raise InputError(f"{option}: the input is {dtype}, which holds no number.")
    whole = dtype.kind in "iu"
    limits = np.iinfo(dtype) if whole else None
    outside = limits is not None and not limits.min <= number <= limits.max
    if outside or (whole and number != int(number)) or (dtype.kind == "b" and number not in (0, 1)):
        raise InputError(f"{option}: the input is {dtype}, which does not hold it.")
    return np.full(sizes, int(number) if whole else number, dtype)
