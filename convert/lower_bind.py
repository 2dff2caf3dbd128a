"""Gives a quantized graph known sizes: the batch bound, constants folded, pads explicit."""

import onnx
import onnx.shape_inference
import onnx_ir as ir

from midge.convert.passes.explicit_pads import ExplicitPads
from midge.convert.passes.fold_constants import FoldConstants
from midge.core.errors import InputError

SAME_SHAPE = ("GroupNormalization",)  # of which onnx infers no shape


def bind_batch(model: ir.Model, batch: int) -> tuple[ir.Model, list[str]]:
    """Return a copy with every dimension known and constants folded, and what there is to say."""
    notices = []
    proto = ir.to_proto(model)
    for value in proto.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                if axis:
                    raise InputError(
                        f"input {value.name!r} has an unknown dimension {axis}; give its size with "
                        "--input-shape."
                    )
                notices.append(
                    f"input {value.name!r}: the leading dimension {dim.dim_param or '?'} is "
                    f"bound to {batch}."
                )
                dim.dim_value = batch
    bound = _infer(proto)
    changed = [make()(bound).modified for make in (FoldConstants, ExplicitPads)]
    return _infer(ir.to_proto(bound)) if any(changed) else bound, notices


def _infer(proto: onnx.ModelProto) -> ir.Model:
    """Return the model with shapes inferred from its inputs alone."""
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    while True:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        if not _copy_shapes(proto.graph):
            return ir.from_proto(proto)


def _copy_shapes(graph: onnx.GraphProto) -> bool:
    """Give operators that onnx infers nothing for the shape of their input; True where one was."""
    values = (*graph.input, *graph.value_info, *graph.output)
    known = {v.name: v.type for v in values if v.type.tensor_type.HasField("shape")}
    outputs = {v.name: v for v in graph.output}
    changed = False
    for node in graph.node:
        if node.op_type in SAME_SHAPE and node.input[0] in known and node.output[0] not in known:
            value = outputs.get(node.output[0]) or graph.value_info.add(name=node.output[0])
            value.type.CopyFrom(known[node.input[0]])
            known[node.output[0]] = value.type
            changed = True
    return changed
