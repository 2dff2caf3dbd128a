"""The road from a float ONNX file to a dynamic or weight-only INT8 one; no data is needed."""

import json
from pathlib import Path

from midge.convert.canonical import canonicalize
from midge.convert.onnx_in import notices, read_model
from midge.convert.onnx_out import check_output, write_bytes, write_model
from midge.convert.pipeline_nodes import (
    nodes_by_name,
    refuse_quantized,
    refused_by_user,
    with_folded,
)
from midge.convert.quantize_dynamic import quantize_weights
from midge.convert.quantize_report import (
    QuantizeOptions,
    QuantizeReport,
    parameters_path,
    weights_record,
)
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
    model = read_model(path, options.input_shapes)
    refuse_quantized(model, path)
    check_names(model, options.nodes_to_exclude, options.op_types_to_quantize)
    before, lines = nodes_by_name(model), notices(model)
    records = canonicalize(model)
    refused, not_found = refused_by_user(model, before, options)
    quantized = quantize_weights(
        model, options.mode, per_channel=options.per_channel, refused=refused
    )
    if not quantized.scales:
        lines.append(f"no node of {path} has a weight that can be quantized.")
    write_model(quantized.model, out, None)
    parameters = parameters_path(out)
    record = weights_record(path, out, options, quantized.scales)
    write_bytes(parameters, (json.dumps(record, indent=1) + "\n").encode())
    coverage = with_folded(quantized.coverage, records, before)
    return QuantizeReport(out, parameters, coverage, lines + not_found, 0)
