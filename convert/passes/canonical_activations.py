"""Relu and Clip in one form, next to the layer that they can become part of.

1. Max(x, c), Min(x, c) with one number c, and Clip with constant limits, become Clip; limits of
   (0, none) become Relu.
2. Two of them in a row become one, with the intersection of their ranges.
3. Relu or Clip behind MaxPool, Slice, Transpose or a Reshape moves before it, where a layer stands
   there: both are monotone, so they commute.

A Clip whose limits are computed stays.
"""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of

MOVES = ("MaxPool", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice")
LAYERS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub"),
    *("AveragePool", "GlobalAveragePool"),
)
INF = float("inf")


class CanonicalActivations(Pass):
    """Spell every bound as Relu or Clip and merge neighbours."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 to 3."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, "Max", "Min", "Clip"):
            _respell(model, node, names, result)
        for node in nodes_of(model, "Relu", "Clip"):
            _merge(model, node, names, result)
        for node in nodes_of(model, "Relu", "Clip"):
            _move_up(node, result)
        return result


def limits(node: ir.Node) -> tuple[float, float] | None:
    """Return the range of a Relu or Clip, or None where it is not constant."""
    if node.op_type == "Relu":
        return 0.0, INF
    bounds = []
    for index, default in ((1, -INF), (2, INF)):
        value = g.operand(node, index)
        bound = default if value is None else g.scalar(value)
        if bound is None:
            return None
        bounds.append(bound)
    return bounds[0], bounds[1]


def _respell(model: ir.Model, node: ir.Node, names: g.Names, result: PassResult) -> None:
    if node.op_type == "Clip":
        found = limits(node)
        if found == (0.0, INF) and g.is_float(node.inputs[0]):
            _spell(model, node, found, names)
            result.modified = True
        elif found is None:
            result.kept(node, "its limits are no constants")
        return
    if len(node.inputs) != 2:
        return
    for x, other in (node.inputs, node.inputs[::-1]):
        c = g.scalar(other)
        if c is None or x is None or g.is_constant(x) or not g.is_float(x):
            continue
        if (g.rank(other) or 0) > (g.rank(x) or 0):
            return
        node.replace_input_with(0, x)
        _spell(model, node, (c, INF) if node.op_type == "Max" else (-INF, c), names)
        result.modified = True
        return


def _spell(model: ir.Model, node: ir.Node, bounds: tuple[float, float], names: g.Names) -> None:
    """Make the node a Relu or a Clip with these limits."""
    node.resize_inputs(1)
    if bounds == (0.0, INF):
        node.op_type = "Relu"
        return
    node.op_type = "Clip"
    node.resize_inputs(3)
    for index, stem in ((0, "min"), (1, "max")):
        if np.isfinite(bounds[index]):
            array = np.array(bounds[index], np.float32)
            value = g.add_constant(model.graph, names, f"{g.label(node)}_{stem}", array)
            node.replace_input_with(index + 1, value)
    if not np.isfinite(bounds[1]):
        node.resize_inputs(2)


def _merge(model: ir.Model, node: ir.Node, names: g.Names, result: PassResult) -> None:
    source = node.inputs[0]
    before = source.producer() if source is not None else None
    if source is None or before is None or not g.is_op(before, "Relu", "Clip"):
        return
    first, second = limits(before), limits(node)
    if first is None or second is None or g.sole_consumer(source) is not node:
        return
    low, high = np.clip(first, *second)
    node.replace_input_with(0, before.inputs[0])
    _spell(model, node, (float(low), float(high)), names)
    g.remove(before)
    result.folded(before, f"into {g.label(node)}")


def _move_up(node: ir.Node, result: PassResult) -> None:
    """Turn layer, move, Relu into layer, Relu, move."""
    middle = node.inputs[0]
    move = middle.producer() if middle is not None else None
    if middle is None or move is None or not g.is_op(move, *MOVES) or len(move.outputs) > 1:
        return
    start = move.inputs[0]
    if start is None or g.sole_consumer(middle) is not node or g.sole_consumer(start) is not move:
        return
    if not g.is_op(start.producer(), *LAYERS, *MOVES):
        return
    end = node.outputs[0]
    graph = node.graph
    assert graph is not None
    # Names stay with the values they name: `end` still is the last of the three.
    g.replace(end, middle)
    if not middle.is_graph_output():
        middle.name, end.name = end.name, middle.name
    node.replace_input_with(0, start)
    move.replace_input_with(0, end)
    end.shape, end.type = start.shape, start.type
    graph.remove(node)
    graph.insert_before(move, node)
    result.modified = True
