"""Quantizing a file that is quantized already, and the rest of one that is so in part.

1. Where no float layer is left that midge would quantize, the file is written as it is, byte for
   byte, and the report says so: to quantize codes once more would only lose bits.
2. Else the rest is quantized. What the file has in codes keeps its scales, zero-points and weights;
   a tensor at the border has the parameters that the file gives it.
"""

from dataclasses import fields, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from midge.convert.given_codes import (
    free_biases,
    given_coverage,
    given_nodes,
    given_params,
    lacks_layers,
)
from midge.convert.lower import is_quantized
from midge.convert.onnx_in import notices
from midge.convert.onnx_out import check_bytes, write_files
from midge.convert.pipeline_nodes import canonical, nodes_by_name, refused_by_user
from midge.convert.quantize_report import (
    QuantizeOptions,
    QuantizeReport,
    as_json,
    file_record,
    kept_record,
    parameters_path,
)
from midge.convert.saturation import REDUCE_RANGE, saturation_of
from midge.convert.select import select
from midge.convert.strict import check_strict
from midge.core.errors import InputError, UnsupportedError
from midge.quant.scheme import QuantParams

# Options that say how to read the file or the data, and ask nothing of the result.
READING = (
    *("mode", "calibration_method", "samples", "skip_bad_samples", "images", "seed", "strict"),
    *("input_shapes", "input_values", "nodes_to_exclude", "op_types_to_quantize"),
)


def is_quantized_model(model: ir.Model) -> bool:
    """Tell whether a model holds quantized operators."""
    return any(map(is_quantized, model.graph))


def is_quantized_in_part(model: ir.Model, options: QuantizeOptions) -> bool:
    """Tell whether float layers are left that midge would quantize; the model is left as it is.

    Raises:
        InputError: there are, and an option asks for what such a file cannot give.
    """
    clone = model.clone()
    try:
        given_params(clone)
    except UnsupportedError:  # other codes than 8 bits with one known scale
        return False
    before = nodes_by_name(clone)
    canonical(clone, [], options.drop_softmax)
    free_biases(clone)
    refused, _ = refused_by_user(clone, before, options)
    refused |= given_nodes(clone)
    if lacks_layers(select(clone, refused=refused, join_tables=True)):
        return False
    if options.io_type != QuantizeOptions().io_type:
        raise InputError(
            "the model is quantized in part, and --io-type would change what it has; give the "
            "float model, or leave the option out."
        )
    return True


def take_given(
    model: ir.Model, options: QuantizeOptions, lines: list[str]
) -> tuple[dict[str, QuantParams], QuantizeOptions]:
    """Return the parameters that a canonical model has, and the options that suit them.

    Args:
        model: float, or quantized in part.
        options: of the user.
        lines: what the user must see; appended to.
    """
    given, kept = given_params(model), given_nodes(model)
    if not given:
        return given, options
    free_biases(model)
    lines.append(f"the model is quantized in part: {len(kept)} nodes keep the codes they have.")
    kinds = {p.dtype for p in given.values()}
    kind = kinds.pop() if len(kinds) == 1 else options.activation_type
    return given, replace(options, activation_type=kind, dead_channels=False)


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
    coverage, saturation = given_coverage(model), saturation_of(model)
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
