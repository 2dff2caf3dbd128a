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
    """Return what the file has in codes and what in float."""
    found = []
    for node in model.graph:
        if is_quantize(node) or is_dequantize(node) or g.is_op(node, "DynamicQuantizeLinear"):
            continue
        state = "quantized" if _reads_codes(node) else "float"
        found.append(Coverage(g.label(node), g.operator(node), state, "as the file has it"))
    return found


def _reads_codes(node: ir.Node) -> bool:
    """Tell whether every activation of a node is codes, dequantized or not."""
    given = [v for v in node.inputs if v is not None and not g.is_constant(v)]
    codes = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT32)
    return all(is_dequantize(v.producer()) or v.dtype in codes for v in given)
