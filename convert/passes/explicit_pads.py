"""auto_pad made explicit: SAME_UPPER, SAME_LOWER and VALID become numbers in `pads`.

For SAME the output size is ceil(size / stride), and the total padding of an axis is
(output - 1) * stride + (kernel - 1) * dilation + 1 - size, the odd one at the end (UPPER) or at the
start (LOWER). ConvTranspose's total is (size - 1) * stride + effective kernel - size * stride.
An axis of unknown size keeps its auto_pad, unless its stride is 1: then the padding does not
depend on the size.
"""

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of


class ExplicitPads(Pass):
    """Resolve auto_pad of convolutions and pools."""

    def call(self, model: ir.Model) -> PassResult:
        """Write `pads` wherever the sizes are known."""
        result = PassResult()
        for node in nodes_of(model, "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"):
            if "output_shape" in node.attributes:
                continue  # convolve_transposed.py reads both together
            mode = g.attribute(node, "auto_pad", "NOTSET")
            if mode == "NOTSET":
                node.attributes.pop("auto_pad", None)
                continue
            pads = _pads(node, mode)
            if pads is None:
                result.kept(node, f"auto_pad {mode} of an input of unknown size")
                continue
            node.attributes.pop("auto_pad")
            node.attributes["pads"] = ir.AttrInt64s("pads", pads)
            result.modified = True
        return result


def _pads(node: ir.Node, mode: str) -> list[int] | None:
    shape = g.dims(node.inputs[0])
    if shape is None:
        return None
    spatial = len(shape) - 2
    if mode == "VALID":
        return [0] * (2 * spatial)
    kernel = g.attribute(node, "kernel_shape")
    if kernel is None:
        weight = g.dims(g.operand(node, 1))
        kernel = None if weight is None else weight[2:]
    if kernel is None:
        return None
    begins, ends = [], []
    for axis in range(spatial):
        stride = g.attribute(node, "strides", (1,) * spatial)[axis]
        dilation = g.attribute(node, "dilations", (1,) * spatial)[axis]
        window = (kernel[axis] - 1) * dilation + 1
        size = shape[2 + axis]
        if node.op_type == "ConvTranspose":
            extra = g.attribute(node, "output_padding", (0,) * spatial)[axis]
            total = max(window - stride + extra, 0)
        elif size is None and stride != 1:
            return None
        else:
            steps = -(-size // stride) - 1 if size is not None else 0
            total = max(steps * stride + window - (size if size is not None else 1), 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins + ends
