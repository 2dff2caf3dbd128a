"""LayerNorm as exporters spell it below opset 17 becomes the operator.

1. Nodes that compute (x - mean) / sqrt(variance + epsilon) * Scale + B over the last axes of one
   tensor become LayerNormalization: PyTorch's chain of nine nodes, and other orders of the same
   arithmetic (Mul by a reciprocal root, x * a + (B - mean * a), squares by Pow or by Mul).

Which order it is does not matter: the nodes are evaluated in float64 on random numbers, and the
result says what they are. The operator is of opset 17, to which the model is raised; between 13 and
17 only RoiAlign changed its meaning, and a model that has one keeps its nodes.

Source: ONNX, LayerNormalization; J. Ba et al., "Layer Normalization", 2016, equation 4.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.elementwise import function_of, operands
from midge.convert.passes.base import Pass, PassResult, nodes_of

OPSET, IR_VERSION = 17, 8
ARITHMETIC = ("Add", "Div", "Mul", "Neg", "Pow", "ReduceMean", "Reciprocal", "Sqrt", "Sub")
ENDS = ("Add", "Div", "Mul", "Sub")
MOST_NODES = 16
LARGEST_EPSILON = 0.1
SIZE = 7  # of the axes in front of the normalized ones, on which the nodes are tried
PRECISION = 1e-9  # relative, of float64


@dataclass(frozen=True, slots=True)
class _Norm:
    """What nodes compute.

    Args:
        x: their one input.
        nodes: in graph order.
        axis: the first normalized one, not negative.
        epsilon: added to the variance.
        scale: float32, of the normalized axes.
        bias: the same.
    """

    x: ir.Value
    nodes: list[ir.Node]
    axis: int
    epsilon: float
    scale: g.Array
    bias: g.Array


class FuseLayerNorm(Pass):
    """Recognize LayerNorm."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rule 1."""
        result, names = PassResult(), g.Names(model.graph)
        roots = nodes_of(model, "Sqrt", "Pow")
        if not roots or nodes_of(model, "RoiAlign"):
            return result
        order = {node: index for index, node in enumerate(model.graph)}
        gone: set[ir.Node] = set()
        for node in reversed(nodes_of(model, *ENDS)):
            found = None if node in gone else _find(node, order)
            if found is None:
                continue
            _replace(model, node, found, names)
            gone |= set(found.nodes)
            for part in found.nodes:
                result.folded(part, "into a LayerNormalization")
        return result


def _find(end: ir.Node, order: dict[ir.Node, int]) -> _Norm | None:
    """Return the LayerNorm that ends at a node, or None."""
    inside = {end}
    while len(inside) <= MOST_NODES:
        edge = {
            v
            for n in inside
            for v in _inputs(n)
            if not g.is_constant(v) and v.producer() not in inside
        }
        if len(edge) == 1:
            (x,) = edge
            found = _recognize(x, sorted(inside, key=order.__getitem__))
            if found is not None:
                return found
        producers = [p for v in edge if (p := v.producer()) is not None and p in order]
        producers.sort(key=order.__getitem__, reverse=True)
        joined = next((p for p in producers if _joins(p, inside)), None)
        if joined is None:
            return None
        inside.add(joined)
    return None


def _inputs(node: ir.Node) -> list[ir.Value]:
    return [v for v in node.inputs[:1] if v] if node.op_type == "ReduceMean" else operands(node)


def _joins(node: ir.Node, inside: set[ir.Node]) -> bool:
    y = node.outputs[0]
    if not g.is_op(node, *ARITHMETIC) or y.is_graph_output():
        return False
    return all(use.node in inside for use in y.uses())


def _recognize(x: ir.Value, nodes: list[ir.Node]) -> _Norm | None:
    """Return what nodes compute of x where that is a LayerNorm."""
    kinds = {n.op_type for n in nodes}
    shape = g.dims(x)
    if "ReduceMean" not in kinds or not kinds & {"Sqrt", "Pow"} or not g.is_float(x):
        return None
    if shape is None or shape != g.dims(nodes[-1].outputs[0]):
        return None
    axis = _first_axis([n for n in nodes if n.op_type == "ReduceMean"], len(shape))
    if axis is None or None in shape[axis:]:
        return None
    tail = [d for d in shape[axis:] if d is not None]
    rng = np.random.default_rng(0)
    front = [1] * (axis - 1) + [SIZE] if axis else []
    samples = [rng.normal(1, 2, [*front, *tail]) for _ in range(3)]
    with np.errstate(all="ignore"):
        results = [_evaluate(x, nodes, sample) for sample in samples]
    if any(y is None or y.shape != s.shape for y, s in zip(results, samples, strict=True)):
        return None
    axes = tuple(range(axis, len(shape)))
    for epsilon in _epsilons(nodes):
        fitted = _fit([_normalized(s, axes, epsilon) for s in samples], results, axis)
        if fitted is not None:
            return _Norm(x, nodes, axis, epsilon, *fitted)
    return None


def _first_axis(means: list[ir.Node], rank: int) -> int | None:
    """Return the first axis of means that all are over the last axes and keep them."""
    found = set()
    for node in means:
        given = g.operand(node, 1)  # an input since opset 18
        axes = g.attribute(node, "axes") if given is None else g.constant(given)
        if axes is None or not g.attribute(node, "keepdims", 1):
            return None
        found.add(tuple(sorted(int(a) % rank for a in axes)))
    if len(found) != 1:
        return None
    (axes,) = found
    return axes[0] if axes == tuple(range(axes[0], rank)) else None


def _evaluate(x: ir.Value, nodes: list[ir.Node], sample: g.Array) -> g.Array | None:
    """Compute the last node's output in float64."""
    known: dict[ir.Value, g.Array] = {x: sample}
    for node in nodes:
        arrays = []
        for value in _inputs(node):
            array = known.get(value)
            array = g.constant(value) if array is None else array
            if array is None:
                return None
            arrays.append(np.asarray(array, np.float64))
        try:
            known[node.outputs[0]] = _function(node, sample.ndim)(*arrays)
        except ValueError:  # shapes that fit another number of rows only
            return None
    return known[nodes[-1].outputs[0]]


def _function(node: ir.Node, rank: int) -> Callable[..., g.Array]:
    if node.op_type == "ReduceMean":
        axis = _first_axis([node], rank) or 0
        return lambda x: np.mean(x, axis=tuple(range(axis, rank)), keepdims=True)
    function = function_of(node)
    assert function is not None
    return function


def _epsilons(nodes: list[ir.Node]) -> list[float]:
    """Return the numbers that may be epsilon: small constants of an Add."""
    adds = [n for n in nodes if n.op_type == "Add"]
    numbers = [g.scalar(v) for n in adds for v in n.inputs]
    return [v for v in numbers if v is not None and 0 < v <= LARGEST_EPSILON]


def _normalized(x: g.Array, axes: tuple[int, ...], epsilon: float) -> g.Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = (centred**2).mean(axis=axes, keepdims=True)
    y: g.Array = centred / np.sqrt(variance + epsilon)
    return y


def _fit(
    normalized: list[g.Array], results: list[g.Array | None], axis: int
) -> tuple[g.Array, g.Array] | None:
    """Return (scale, bias) such that every result is scale * normalized + bias, or None."""
    rows = [n.reshape(-1, *n.shape[axis:]) for n in normalized]
    wanted = [y.reshape(-1, *y.shape[axis:]) for y in results if y is not None]
    scale = (wanted[0][0] - wanted[1][0]) / (rows[0][0] - rows[1][0])
    bias = wanted[0][0] - scale * rows[0][0]
    limit = PRECISION * max(float(np.abs(y).max()) for y in wanted)
    for n, y in zip(rows, wanted, strict=True):
        if not np.all(np.abs(scale * n + bias - y) <= limit):  # NaN is none either
            return None
    bias = np.where(np.abs(bias) <= limit, 0, bias)  # none is 0, not a rounding error
    return scale.astype(np.float32), bias.astype(np.float32)


def _replace(model: ir.Model, end: ir.Node, norm: _Norm, names: g.Names) -> None:
    stem, old = g.label(end), end.outputs[0]
    made = g.new_node(
        names,
        "LayerNormalization",
        [
            norm.x,
            *(
                g.add_constant(model.graph, names, f"{stem}_{name}", array)
                for name, array in (("Scale", norm.scale), ("B", norm.bias))
                if name == "Scale" or array.any()
            ),
        ],
        names.fresh(f"{old.name}_normalized"),
        like=old,
        attributes={"axis": norm.axis, "epsilon": norm.epsilon},
    )
    g.insert_before(end, made)
    g.take_over(old, made.outputs[0])
    for node in reversed(norm.nodes):
        g.remove(node)
    version = model.graph.opset_imports.get("", OPSET)
    model.graph.opset_imports[""] = max(version, OPSET)
    model.ir_version = max(model.ir_version or 0, IR_VERSION)
