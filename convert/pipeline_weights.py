"""The road from a float ONNX file to a dynamic or weight-only INT8 one; no data is needed."""

from pathlib import Path

from midge.convert.onnx_in import notices, read_model
from midge.convert.onnx_out import check_output, checked_bytes, write_files
from midge.convert.pipeline_again import is_quantized_model, keep_quantized
from midge.convert.pipeline_nodes import (
    canonical,
    nodes_by_name,
    refused_by_user,
    with_folded,
)
from midge.convert.quantize_dynamic import quantize_weights
from midge.convert.quantize_report import (
    QuantizeOptions,
    QuantizeReport,
    as_json,
    file_record,
    parameters_path,
    weights_record,
)
from midge.convert.saturation import REDUCE_RANGE, saturation_of
from midge.convert.select import check_names


def quantize_weights_file(
    path: str | Path, out: str | Path, options: QuantizeOptions
) -> QuantizeReport:
    """Quantize the weights of a float ONNX file to int8 and write it, with its scales beside it.

    Args:
        path: float ONNX file.
        out: the file to write; OUT.quant.json is written beside it.
        options: with mode "dynamic" or "weight-only".

    Raises:
        InputError: the model or an option is at fault; nothing is written.
        ToolError: ONNX Runtime or onnx refuse the result; nothing is written.
    """
    out = Path(out)
    check_output(path, out)
    check_output(path, parameters_path(out))
    model = read_model(path, options.input_shapes, input_values=options.input_values)
    if is_quantized_model(model):
        return keep_quantized(path, out, options, model)
    check_names(model, options.nodes_to_exclude, options.op_types_to_quantize)
    before, lines = nodes_by_name(model), notices(model)
    records = canonical(model, lines, options.drop_softmax)
    refused, not_found = refused_by_user(model, before, options)
    quantized = quantize_weights(
        model,
        options.mode,
        per_channel=options.per_channel,
        reduce_range=options.reduce_range,
        refused=refused,
    )
    saturation = saturation_of(quantized.model)
    if not quantized.scales:
        lines.append(f"no node of {path} has a weight that can be quantized.")
    data = checked_bytes(quantized.model, out)
    record = weights_record(path, file_record(out, data), options, quantized.scales, saturation)
    parameters = parameters_path(out)
    write_files({out: data, parameters: as_json(record)})
    coverage = with_folded(saturation.marked(quantized.coverage), records, before)
    lines += not_found + saturation.notices(REDUCE_RANGE)
    return QuantizeReport(out, parameters, coverage, lines, 0, saturation=saturation)
