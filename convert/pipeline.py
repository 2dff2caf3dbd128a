"""The road from a float ONNX file to a quantized one, as one readable function."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.activation_params import (
    Range,
    flat_softmaxes,
    params_from_ranges,
    tensors_to_observe,
    unfit_tables,
    wide_concats,
)
from midge.convert.blame import blames_source
from midge.convert.calibrate import Progress, calibrate
from midge.convert.calibration_data import RANDOM, Sample, Samples, Spec, open_samples
from midge.convert.canonical import canonicalize
from midge.convert.coverage import Coverage
from midge.convert.given_codes import given_before_moves, given_nodes, ranges_of
from midge.convert.onnx_in import notices, read_model, require_known_dims
from midge.convert.onnx_out import check_output, checked_bytes, write_files, write_model
from midge.convert.passes.clamp_masks import tighten_masks
from midge.convert.pipeline_again import (
    is_quantized_in_part,
    is_quantized_model,
    keep_quantized,
    take_given,
)
from midge.convert.pipeline_nodes import (
    canonical,
    nodes_by_name,
    refused_by_user,
    with_folded,
)
from midge.convert.pipeline_weights import quantize_weights_file
from midge.convert.quantize import QuantizedGraph, quantize_graph
from midge.convert.quantize_report import (
    QuantizeOptions,
    QuantizeReport,
    as_json,
    check_data,
    check_options,
    file_record,
    parameters_path,
    parameters_record,
    preprocessing,
)
from midge.convert.saturation import REDUCE_RANGE, saturation_of
from midge.convert.select import Selection, check_names, select
from midge.convert.strict import check_strict
from midge.quant.scheme import QuantParams

__all__ = ["QuantizeOptions", "QuantizeReport", "canonicalize", "convert_file", "quantize_file"]


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What bringing a float file into canonical form gave.

    Args:
        output: the file written.
        coverage: nodes that were folded, and those that stay.
        notices: lines that the user must see.
    """

    output: Path
    coverage: list[Coverage]
    notices: list[str]


@blames_source
def convert_file(
    path: str | Path,
    out: str | Path,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Mapping[str, float] | None = None,
    *,
    drop_softmax: bool = False,
) -> ConvertReport:
    """Read a float ONNX file, bring it into canonical form and write it.

    Args:
        path: float ONNX file.
        out: the file to write.
        input_shapes: shapes of inputs with unknown dimensions, by name.
        input_values: numbers that inputs hold throughout, by name.
        drop_softmax: remove each Softmax, LogSoftmax or Sigmoid that only ArgMax or the indices of
            TopK read.

    Raises:
        InputError: the file cannot be read or written.
    """
    check_output(path, Path(out))
    model = read_model(path, input_shapes, input_values=input_values)
    before, lines = nodes_by_name(model), notices(model)
    records = canonical(model, lines, drop_softmax)
    write_model(model, out)
    left = [Coverage(g.label(n), g.operator(n), "float", "not quantized") for n in model.graph]
    return ConvertReport(Path(out), with_folded(left, records, before), lines)


@blames_source
def quantize_file(
    path: str | Path,
    out: str | Path,
    calib_spec: Spec | None,
    options: QuantizeOptions | None = None,
    *,
    progress: Progress | None = None,
) -> QuantizeReport:
    """Quantize a float ONNX file to int8 and write it, with its parameters beside it.

    Args:
        path: float ONNX file.
        out: the file to write; OUT.quant.json is written beside it.
        calib_spec: calibration data, see calibration_data.open_samples; None in the modes that need
            none.
        options: how.
        progress: called with the number of calibration samples done.

    Raises:
        InputError: the model, the data or an option is at fault; nothing is written.
        CheckError: `strict` and something stays in float or a range collapsed; nothing is written.
        ToolError: ONNX Runtime or onnx refuse the result; nothing is written.
    """
    options, out = options or QuantizeOptions(), Path(out)
    check_options(options)
    check_data(calib_spec, options)
    if calib_spec is None:
        return quantize_weights_file(path, out, options)
    check_output(path, out)
    check_output(path, parameters_path(out))
    model = read_model(
        path,
        options.input_shapes,
        input_values=options.input_values,
        dynamic=calib_spec != RANDOM,
    )
    if is_quantized_model(model) and not is_quantized_in_part(model, options):
        return keep_quantized(path, out, options, model)
    samples = _open(model, calib_spec, options)
    before, lines = nodes_by_name(model), notices(model)
    records = canonical(model, lines, options.drop_softmax)
    refused, not_found = refused_by_user(model, before, options)
    given, options = take_given(model, options, lines)
    refused |= given_nodes(model)
    selection, given = _select(model, refused, given)
    if not selection.quantized:
        lines.append(f"no node of {path} can be quantized: {_reasons(selection)}.")
    log = _SampleLog(samples)
    names = [name for name in tensors_to_observe(selection) if name not in given]
    ranges = calibrate(model, log, options.calibration_method, tensors=names, progress=progress)
    log.require_named_dims(model, path)
    ranges = tighten_masks(model, ranges)
    params, refused = choose_params(model, ranges, refused, options.activation_type, given)
    quantized = _quantize(model, params, refused, options)
    collapsed = tuple(n for n, (low, high) in ranges.items() if low == high == 0)
    lines += not_found + _data_notices(samples, collapsed, calib_spec, options) + quantized.notices
    saturation = saturation_of(quantized.model)
    lines += saturation.notices(REDUCE_RANGE)
    coverage = with_folded(saturation.marked(quantized.coverage), records, before)
    if options.strict:
        check_strict(coverage, collapsed)
    sample = log.first if options.io_type == "float32" else None
    data = checked_bytes(quantized.model, out, sample)
    written = file_record(out, data)
    record = parameters_record(
        path, written, calib_spec, options, samples, params, quantized, saturation
    )
    parameters = parameters_path(out)
    write_files({out: data, parameters: as_json(record)})
    return QuantizeReport(out, parameters, coverage, lines, samples.count, collapsed, saturation)


def _open(model: ir.Model, calib_spec: Spec, options: QuantizeOptions) -> Samples:
    """Open the calibration data; every fault that can be told now is."""
    check_names(model, options.nodes_to_exclude, options.op_types_to_quantize)
    return open_samples(
        calib_spec,
        model,
        seed=options.seed,
        limit=options.samples,
        skip_bad=options.skip_bad_samples,
        images=options.images,
    )


def _quantize(
    model: ir.Model,
    params: Mapping[str, QuantParams],
    refused: Mapping[str, str],
    options: QuantizeOptions,
) -> QuantizedGraph:
    return quantize_graph(
        model,
        params,
        per_channel=options.per_channel,
        reduce_range=options.reduce_range,
        io_type=options.io_type,
        activation_type=options.activation_type,
        refused=refused,
        join_tables=True,
        drop_dead_channels=options.dead_channels,
    )


def _select(
    model: ir.Model, refused: dict[str, str], given: Mapping[str, QuantParams]
) -> tuple[Selection, dict[str, QuantParams]]:
    """Return what is quantized, and the given parameters with those that follow from them.

    What cannot take over the parameters that the file gives its output joins `refused`.
    """
    selection = select(model, refused=refused, join_tables=True)
    full, apart = given_before_moves(selection, given)
    if apart:
        refused |= apart
        selection = select(model, refused=refused, join_tables=True)
    return selection, full


def choose_params(
    model: ir.Model,
    ranges: Mapping[str, Range],
    refused: Mapping[str, str],
    dtype: str,
    given: Mapping[str, QuantParams],
) -> tuple[dict[str, QuantParams], dict[str, str]]:
    """Return activation parameters, and all nodes that stay in float for a reason of data -> why.

    Args:
        model: canonical float graph.
        ranges: calibrated.
        refused: nodes that stay in float already -> why.
        dtype: of activations.
        given: parameters that the file has already, by name of the tensor.
    """
    ranges = {**ranges, **ranges_of(given)}
    whole = select(model, refused=refused, join_tables=True)
    no = dict(refused) | flat_softmaxes(whole, ranges)
    while True:
        selection = select(model, refused=no, join_tables=True)
        params = params_from_ranges(selection, ranges, dtype, given)
        more = wide_concats(selection, params) | unfit_tables(selection, params, ranges)
        if not more:
            return params, no
        no |= more


def _reasons(selection: Selection) -> str:
    found = {f"{g.label(n)} ({g.operator(n)}): {why}" for n, why in selection.kept.items()}
    return "; ".join(sorted(found)[:3])


class _SampleLog:
    """Samples whose shapes, and the first of which, are remembered."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.seen: dict[str, set[tuple[int, ...]]] = {}
        self.first: Sample | None = None

    def __iter__(self) -> Iterator[Sample]:
        for sample in self.samples:
            self.first = self.first or sample
            for name, array in sample.items():
                self.seen.setdefault(name, set()).add(array.shape)
            yield sample

    def require_named_dims(self, model: ir.Model, path: str | Path) -> None:
        """Ask for --input-shape where a dimension is unknown but all samples have the same."""
        hint = {name: next(iter(shapes)) for name, shapes in self.seen.items()}
        if all(len(shapes) == 1 for shapes in self.seen.values()):
            require_known_dims(model, path, hint)


def _data_notices(
    samples: Samples, collapsed: tuple[str, ...], spec: Spec, options: QuantizeOptions
) -> list[str]:
    lines = []
    if preprocessing(options):
        lines.append(f"calibration images: {options.images}.")
    if spec == RANDOM:
        lines.append("calibrated on random numbers: the scales mean nothing for real data.")
    if samples.skipped:
        which = ", ".join(map(str, samples.skipped[:10]))
        more = "" if len(samples.skipped) <= 10 else ", ..."
        lines.append(
            f"{len(samples.skipped)} bad calibration samples skipped (NaN or Inf): {which}{more}."
        )
    if collapsed:
        names, verb = ", ".join(map(repr, collapsed[:5])), "are" if len(collapsed) > 1 else "is"
        lines.append(
            f"the range collapsed: {names} {verb} 0 throughout the "
            "calibration data; calibrate on data that drive the model."
        )
    return lines
