"""Writes what training made as ONNX: a float module, and its QAT twin with the same bits."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import onnx_ir as ir

from midge.convert.canonical import TRAINED, canonicalize
from midge.convert.from_trace import trace_to_onnx, verify_export
from midge.convert.onnx_out import checked_bytes, write_files, write_model
from midge.convert.pipeline_nodes import with_folded
from midge.convert.quantize import quantize_graph
from midge.convert.quantize_report import QuantizeReport, as_json, file_record, parameters_path
from midge.convert.saturation import saturation_of
from midge.convert.trained_check import check_same_bits
from midge.core import Tensor, nn
from midge.core.trace import trace
from midge.quant.qat import QATModel


def write_float(model: nn.Module, example_input: Tensor, path: str | Path, name: str) -> ir.Model:
    """Trace a module, check the export against it, and write it as a float ONNX file.

    Args:
        model: in eval().
        example_input: a batch; axis 0 stays free in the file.
        path: of the file.
        name: of the graph.

    Returns:
        The graph that was written.

    Raises:
        UnsupportedError: an operator has no ONNX form.
        CheckError: ONNX Runtime and the module disagree.
    """
    graph = trace_to_onnx(trace(model, example_input), name)
    verify_export(graph, model, example_input)
    write_model(graph, path)
    return graph


def write_trained(
    model: QATModel, path: str | Path, name: str, *, io_type: str = "float32", seed: int = 0
) -> QuantizeReport:
    """Write a finalized QAT model as a quantized ONNX file, with its parameters beside it.

    Args:
        model: after finalize(); the file computes the bits that its eval() forward computes.
        path: of the file.
        name: of the graph.
        io_type: "float32", "int8" or "uint8", of the file's inputs and outputs.
        seed: that training used, for the record.

    Raises:
        InputError: the model still trains, or the file cannot be written.
        CheckError: the graph's bits are not the model's.
    """
    path = Path(path)
    export = model.export()
    graph = trace_to_onnx(export.graph, name)
    before = {node.name or "": node.op_type for node in graph.graph}
    records = canonicalize(graph, passes=TRAINED)
    quantize = partial(
        quantize_graph,
        graph,
        export.params,
        export.layers,
        per_channel=model.per_channel,
        tables=export.tables,
    )
    quantized = quantize(io_type=io_type)
    plain = quantized if io_type == "float32" else quantize(io_type="float32")
    check_same_bits(model, plain.model, seed)
    data = checked_bytes(quantized.model, path)
    saturation = saturation_of(quantized.model)
    coverage = with_folded(saturation.marked(quantized.coverage), records, before)
    parameters = parameters_path(path)
    record = {
        "quantized": file_record(path, data),
        "calibration": {"method": "quantization-aware training"},
        "seed": seed,
        "per_channel": model.per_channel,
        "io_type": io_type,
        "activations": {
            key: {**asdict(p), "scale": float(p.scale)} for key, p in export.params.items()
        },
        "weights": {
            key: {"scale": [float(s) for s in codes.scale], "raised": list(codes.raised)}
            for key, codes in quantized.codes.items()
        },
        "saturation": saturation.to_json(),
    }
    write_files({path: data, parameters: as_json(record)})
    lines = quantized.notices + saturation.notices()
    return QuantizeReport(path, parameters, coverage, lines, 0, saturation=saturation)
