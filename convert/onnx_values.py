"""--input-value: inputs that are known before the network runs become constants of the graph."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from midge.core.errors import InputError, did_you_mean

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


def _filled(
    value: onnx.ValueInfoProto, number: float, path: Path
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
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
