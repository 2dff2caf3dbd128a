"""MatMul with a stack of constant matrices: one Gemm for each, so that each has its own scales.

1. MatMul of A [b, T, K] (or [1, T, K]) and a constant B [b, K, M], b at most `MAX_STACK`, becomes
   b slices of A, a Gemm each, and a Concat.
"""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of

MAX_STACK = 16


class SplitMatMul(Pass):
    """Split batched products with constant weights."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rule 1."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, "MatMul"):
            A, B = g.static_dims(node.inputs[0]), g.constant(node.inputs[1])
            if A is None or B is None or B.ndim != 3 or len(A) != 3 or B.shape[0] > MAX_STACK:
                continue
            if g.is_constant(node.inputs[0]) or A[0] not in (1, B.shape[0]):
                continue
            _split(model, node, A, B, names)
            result.folded(node, f"{B.shape[0]} Gemms")
        return result


def _split(model: ir.Model, node: ir.Node, A: tuple[int, ...], B: g.Array, names: g.Names) -> None:
    stem, old, graph = g.label(node), node.outputs[0], model.graph
    made: list[ir.Node] = []

    def push(op_type: str, operands: list[ir.Value | None], shape: tuple[int, ...]) -> ir.Value:
        output = names.fresh(f"{stem}_{op_type}")
        attributes = {"axis": 0} if op_type == "Concat" else {}
        new = g.new_node(names, op_type, operands, output, attributes=attributes)
        new.outputs[0].dtype, new.outputs[0].shape = ir.DataType.FLOAT, ir.Shape(shape)
        made.append(new)
        return new.outputs[0]

    def constant(*values: int) -> ir.Value:
        return g.add_constant(graph, names, f"{stem}_shape", np.array(values, np.int64))

    T, (_, K, M) = A[1], B.shape
    parts: list[ir.Value | None] = []
    for index, matrix in enumerate(B):
        source = node.inputs[0]
        if A[0] > 1:
            bounds = [constant(index), constant(index + 1), constant(0)]
            source = push("Slice", [source, *bounds], (1, T, K))
        rows = push("Reshape", [source, constant(T, K)], (T, K))
        weight = g.add_constant(graph, names, f"{stem}_B{index}", matrix)
        product = push("Gemm", [rows, weight], (T, M))
        parts.append(push("Reshape", [product, constant(1, T, M)], (1, T, M)))
    joined = push("Concat", parts, (len(B), T, M))
    g.insert_before(node, *made)
    g.take_over(old, joined)
    g.remove(node)
