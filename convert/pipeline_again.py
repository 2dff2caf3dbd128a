"""Quantizing a file that is quantized already: it is written as it is, and the report says so.

Its scales are somebody's choice, or midge's own; to quantize codes once more would only lose bits.
What the file has in float stays in float.
"""

from dataclasses import fields
from pathlib import Path

import onnx
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.coverage import Coverage
from midge.convert.lower import is_quantized
from midge.convert.lower_dynamic import PRODUCTS
from midge.convert.lower_params import is_dequantize, is_quantize
from midge.convert.onnx_in import notices
from midge.convert.onnx_out import check_bytes, write_files
from midge.convert.quantize_report import (
    QuantizeOptions,
    QuantizeReport,
    as_json,
    file_record,
    kept_record,
    parameters_path,
)
from midge.convert.saturation import REDUCE_RANGE, saturation_of
from midge.convert.strict import check_strict
from midge.core.errors import InputError
from midge.quant.rules import Kind, rule_of

# Options that say how to read the file or the data, and ask nothing of the result.
READING = (
    *("mode", "calibration_method", "samples", "skip_bad_samples", "images", "seed", "strict"),
    *("input_shapes", "input_values"),
)


def is_quantized_model(model: ir.Model) -> bool:
    """Tell whether a model holds quantized operators."""
    return any(map(is_quantized, model.graph))


def keep_quantized(
    path: str | Path, out: Path, options: QuantizeOptions, model: ir.Model
) -> QuantizeReport:
    """Write a quantized file once more, byte for byte.

    Args:
        path: the file.
        out: the file to write; OUT.quant.json is written beside it.
        options: none may ask for another result.
        model: as read.

    Raises:
        InputError: an option asks for what a quantized file cannot give, or its data lie in files
            of their own.
        CheckError: `strict`, and the file has something in float.
        ToolError: ONNX Runtime or onnx refuse the file.
    """
    default = QuantizeOptions()
    for option in fields(options):
        if option.name in READING or getattr(options, option.name) == getattr(default, option.name):
            continue
        raise InputError(
            f"{path} is quantized already, so that --{option.name.replace('_', '-')} cannot be "
            "applied; give the float model, or compile this one as it is."
        )
    data = Path(path).read_bytes()
    if _is_apart(data):
        raise InputError(f"{path} is quantized already, its data beside it: compile it as it is.")
    check_bytes(data, model, out)
    coverage, saturation = _coverage(model), saturation_of(model)
    if options.strict:
        check_strict(coverage, ())
    record = kept_record(path, file_record(out, data), saturation)
    write_files({out: data, parameters_path(out): as_json(record)})
    lines = [
        *notices(model),
        f"{Path(path).name} is quantized already: {out.name} has its bytes, nothing is calibrated.",
        *saturation.notices(REDUCE_RANGE.replace("quantize", "quantize the float model")),
    ]
    return QuantizeReport(out, parameters_path(out), coverage, lines, 0, saturation=saturation)


def _is_apart(data: bytes) -> bool:
    """Tell whether tensors of a model lie in other files."""
    proto = onnx.ModelProto.FromString(data)
    return any(t.data_location == onnx.TensorProto.EXTERNAL for t in proto.graph.initializer)


def _coverage(model: ir.Model) -> list[Coverage]:
    """Return what the file has in codes, between a DequantizeLinear and a QuantizeLinear."""
    found, inside = [], set[ir.Node]()
    for node in model.graph:
        if _converts(node):
            continue
        given = [v for v in node.inputs if v is not None and not g.is_constant(v)]
        has_form = rule_of(node.op_type).kind != Kind.FLOAT or g.is_op(node, *PRODUCTS)
        if has_form and all(_is_code(v) or v.producer() in inside for v in given):
            inside.add(node)
    for node in model.graph:
        if not _converts(node):
            state = "quantized" if node in inside and _reaches_codes(node, inside) else "float"
            found.append(Coverage(g.label(node), g.operator(node), state, "as the file has it"))
    return found


def _converts(node: ir.Node) -> bool:
    return is_quantize(node) or is_dequantize(node) or g.is_op(node, "DynamicQuantizeLinear")


def _is_code(value: ir.Value) -> bool:
    """Tell whether a value is codes, dequantized or not."""
    codes = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32)
    return is_dequantize(value.producer()) or value.dtype in codes


def _reaches_codes(node: ir.Node, inside: set[ir.Node]) -> bool:
    """Tell whether a result becomes codes, directly or through nodes that a layer takes in."""
    if g.is_op(node, *PRODUCTS):
        return True
    readers = [use.node for value in node.outputs for use in value.uses()]
    codes = any(v.dtype in (ir.DataType.INT8, ir.DataType.UINT8) for v in node.outputs)
    return codes or any(
        is_quantize(r) or (r in inside and _reaches_codes(r, inside)) for r in readers
    )
