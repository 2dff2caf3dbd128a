"""--io-type: inputs and outputs of the file in codes, without the outer Quantize and Dequantize."""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.insert_qdq import IR_TYPES, Writer
from midge.core.errors import InputError

IO_TYPES = ("float32", "int8", "uint8")


def set_io_type(writer: Writer, io_type: str) -> None:
    """Give every float32 input and output of the model the type of codes.

    A type other than the activations' costs a shift by 128 at the edge: DQ -> Q with one scale.

    Args:
        writer: holds the quantized graph.
        io_type: one of IO_TYPES; "float32" changes nothing.

    Raises:
        InputError: an input or output is not quantized.
    """
    if io_type == "float32":
        return
    if io_type not in IO_TYPES:
        raise InputError(f"--io-type {io_type}: must be one of {', '.join(IO_TYPES)}.")
    for value in [*writer.model.graph.inputs]:
        if g.is_float(value):
            _set_input(writer, value, io_type)
    for index, value in enumerate([*writer.model.graph.outputs]):
        if g.is_float(value):
            _set_output(writer, index, value, io_type)


def _set_input(writer: Writer, x: ir.Value, io_type: str) -> None:
    q = writer.quantizers.get(x)
    if q is None:
        raise InputError(
            f"--io-type {io_type}: input {x.name!r} is not quantized, only operators in float read "
            "it; use --io-type float32."
        )
    dq = q.outputs[0].consumers()[0]
    for use in x.uses():
        if use.node is not q:
            use.node.replace_input_with(use.idx, dq.outputs[0])
    x.type = ir.TensorType(IR_TYPES[io_type])
    if q.outputs[0].dtype == x.dtype:
        g.replace(q.outputs[0], x)
        g.remove(q)
        return
    back = _convert(writer, "DequantizeLinear", x, q, io_type, f"{x.name}_dequantized")
    back.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    g.insert_before(q, back)
    q.replace_input_with(0, back.outputs[0])


def _set_output(writer: Writer, index: int, y: ir.Value, io_type: str) -> None:
    graph, dq = writer.model.graph, y.producer()
    if dq is None or not g.is_op(dq, "DequantizeLinear") or dq.inputs[0] is None:
        raise InputError(
            f"--io-type {io_type}: output {y.name!r} is not quantized, an operator in float makes "
            "it; use --io-type float32."
        )
    name, codes = g.name_of(y), dq.inputs[0]
    if codes.dtype != IR_TYPES[io_type]:
        last = _convert(writer, "QuantizeLinear", y, dq, io_type, f"{name}_quantized")
        last.outputs[0].type = ir.TensorType(IR_TYPES[io_type])
        g.insert_after(dq, last)
        codes = last.outputs[0]
    graph.outputs[index] = codes
    y.name = writer.names.fresh(f"{name}_dequantized")
    codes.name = name
    if not y.uses():
        g.remove(dq)


def _convert(
    writer: Writer, op_type: str, source: ir.Value, like: ir.Node, io_type: str, stem: str
) -> ir.Node:
    """Make a Quantize or Dequantize with the parameters of `like`, for codes of `io_type`."""
    zero = g.constant(like.inputs[2])
    assert zero is not None
    shift = 128 if io_type == "uint8" else -128
    moved = (zero.astype(np.int32) + shift).astype(io_type)
    zero_value = g.add_constant(writer.model.graph, writer.names, f"{stem}_zero_point", moved)
    output = writer.names.fresh(stem)
    return g.new_node(
        writer.names, op_type, [source, like.inputs[1], zero_value], output, like=source
    )
