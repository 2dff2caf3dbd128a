"""What must hold of an ONNX message before anything is computed or allocated from it.

A file may come from anywhere. These checks take time and memory in proportion to the file's size,
whatever dimensions, nesting or references it declares; what follows them may trust the graph.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper

from midge.convert.ort import one_line
from midge.core.errors import InputError, did_you_mean

MAX_DEPTH = 32  # of subgraphs, and of functions that call functions
MAX_NODES = 1_000_000  # after functions are inlined
STANDARD = ("", "ai.onnx")
PACKED = {onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1}  # two a byte
# Operators whose weights are numbers; elsewhere an infinity may be meant, as in a mask.
LAYERS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "InstanceNormalization"),
    *("LayerNormalization", "GroupNormalization", "PRelu", "LSTM", "GRU", "RNN"),
    *("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul"),
)


def check_message(proto: onnx.ModelProto, where: str) -> None:
    """Refuse a message whose parts contradict each other.

    Args:
        proto: with its external data loaded.
        where: the file, for the message.

    Raises:
        InputError: naming the node or tensor.
    """
    if not proto.graph.output:
        raise InputError(f"{where}: the graph has no output; name one when exporting it.")
    _check_functions(proto, where)
    for graph in _graphs(proto, where):
        for tensor in _tensors(graph):
            check_size(tensor, where)
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise InputError(f"{where}: initializer {name!r} is sparse; export it as a dense one.")
    _check_types(proto.graph, where)
    _check_outputs(proto.graph, where)
    _check_numbers(proto.graph, where)
    sort_nodes(proto.graph, where)


def check_text(proto: onnx.ModelProto, where: str) -> None:
    """Refuse names and other strings that are no text.

    Raises:
        InputError: naming the field.
    """
    waiting: list[Any] = [proto]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            many = hasattr(value, "append") or hasattr(value, "add")
            if field.type == field.TYPE_MESSAGE:
                waiting += value if many else [value]
            elif field.type == field.TYPE_STRING:
                for text in value if many else [value]:
                    if not isinstance(text, str):
                        raise InputError(
                            f"{where}: {message.DESCRIPTOR.name}.{field.name} is no text: "
                            f"{text[:40]!r}; the file is damaged, export it again."
                        )


def _graphs(proto: onnx.ModelProto, where: str) -> Iterator[onnx.GraphProto]:
    """Yield the main graph, every function's body and every subgraph."""
    bodies = [onnx.GraphProto(node=f.node, name=f.name) for f in proto.functions]
    waiting = [(graph, 0) for graph in (proto.graph, *bodies)]
    while waiting:
        graph, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise InputError(f"{where}: subgraphs are nested more than {MAX_DEPTH} deep.")
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [(g, depth + 1) for g in _subgraphs(attribute)]


def _subgraphs(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else []
            yield from attribute.tensors


def _check_functions(proto: onnx.ModelProto, where: str) -> None:
    """Refuse functions that call themselves, or that grow beyond measure when inlined."""
    functions = {(f.domain, f.name): f for f in proto.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(node: onnx.NodeProto, callers: tuple[tuple[str, str], ...]) -> int:
        key = (node.domain, node.op_type)
        if key in callers:
            raise InputError(f"{where}: the function {node.op_type!r} calls itself.")
        if len(callers) > MAX_DEPTH:
            raise InputError(f"{where}: functions call each other more than {MAX_DEPTH} deep.")
        if key in functions and key not in sizes:
            sizes[key] = total(functions[key].node, (*callers, key))
        inner = chain.from_iterable(_subgraphs(a) for a in node.attribute)
        return sizes.get(key, 1) + sum(total(g.node, callers) for g in inner)

    def total(nodes: Sequence[onnx.NodeProto], callers: tuple[tuple[str, str], ...]) -> int:
        count = sum(size(node, callers) for node in nodes)
        if count > MAX_NODES:
            raise InputError(f"{where}: the model has more than {MAX_NODES:,} nodes.")
        return count

    total(proto.graph.node, ())


def check_size(tensor: onnx.TensorProto, where: str) -> None:
    """Refuse a tensor that holds fewer or more bytes than its dimensions say.

    Args:
        tensor: with its data, external ones loaded.
        where: the file, for the message.

    Raises:
        InputError: naming the tensor.
    """
    what, shape = f"{where}: initializer {tensor.name!r}", list(tensor.dims)
    kind = tensor.data_type
    if any(d < 0 for d in shape):
        raise InputError(f"{what} has the impossible shape {shape}.")
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        stored = getattr(tensor, onnx.helper.tensor_dtype_to_field(kind))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{what} has the unknown element type {kind}.") from error
    count = math.prod(shape)
    packed = -(-count // 2) if kind in PACKED else count
    if tensor.HasField("raw_data"):
        need, have, unit = packed * (1 if kind in PACKED else dtype.itemsize), 0, "bytes"
        have = len(tensor.raw_data)
    else:
        need, have, unit = packed * (2 if dtype.kind == "c" else 1), len(stored), "elements"
    if need != have:
        raise InputError(
            f"{what} of shape {shape} and type {dtype} needs {need} {unit}, the file holds {have}; "
            "it is damaged, export it again."
        )


def _check_types(graph: onnx.GraphProto, where: str) -> None:
    for value in graph.input:
        kind = value.type.tensor_type.elem_type
        if value.type.WhichOneof("value") != "tensor_type" or kind == onnx.TensorProto.STRING:
            raise InputError(
                f"{where}: input {value.name!r} is no tensor of numbers; cut what reads it off the "
                "model, or do it before the model."
            )


def _check_outputs(graph: onnx.GraphProto, where: str) -> None:
    """Refuse an output that is an input under another shape: no node would contradict it."""
    inputs = {value.name: value.type.tensor_type.shape.dim for value in graph.input}
    for value in graph.output:
        given, declared = inputs.get(value.name), value.type.tensor_type.shape.dim
        if given is None or not value.type.tensor_type.HasField("shape"):
            continue
        sizes = zip(given, declared, strict=False)
        clash = any(a.dim_value != b.dim_value for a, b in sizes if a.dim_value and b.dim_value)
        if clash or len(given) != len(declared):
            raise InputError(f"{where}: output {value.name!r} is an input of another shape.")


def _check_numbers(graph: onnx.GraphProto, where: str) -> None:
    """Refuse NaN in any constant that a node reads, and Inf in the weights of layers."""
    read: dict[str, bool] = {}  # name -> a layer reads it
    for node in graph.node:
        for name in node.input:
            read[name] = read.get(name, False) or node.op_type in LAYERS
    for tensor in graph.initializer:
        array = _array(tensor, where) if tensor.name in read else np.zeros(0)
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        nan = bool(np.isnan(array).any())
        if nan or read[tensor.name]:
            first = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
            raise InputError(
                f"{where}: initializer {tensor.name!r} holds {'NaN' if nan else 'Inf'}, first at "
                f"{first}; training has diverged or the file is damaged: export a sound model."
            )


def _array(tensor: onnx.TensorProto, where: str) -> Any:
    """Return the numbers of a constant.

    Raises:
        InputError: they contradict its shape or dtype, or it has too many dimensions.
    """
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{where}: initializer {tensor.name!r} cannot be read, {one_line(error)}; the file is "
            "damaged."
        ) from error


def check_operators(proto: onnx.ModelProto, where: str, domains: Sequence[str]) -> None:
    """Refuse operators that the model's opset does not have, with the nearest that it has.

    Args:
        proto: the model.
        where: the file, for the message.
        domains: whose operators midge knows.

    Raises:
        InputError: naming the node.
    """
    opset = max(e.version for e in proto.opset_import if e.domain in STANDARD)
    local = {(f.domain, f.name) for f in proto.functions}
    for graph in _graphs(proto, where):
        for node in graph.node:
            what = f"{where}: node {label(node)!r} is the operator"
            if (node.domain, node.op_type) in local:
                continue
            if node.domain not in domains:
                raise InputError(
                    f"{what} {node.domain}::{node.op_type}, which midge does not know; export the "
                    "model with standard ONNX operators."
                )
            if node.domain in STANDARD and not onnx.defs.has(node.op_type, opset, ""):
                known = {s.name for s in onnx.defs.get_all_schemas()}
                raise InputError(
                    f"{what} {node.op_type}, which ONNX opset {opset} does not have; export the "
                    f"model again.{did_you_mean(node.op_type, known)}"
                )


def label(node: onnx.NodeProto) -> str:
    """Return the name of a node, or of its first output."""
    return node.name or next(iter(node.output), "") or node.op_type


def sort_nodes(graph: onnx.GraphProto, where: str) -> None:
    """Put every node behind those whose outputs it reads; an order that is right stays.

    Raises:
        InputError: nodes wait for each other, or an input comes from nowhere; the node is named.
    """
    known = {"", *(v.name for v in graph.input), *(t.name for t in graph.initializer)}
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    users: dict[int, list[int]] = {}
    sources: list[set[int]] = []
    for index, node in enumerate(graph.node):
        needs = {name for name in needed_names(node) if name not in known}
        for name in needs:
            if name not in makers:
                raise InputError(
                    f"{where}: node {label(node)!r} ({node.op_type}) reads {name!r}, which is "
                    "neither an input nor an initializer nor made by a node."
                )
        sources.append({makers[name] for name in needs})
        for source in sources[-1]:
            users.setdefault(source, []).append(index)
    waits = [len(s) for s in sources]
    order = [i for i, count in enumerate(waits) if count == 0]
    for index in order:  # grows while it is walked
        for user in users.get(index, ()):
            waits[user] -= 1
            if waits[user] == 0:
                order.append(user)
    if len(order) < len(graph.node):
        names = ", ".join(repr(label(graph.node[i])) for i in _cycle(sources, waits)[:5])
        raise InputError(f"{where}: the graph has a cycle through {names}; export the model again.")
    place = {index: at for at, index in enumerate(order)}
    if any(place[s] > place[u] or s > u for s, us in users.items() for u in us):
        nodes = [graph.node[i] for i in order]
        sorted_graph = onnx.GraphProto(node=nodes)
        del graph.node[:]
        graph.node.extend(sorted_graph.node)


def _cycle(sources: Sequence[set[int]], waits: Sequence[int]) -> list[int]:
    """Return nodes of which each waits for the next, and the last for the first."""
    walk = [next(i for i, count in enumerate(waits) if count)]
    while True:
        before = next(s for s in sources[walk[-1]] if waits[s])
        if before in walk:
            return walk[walk.index(before) :]
        walk.append(before)


def needed_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, those that its subgraphs take from outside included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in _subgraphs(attribute):
            own = {"", *(v.name for v in graph.input), *(t.name for t in graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            names = chain.from_iterable(needed_names(inner) for inner in graph.node)
            outputs = (v.name for v in graph.output)
            yield from (name for name in chain(names, outputs) if name not in own)
