"""Elementwise nodes of a trace that compute one function of one tensor: in codes, one table.

The converter writes the tables that are found here as they are (convert/select.py), so that both
sides make one decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from midge.core import Tensor
from midge.core.backend import to_numpy
from midge.core.opspec import OPS, apply
from midge.core.trace import TraceGraph
from midge.core.tracer import TraceNode
from midge.quant.functions import Function, traced_function

Array = Any

BOUNDS = ("relu", "clip")
PAIRS = ("add", "sub", "mul")  # of two activations, the one tensor twice too: integer formulas
SATURATING = (
    "batch_norm",
    "conv2d",
    "linear",
    *PAIRS,
)  # a Relu or Clip behind becomes their saturation
MOVES = ("max_pool2d", "permute", "reshape", "slice")  # a Relu or Clip may move before them


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that are one function.

    Args:
        nodes: in order; the last one gives the result, nobody else reads the others.
        source: the value that it is a function of.
    """

    nodes: tuple[TraceNode, ...]
    source: str

    def real(self, x: Tensor, constants: Mapping[str, Tensor]) -> Tensor:
        """Return the float function of real values, with gradient."""
        known: dict[str, Tensor] = {self.source: x}
        for node in self.nodes:
            inputs = [known[n] if n in known else constants[n] for n in node.inputs if n]
            known[node.outputs[0]] = apply(OPS[node.op], inputs, node.attributes)
        return known[self.nodes[-1].outputs[0]]

    def double(self, x: Array, constants: Mapping[str, Tensor]) -> Array:
        """Return the function of float64 values, node by node as the converter computes it."""
        known: dict[str, Any] = {self.source: x}
        for node in self.nodes:
            function = function_of(node)
            assert function is not None
            operands = [known[n] if n in known else number(constants[n]) for n in node.inputs if n]
            known[node.outputs[0]] = function(*operands)
        return np.asarray(known[self.nodes[-1].outputs[0]], np.float64) + np.zeros_like(x)


def number(constant: Tensor) -> float:
    """Return the one element of a constant."""
    return float(to_numpy(constant.array).reshape(()))


def function_of(node: TraceNode) -> Function | None:
    """Return what a node computes element by element, or None where it is no such operator."""
    return traced_function(OPS[node.op].onnx, node.attributes)


def find_regions(trace: TraceGraph) -> list[Region]:
    """Return the functions of one tensor, as large as they can be, none inside of another.

    A Relu or Clip alone is none (it bounds codes), nor is a sum or product of a tensor with itself.
    """
    producers = {n.outputs[0]: n for n in trace.nodes}
    found: list[Region] = []
    taken: set[str] = set()
    for node in reversed(trace.nodes):
        is_float = trace.values[node.outputs[0]].dtype == "float32"
        if node.name in taken or not is_float or function_of(node) is None:
            continue
        region = _grow(node, trace, producers)
        if region is None or (len(region.nodes) == 1 and _is_plain(node, trace)):
            continue
        found.append(region)
        taken |= {n.name for n in region.nodes}
    return found


def _grow(end: TraceNode, trace: TraceGraph, producers: Mapping[str, TraceNode]) -> Region | None:
    """Return the largest function of one tensor that ends here."""
    order = {n.name: i for i, n in enumerate(trace.nodes)}
    inside, best = {end.name: end}, None
    while True:
        made = {n.outputs[0] for n in inside.values()}
        edge = {v: None for n in inside.values() for v in _values(n, trace) if v not in made}
        if len(edge) == 1:
            (source,) = edge
            if _fits(source, inside.values(), trace):
                nodes = sorted(inside.values(), key=lambda n: order[n.name])
                best = Region(tuple(nodes), source)
        before = [producers[v] for v in edge if v in producers]
        # The latest first: what an earlier node feeds is inside by the time that it is asked.
        before.sort(key=lambda n: order[n.name], reverse=True)
        joined = next((n for n in before if _joins(n, inside, trace, producers)), None)
        if joined is None:
            return best
        inside[joined.name] = joined


def _values(node: TraceNode, trace: TraceGraph) -> list[str]:
    return [n for n in node.inputs if n is not None and n not in trace.constants]


def _fits(source: str, nodes: Any, trace: TraceGraph) -> bool:
    """Tell whether every constant is one finite number that adds no axis to the tensor."""
    value = trace.values[source]
    constants = [trace.constants[n] for node in nodes for n in node.inputs if n in trace.constants]
    return value.dtype == "float32" and all(
        c.numel() == 1 and len(c.shape) <= len(value.shape) and np.isfinite(number(c))
        for c in constants
    )


def _joins(
    node: TraceNode,
    inside: Mapping[str, TraceNode],
    trace: TraceGraph,
    producers: Mapping[str, TraceNode],
) -> bool:
    """Tell whether only nodes of the function read what a node computes, and it may join them."""
    value = node.outputs[0]
    if function_of(node) is None or value in {v.name for v in trace.outputs}:
        return False
    if any(value in n.inputs and n.name not in inside for n in trace.nodes):
        return False
    # The converter merges bounds in a row, and moves or fuses them: those are no part of a table.
    before: TraceNode | None = node
    while before is not None and is_bound(before, trace):
        before = producers.get(_values(before, trace)[0])
    if before is node or before is None:
        return True
    fuses = before.op in SATURATING and not _is_unary(before, trace)
    return not fuses and before.op not in MOVES


def is_bound(node: TraceNode, trace: TraceGraph) -> bool:
    """Tell whether the file states the node as Relu or Clip."""
    one = len(_values(node, trace)) == 1
    return node.op in BOUNDS or (node.op in ("maximum", "minimum") and one)


def _is_unary(node: TraceNode, trace: TraceGraph) -> bool:
    return function_of(node) is not None and len(_values(node, trace)) == 1


def _is_plain(node: TraceNode, trace: TraceGraph) -> bool:
    return is_bound(node, trace) or (node.op in PAIRS and len(_values(node, trace)) == 2)
