"""Constant folding: what depends on constants only is computed once, by ONNX Runtime.

1. Constant nodes become initializers.
2. A node whose inputs are all constants is run, and its outputs become initializers.
3. So are nodes that depend on shapes only (Shape, Gather, Concat, ...) where the answer is the same
   for two batch sizes.
4. A Reshape to a shape that only the batch size changes gets a constant target with -1.
5. A tensor without elements is one, whatever it is made of; not where the graph has inputs without
   any, as some exporters write a size that they do not know.

Random operators, control flow and results above `MAX_BYTES` that are larger than what they are made
of stay. A dimension other than the leading one must be known for rule 3.
"""

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from midge.convert import graph as g
from midge.convert.ort import make_session, run
from midge.convert.passes.base import Pass, PassResult, nodes_of
from midge.core.errors import ToolError

RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)
MAX_BYTES = 1 << 20  # of a result that is larger than its inputs (ConstantOfShape, Expand, Tile)
BATCHES = (2, 3)  # two sizes that tell a batch dimension from a known one


class FoldConstants(Pass):
    """Replace what does not depend on the inputs by its value."""

    removes = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Run rules 1 to 5."""
        result = PassResult()
        lifted = LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        result.modified = bool(lifted.modified)
        _fold_empty(model, result)
        _fold(model, result, shapes=False)
        _fold(model, result, shapes=True)
        return result


def _fold_empty(model: ir.Model, result: PassResult) -> None:
    """Apply rule 5."""
    if any(0 in (g.dims(v) or ()) and v.uses() for v in model.graph.inputs):
        return
    names = g.Names(model.graph)
    for node in list(model.graph):
        for y in node.outputs:
            shape = g.static_dims(y)
            if shape is None or 0 not in shape or y.dtype is None or _is_copy(node):
                continue
            _make_constant(model.graph, names, y, np.zeros(shape, y.dtype.numpy()))
            result.folded(node, "it has no elements")


def _make_constant(graph: ir.Graph, names: g.Names, y: ir.Value, array: g.Array) -> None:
    """Let a constant stand for a value; a graph output becomes a copy of it, under its name."""
    made, node = g.add_constant(graph, names, f"{y.name}_folded", array), y.producer()
    if not y.is_graph_output() or node is None:
        g.replace(y, made)
        return
    copy = g.new_node(names, "Identity", [made], names.fresh(f"{y.name}_copy"), like=y)
    g.insert_before(node, copy)
    g.take_over(y, copy.outputs[0])


def _fold(model: ir.Model, result: PassResult, shapes: bool) -> None:
    """Evaluate every node that depends on constants (and shapes, if asked) only."""
    sources = _shape_sources(model) if shapes else {}
    if shapes and not sources:
        return
    names = g.Names(model.graph)
    for value, arrays in sources.items():
        if _same(*arrays) and not value.is_graph_output():
            g.replace(value, g.add_constant(model.graph, names, f"{value.name}_folded", arrays[0]))
            result.modified = True
    nodes = _foldable(model, set(sources))
    wanted = [
        v
        for n in nodes
        for v in n.outputs
        if v.is_graph_output() or any(u.node not in nodes for u in v.uses())
    ]
    if not wanted:
        return
    runs = [
        _evaluate(model, nodes, wanted, {v: s[i] for v, s in sources.items()})
        for i in range(len(BATCHES) if shapes else 1)
    ]
    for value, *arrays in zip(wanted, *runs, strict=True):
        array, producer = arrays[0], value.producer()
        if array is None or producer is None or _is_copy(producer):
            continue
        if any(not _same(array, a) for a in arrays):
            for use in value.uses():
                if g.is_op(use.node, "Reshape") and use.idx == 1:
                    _fix_target(model, use.node, [a for a in arrays if a is not None], result)
            continue
        if _too_large(array, producer):
            continue
        _make_constant(model.graph, names, value, array)
        result.folded(producer, "constant")


def _is_copy(node: ir.Node) -> bool:
    """Tell whether a node gives a constant the name of a graph output."""
    return g.is_op(node, "Identity") and node.outputs[0].is_graph_output()


def _same(a: g.Array, b: g.Array | None) -> bool:
    return b is not None and a.shape == b.shape and a.dtype == b.dtype and bool(np.all(a == b))


def _shape_sources(model: ir.Model) -> dict[ir.Value, list[g.Array]]:
    """Return, for each Shape node's output, its value at both batch sizes."""
    sources = {}
    for node in nodes_of(model, "Shape"):
        known = g.dims(node.inputs[0])
        if known is None or any(d is None for d in known[1:]):
            continue
        part = slice(g.attribute(node, "start", 0), g.attribute(node, "end"))
        sources[node.outputs[0]] = [
            np.array([*(d or n for d in known[:1]), *known[1:]][part], np.int64) for n in BATCHES
        ]
    return sources


def _foldable(model: ir.Model, sources: set[ir.Value]) -> dict[ir.Node, None]:
    """Return the nodes, in order, whose inputs are constants, `sources` or foldable outputs."""
    known: set[ir.Value] = set(sources)
    nodes: dict[ir.Node, None] = {}
    for node in model.graph:
        given = [v for v in node.inputs if v is not None]
        if g.is_op(node, "Shape") and node.outputs[0] in sources:
            continue
        inner = any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values())
        if not given or inner or node.op_type in RANDOM or node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            continue  # folding these would lose the codes of a quantized model
        if all(v in known or g.is_constant(v) for v in given):
            nodes[node] = None
            known |= set(node.outputs)
    return nodes


def _evaluate(
    model: ir.Model,
    nodes: dict[ir.Node, None],
    wanted: list[ir.Value],
    feeds: dict[ir.Value, g.Array],
) -> list[g.Array | None]:
    """Run the nodes in ONNX Runtime; None stands for every result if it cannot."""
    protos = [ir.to_proto(n) for n in nodes]
    tensors, inputs = {}, {}
    for value in (v for n in nodes for v in n.inputs if v is not None):
        array, name = g.constant(value), g.name_of(value)
        if array is not None:
            tensors[name] = onnx.numpy_helper.from_array(array, name)
        elif value in feeds:
            inputs[name] = feeds[value]
    graph = onnx.helper.make_graph(
        protos,
        "constants",
        [
            onnx.helper.make_tensor_value_info(k, onnx.TensorProto.INT64, v.shape)
            for k, v in inputs.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(str(v.name)) for v in wanted],
        list(tensors.values()),
    )
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in model.graph.opset_imports.items()]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)
    try:
        return list(run(make_session(proto, level="none", threads=1), inputs))
    except ToolError:
        return [None] * len(wanted)


def _too_large(array: g.Array, node: ir.Node) -> bool:
    inputs = [a.nbytes for a in map(g.constant, node.inputs) if a is not None]
    return array.nbytes > max([MAX_BYTES, *inputs])


def _fix_target(model: ir.Model, node: ir.Node, targets: list[g.Array], result: PassResult) -> None:
    """Give a Reshape a constant target, given what its computed one is for each of BATCHES."""
    source = g.dims(node.inputs[0])
    if source is None or None in source[1:] or g.attribute(node, "allowzero", 0):
        return
    shapes = []
    for batch, target in zip(BATCHES, targets, strict=True):
        before = [batch if d is None else d for d in source]
        after = [before[i] if d == 0 else int(d) for i, d in enumerate(target)]
        rest = int(np.prod([d for d in after if d >= 0]))
        shapes.append([int(np.prod(before)) // rest if d < 0 else d for d in after])
    varying = [i for i, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
    if len(varying) > 1:
        return
    sizes = np.array([-1 if i in varying else d for i, d in enumerate(shapes[0])], np.int64)
    names = g.Names(model.graph)
    stem = f"{node.outputs[0].name}_shape"
    node.replace_input_with(1, g.add_constant(model.graph, names, stem, sizes))
    result.modified = True
