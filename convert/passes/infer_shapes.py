"""Shape inference, again, after the graph has changed."""

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from midge.convert.passes.base import Pass, PassResult


class InferShapes(Pass):
    """Fill in the shapes and types of new tensors."""

    def call(self, model: ir.Model) -> PassResult:
        """Run ONNX's inference; a shape that is known already stays where it finds less."""
        known = {v: v.shape for n in model.graph for v in n.outputs}
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        for value, shape in known.items():
            if value.shape is None or (shape is not None and _vaguer(value.shape, shape)):
                value.shape = shape
        return PassResult()


def _vaguer(new: ir.Shape, old: ir.Shape) -> bool:
    unknown = [sum(not isinstance(d, int) for d in s) for s in (new, old)]
    return len(new) == len(old) and unknown[0] > unknown[1]
