"""Small questions about an ONNX graph, asked in one place, and the few edits that answer them.

A "constant" is an initializer or the output of a Constant node; an "activation" is anything else.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[Any]

# Axis of the weight that runs over output channels. ConvTranspose's W is [C, O/group, kh, kw]: the
# axis holds one group's channels, group after group. Gemm depends on transB, see `channel_axis`.
WEIGHT_AXIS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}


def constant(value: ir.Value | None) -> Array | None:
    """Return the value of a constant as an array, or None for an activation."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy())


def is_constant(value: ir.Value | None) -> bool:
    """Tell whether the value is known before any input is."""
    return value is not None and ir.convenience.get_const_tensor(value) is not None


def scalar(value: ir.Value | None) -> float | None:
    """Return a one-element constant as a float, or None."""
    array = constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """Tell whether the node is one of these standard operators."""
    return node is not None and node.domain in ("", "ai.onnx") and node.op_type in op_types


def operator(node: ir.Node) -> str:
    """Return the operator as a user writes it: "Conv", or "domain::Name" for other domains."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def label(node: ir.Node) -> str:
    """Return the node's name, or its first output where it has none."""
    return node.name or str(node.outputs[0].name)


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return an attribute's plain value, or the default where it is absent."""
    attr = node.attributes.get(name)
    if attr is None:
        return default
    value = attr.value
    return tuple(value) if isinstance(value, (list, tuple)) else value


def operand(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input, or None where it is absent or left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def name_of(value: ir.Value) -> str:
    """Return the value's name; every value of a graph that was read has one."""
    assert value.name is not None
    return value.name


def dims(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """Return the shape with None for each unknown dimension, or None where the rank is unknown."""
    if value is None or value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else None for d in value.shape)


def static_dims(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape where every dimension is known, else None."""
    shape = dims(value)
    if shape is None or any(d is None for d in shape):
        return None
    return tuple(d for d in shape if d is not None)


def rank(value: ir.Value | None) -> int | None:
    """Return the number of dimensions, or None."""
    return None if value is None or value.shape is None else len(value.shape)


def is_float(value: ir.Value | None) -> bool:
    """Tell whether the value is a float32 tensor."""
    return value is not None and value.dtype == ir.DataType.FLOAT


def sole_consumer(value: ir.Value) -> ir.Node | None:
    """Return the one node that uses the value, or None if it has others or is a graph output."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def channel_axis(node: ir.Node, weight_rank: int) -> int:
    """Return the output-channel axis of a layer's weight, not negative."""
    if node.op_type == "Gemm" and attribute(node, "transB", 0):
        return 0
    return WEIGHT_AXIS[node.op_type] % weight_rank


class Names:
    """Hands out names that nothing in the graph carries yet."""

    def __init__(self, graph: ir.Graph) -> None:
        """Collect the names in use, in subgraphs too."""
        self._used: set[str] = set()
        for value in _values(graph):
            self._used.add(value.name or "")
        self._used |= {node.name or "" for node in graph.all_nodes()}

    def fresh(self, stem: str) -> str:
        """Return `stem`, or `stem_2`, `stem_3`, ... where it is taken; the name is then taken."""
        name, count = stem, 1
        while name in self._used:
            count += 1
            name = f"{stem}_{count}"
        self._used.add(name)
        return name


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph.all_nodes():
        yield from node.outputs
        yield from (v for v in node.inputs if v is not None)
    for inner in graph.subgraphs():
        yield from inner.inputs
        yield from inner.initializers.values()


def add_constant(graph: ir.Graph, names: Names, stem: str, array: Array) -> ir.Value:
    """Add an initializer with a fresh name and return its value."""
    array = np.array(array, order="C")  # a copy: the caller may go on changing its own
    tensor = ir.tensor(array, name=names.fresh(stem))
    value = ir.val(tensor.name, const_value=tensor)
    graph.register_initializer(value)
    return value


def new_node(
    names: Names,
    op_type: str,
    inputs: list[ir.Value | None],
    output: str,
    *,
    like: ir.Value | None = None,
    name: str | None = None,
    attributes: dict[str, Any] | None = None,
) -> ir.Node:
    """Make a one-output node that is in no graph yet.

    Args:
        names: of the graph it will join.
        op_type: a standard operator.
        inputs: operands.
        output: name of the output, as it stands.
        like: a value whose type and shape the output has.
        name: of the node; by default the output's.
        attributes: plain Python values.
    """
    value = ir.val(output, shape=like.shape if like else None, type=like.type if like else None)
    label_ = names.fresh(f"{output}_{op_type}") if name is None else name
    return ir.node(op_type, inputs, attributes, outputs=[value], name=label_)


def replace(old: ir.Value, new: ir.Value) -> None:
    """Let every use of `old` read `new`; a graph output keeps its name.

    Where `old` is a graph output, `new` takes its name over. The caller sees to it that `new` is
    then neither an input, a constant nor another output (`may_replace`).
    """
    if old.is_graph_output():
        take_over(old, new)
    else:
        ir.convenience.replace_all_uses_with(old, new)


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Let `new` replace `old` under the name of `old`; the old value is left unnamed and unused."""
    name = name_of(old)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name = f"{name}_replaced"
    new.name = name
    if new.shape is None:  # nobody inferred it, but the user's output has one
        new.shape = old.shape


def may_rename(value: ir.Value) -> bool:
    """Tell whether a value's name is midge's own affair."""
    owned = value.is_graph_input() or value.is_graph_output() or value.is_initializer()
    return value.producer() is not None and not owned


def may_replace(old: ir.Value, new: ir.Value) -> bool:
    """Tell whether `replace(old, new)` keeps every graph output."""
    return not old.is_graph_output() or may_rename(new)


def remove(node: ir.Node) -> None:
    """Take a node whose outputs nobody uses out of its graph."""
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def insert_after(anchor: ir.Node, *nodes: ir.Node) -> None:
    """Insert nodes, in order, after one that is in the graph."""
    assert anchor.graph is not None
    anchor.graph.insert_after(anchor, nodes)


def insert_before(anchor: ir.Node, *nodes: ir.Node) -> None:
    """Insert nodes, in order, before one that is in the graph."""
    assert anchor.graph is not None
    anchor.graph.insert_before(anchor, nodes)
