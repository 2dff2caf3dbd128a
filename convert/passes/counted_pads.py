"""AveragePool that counts its padding and rounds its size up: the padding becomes a Pad of its own.

1. AveragePool with ceil_mode 1 and count_include_pad 1 becomes Pad of 0, where it has pads, and
   AveragePool with ceil_mode 1 that counts what lies inside. The last window may reach beyond the
   padding, and ONNX does not count what lies there.
"""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of


class CountedPads(Pass):
    """Make counted padding explicit where windows may reach beyond it."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rule 1."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, "AveragePool"):
            both = all(g.attribute(node, key, 0) for key in ("ceil_mode", "count_include_pad"))
            x = node.inputs[0]
            shape = g.dims(x)
            if not both or shape is None or g.attribute(node, "auto_pad", "NOTSET") != "NOTSET":
                continue
            pads = g.attribute(node, "pads", ())
            if any(pads):
                half = len(pads) // 2
                full = np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
                value = g.add_constant(model.graph, names, f"{g.label(node)}_pads", full)
                pad = g.new_node(names, "Pad", [x, value], names.fresh(f"{g.label(node)}_padded"))
                widths = full.reshape(2, -1).sum(axis=0)
                grown = [
                    None if n is None else n + int(w) for n, w in zip(shape, widths, strict=True)
                ]
                pad.outputs[0].dtype, pad.outputs[0].shape = ir.DataType.FLOAT, ir.Shape(grown)
                g.insert_before(node, pad)
                node.replace_input_with(0, pad.outputs[0])
                node.attributes["pads"] = ir.AttrInt64s("pads", [0] * len(pads))
            del node.attributes["count_include_pad"]
            result.modified = True
        return result
