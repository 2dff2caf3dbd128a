"""How large the activations of a model are, told before any is allocated."""

import math
from collections.abc import Container, Iterable, Mapping

import onnx
import onnx.helper
import onnx.shape_inference

from midge.core.errors import InputError

MAX_BYTES = 1 << 30  # of one activation: a thousand times what a small device holds
MAX_TOTAL_BYTES = 1 << 31  # of all: calibration holds them at once
SMALL = 64  # elements of an initializer that may be a shape


def check_extents(proto: onnx.ModelProto, where: str, weights: Container[str] = ()) -> None:
    """Refuse activations too large to be computed anywhere near a small device.

    Leading dimensions that are unknown count as 1, as in calibration.

    Args:
        proto: valid.
        where: the file, for the message.
        weights: inputs that stand for initializers (large_models.py).

    Raises:
        InputError: naming the largest tensor.
    """
    sizes: dict[str, tuple[int, list[int]]] = {}
    _measure((i for i in proto.graph.input if i.name not in weights), sizes)
    _refuse_large(sizes, where)  # the inference below computes with these
    graph = _with_one_sample(proto.graph, weights)
    light = onnx.ModelProto(
        ir_version=proto.ir_version, opset_import=proto.opset_import, graph=graph
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception:  # what contradicts itself is told when the whole model is inferred
        return
    _measure((*inferred.graph.output, *inferred.graph.value_info), sizes)
    _refuse_large(sizes, where)


def _with_one_sample(graph: onnx.GraphProto, weights: Container[str]) -> onnx.GraphProto:
    """Return the graph for one sample, without its large initializers but with their shapes."""
    large = [t for t in graph.initializer if math.prod(t.dims) > SMALL]
    light = onnx.GraphProto(
        name=graph.name,
        node=graph.node,
        input=graph.input,
        output=[onnx.ValueInfoProto(name=v.name) for v in graph.output],
        initializer=[t for t in graph.initializer if math.prod(t.dims) <= SMALL],
    )
    for value in (i for i in light.input if i.name not in weights):
        for dim in value.type.tensor_type.shape.dim[:1]:
            dim.dim_value = max(dim.dim_value, 1)
    light.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in large
    )
    return light


def _measure(
    values: Iterable[onnx.ValueInfoProto], sizes: dict[str, tuple[int, list[int]]]
) -> None:
    for value in values:
        shape = [max(d.dim_value, 1) for d in value.type.tensor_type.shape.dim]
        sizes[value.name] = (4 * math.prod(shape), shape)


def _refuse_large(sizes: Mapping[str, tuple[int, list[int]]], where: str) -> None:
    name = max(sizes, key=lambda n: sizes[n], default="")
    if not name:
        return
    (size, shape), total = sizes[name], sum(s for s, _ in sizes.values())
    if size > MAX_BYTES or total > MAX_TOTAL_BYTES:
        raise InputError(
            f"{where}: tensor {name!r} of shape {shape} is too large: {size:,} bytes of at most "
            f"{MAX_BYTES:,}, all tensors {total:,} of at most {MAX_TOTAL_BYTES:,}; bind smaller "
            "dimensions."
        )
