"""Canonical Gemm: Y = A B + C with transA = 0, alpha = beta = 1 and a bias of shape (N,) or none.

1. transA = 1 becomes a Transpose of A.
2. alpha goes into B, beta into C (computed in float64). transB stays.
3. A bias of shape (), (1,), (1, 1), (1, N) or (N,) is broadcast to (N,); one of shape (M, 1) or
   (M, N) whose rows differ becomes an Add behind the Gemm.
4. MatMul of a 2-D A and a constant 2-D B becomes a Gemm.
5. MatMul of an A of higher rank and a constant 2-D B, followed by an Add of a constant along the
   last axis, becomes Reshape, Gemm, Reshape; the Add is then folded like any other.

A Gemm with a B or C that is no constant stays as it is, with the reason.
"""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.affine import read_affine
from midge.convert.passes.base import Pass, PassResult, nodes_of


class CanonicalGemm(Pass):
    """Bring Gemm and MatMul with constant weights into one form."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 to 5."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, "MatMul"):
            _matmul(model, node, names, result)
        for node in nodes_of(model, "Gemm"):
            _gemm(model, node, names, result)
        return result


def _gemm(model: ir.Model, node: ir.Node, names: g.Names, result: PassResult) -> None:
    B, C = g.constant(node.inputs[1]), g.constant(g.operand(node, 2))
    if B is None:
        result.kept(node, "its B is no constant")
        return
    if C is None and g.operand(node, 2) is not None:
        result.kept(node, "its bias is no constant")
        return
    if g.attribute(node, "transA", 0):
        perm = {"perm": [1, 0]}
        turned = g.new_node(
            names, "Transpose", [node.inputs[0]], names.fresh(f"{g.label(node)}_A"), attributes=perm
        )
        turned.outputs[0].dtype = ir.DataType.FLOAT
        shape = g.dims(node.inputs[0])
        turned.outputs[0].shape = None if shape is None else ir.Shape(shape[::-1])
        g.insert_before(node, turned)
        node.replace_input_with(0, turned.outputs[0])
        result.modified = True
    alpha, beta = g.attribute(node, "alpha", 1.0), g.attribute(node, "beta", 1.0)
    if alpha != 1:
        scaled = (B.astype(np.float64) * alpha).astype(np.float32)
        node.replace_input_with(1, g.add_constant(model.graph, names, f"{g.label(node)}_B", scaled))
        result.modified = True
    if C is not None:
        _bias(model, node, C, beta, names, result)
    for name in ("alpha", "beta", "transA"):
        node.attributes.pop(name, None)


def _bias(
    model: ir.Model, node: ir.Node, C: g.Array, beta: float, names: g.Names, result: PassResult
) -> None:
    """Bring the bias into shape (N,), or move it behind the Gemm."""
    B = g.constant(node.inputs[1])
    assert B is not None
    n = B.shape[0 if g.attribute(node, "transB", 0) else 1]
    if C.shape == (n,) and beta == 1:
        return
    rows = np.broadcast_to(C, (C.shape[0] if C.ndim == 2 else 1, n))
    scaled = (rows.astype(np.float64) * beta).astype(np.float32)
    result.modified = True
    if np.all(scaled == scaled[:1]):
        value = g.add_constant(model.graph, names, f"{g.label(node)}_C", scaled[0])
        node.replace_input_with(2, value)
        return
    value = g.add_constant(model.graph, names, f"{g.label(node)}_C", scaled)
    old = node.outputs[0]
    add = g.new_node(names, "Add", [None, value], names.fresh(f"{old.name}_sum"), like=old)
    g.insert_after(node, add)
    g.take_over(old, add.outputs[0])
    add.replace_input_with(0, old)
    node.resize_inputs(2)


def _matmul(model: ir.Model, node: ir.Node, names: g.Names, result: PassResult) -> None:
    A, B = node.inputs
    size, shape = g.rank(A), g.dims(B)
    if not g.is_constant(B) or g.is_constant(A) or size is None or shape is None or len(shape) != 2:
        return
    if size == 2:
        node.op_type = "Gemm"
        result.modified = True
        return
    before, after = g.dims(A), g.dims(node.outputs[0])
    follower = g.sole_consumer(node.outputs[0])
    affine = read_affine(follower) if g.is_op(follower, "Add", "Sub") and follower else None
    if affine is None or affine.axis not in (None, size - 1) or before is None or after is None:
        return
    if None in after[1:] or size < 3:
        return
    _through_rows(model, node, names)
    result.folded(node, "a Gemm over rows")


def _through_rows(model: ir.Model, node: ir.Node, names: g.Names) -> None:
    """Replace a MatMul [..., K] x [K, M] by Reshape to rows, Gemm and Reshape back."""
    A, B = node.inputs
    assert A is not None
    assert B is not None
    old, name = node.outputs[0], g.label(node)
    k, m = g.static_dims(B) or (0, 0)
    after = g.dims(old) or ()

    def reshape(source: ir.Value, sizes: list[int], stem: str) -> ir.Node:
        target = g.add_constant(model.graph, names, f"{stem}_shape", np.array(sizes, np.int64))
        made = g.new_node(names, "Reshape", [source, target], names.fresh(stem))
        made.outputs[0].dtype = ir.DataType.FLOAT
        made.outputs[0].shape = ir.Shape([None if s < 0 else s for s in sizes])
        return made

    rows = reshape(A, [-1, k], f"{name}_rows")
    gemm = g.new_node(names, "Gemm", [rows.outputs[0], B], names.fresh(f"{name}_gemm"), name=name)
    gemm.outputs[0].dtype, gemm.outputs[0].shape = ir.DataType.FLOAT, ir.Shape([None, m])
    # The Add that follows reads the rows; only then are they shaped back.
    add = g.sole_consumer(old)
    assert add is not None
    affine = read_affine(add)
    assert affine is not None
    total = g.new_node(
        names,
        "Add",
        [gemm.outputs[0], g.add_constant(model.graph, names, f"{name}_C", affine.vector(m))],
        names.fresh(f"{name}_sum"),
        like=gemm.outputs[0],
        name=g.label(add),
    )
    back = reshape(total.outputs[0], [-1, *(d or 0 for d in after[1:])], f"{name}_back")
    g.insert_before(node, rows, gemm, total, back)
    back.outputs[0].shape = add.outputs[0].shape
    g.take_over(add.outputs[0], back.outputs[0])
    g.remove(add)
    g.remove(node)
