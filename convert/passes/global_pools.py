"""ReduceMean over all spatial axes becomes GlobalAveragePool.

1. Axes 2, 3, ... of [N, C, ...]: GlobalAveragePool, then Flatten where keepdims is 0.
2. Axes 1, 2 of [N, H, W, C]: the same behind a Transpose to NCHW; with keepdims a Transpose back.
"""

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of


class GlobalPools(Pass):
    """Turn spatial means into pools."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 and 2."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, "ReduceMean"):
            axes, size = _axes(node), g.rank(node.inputs[0])
            if axes is None or size not in (3, 4):
                continue
            if axes == list(range(2, size)):
                _rewrite(node, names, channels_last=False)
            elif size == 4 and axes == [1, 2]:
                _rewrite(node, names, channels_last=True)
            else:
                continue
            result.folded(node, "a GlobalAveragePool")
        return result


def _axes(node: ir.Node) -> list[int] | None:
    size = g.rank(node.inputs[0])
    if size is None:
        return None
    given = g.operand(node, 1)  # an input since opset 18
    axes = g.attribute(node, "axes") if given is None else g.constant(given)
    return None if axes is None else sorted(int(a) % size for a in axes)


def _rewrite(node: ir.Node, names: g.Names, channels_last: bool) -> None:
    old, size = node.outputs[0], g.rank(node.inputs[0]) or 0
    shape = g.dims(node.inputs[0]) or ()
    if channels_last:
        shape = (shape[0], shape[3], shape[1], shape[2])
    chain: list[ir.Node] = []
    current = node.inputs[0]

    def push(op_type: str, dims: tuple[int | None, ...], **attributes: object) -> None:
        nonlocal current
        name = names.fresh(f"{old.name}_{op_type}")
        made = g.new_node(names, op_type, [current], name, attributes=attributes)
        made.outputs[0].dtype, made.outputs[0].shape = ir.DataType.FLOAT, ir.Shape(dims)
        chain.append(made)
        current = made.outputs[0]

    if channels_last:
        push("Transpose", shape, perm=[0, 3, 1, 2])
    pooled = (*shape[:2], *[1] * (size - 2))
    push("GlobalAveragePool", pooled)
    if not g.attribute(node, "keepdims", 1):
        push("Flatten", shape[:2], axis=1)
    elif channels_last:
        push("Transpose", (pooled[0], 1, 1, pooled[1]), perm=[0, 2, 3, 1])
    g.insert_before(node, *chain)
    assert current is not None
    g.take_over(old, current)
    g.remove(node)
