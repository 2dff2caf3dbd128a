"""Static INT8: from a canonical float graph and scales to the QDQ graph that ONNX Runtime fuses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.activation_params import wide_concats
from midge.convert.coverage import Coverage
from midge.convert.given_codes import AS_GIVEN, converts
from midge.convert.insert_qdq import Writer, constant_params, is_redundant
from midge.convert.io_types import set_io_type
from midge.convert.layer_codes import layer_codes, overflowing, raised_notices
from midge.convert.passes.dead_channels import Reduction, remove_dead_channels
from midge.convert.passes.remove_dead import RemoveDead
from midge.convert.select import Selection, select
from midge.core.errors import InputError
from midge.quant.rules import Kind
from midge.quant.scheme import REDUCED_WEIGHT_MAX, WEIGHT_MAX, QuantParams, WeightCodes

MAX_ROUNDS = 8  # of taking back choices; each takes at least one node out


@dataclass(frozen=True, slots=True)
class QuantizedGraph:
    """A quantized graph and what became of every node.

    Args:
        model: QDQ graph.
        coverage: one record per node of the float graph.
        notices: lines that the user must see.
        codes: integer parameters of every layer, by the name of its quantized output.
    """

    model: ir.Model
    coverage: list[Coverage]
    notices: list[str]
    codes: dict[str, WeightCodes]


def quantize_graph(
    model: ir.Model,
    params: Mapping[str, QuantParams],
    layers: Mapping[str, WeightCodes] | None = None,
    *,
    per_channel: bool = True,
    reduce_range: bool = False,
    io_type: str = "float32",
    activation_type: str = "uint8",
    nodes_to_exclude: Iterable[str] = (),
    op_types_to_quantize: Iterable[str] | None = None,
    refused: Mapping[str, str] | None = None,
    join_tables: bool = False,
    tables: Iterable[Iterable[str]] | None = None,
    drop_dead_channels: bool = False,
) -> QuantizedGraph:
    """Quantize a graph; the one given is left as it is.

    Args:
        model: canonical float graph (canonical.canonicalize).
        params: of every activation that is quantized, by tensor name; for a layer with a fused Relu
            or Clip, of that one's output. Operators that move codes may be left out: their output
            has their input's.
        layers: integer parameters of layers that are fixed already (from training), by the same
            names; the others are quantized here.
        per_channel: one weight scale per output channel.
        reduce_range: 7-bit weights, with which no sum of two products leaves 16 bits.
        io_type: "float32" keeps inputs and outputs; "int8" and "uint8" make them codes.
        activation_type: "uint8" or "int8".
        nodes_to_exclude: names of nodes that stay in float.
        op_types_to_quantize: the only operators to quantize; None stands for all.
        refused: further nodes that stay in float -> why.
        join_tables: compute functions of one tensor by one table each, whatever their nodes.
        tables: node names of each such function, where training has chosen them.
        drop_dead_channels: leave out channels that change no bit of the outputs.

    Raises:
        InputError: parameters are missing or contradict each other.
    """
    clone = model.clone()
    given = {k: p.as_dtype(activation_type) for k, p in params.items()}
    no, limit = dict(refused or {}), REDUCED_WEIGHT_MAX if reduce_range else WEIGHT_MAX
    for _ in range(MAX_ROUNDS):
        selection = select(
            clone,
            nodes_to_exclude=nodes_to_exclude,
            op_types_to_quantize=op_types_to_quantize,
            refused=no,
            join_tables=join_tables,
            tables=tables,
        )
        full = complete_params(selection, given)
        codes = layer_codes(selection, full, layers or {}, per_channel, limit)
        more = wide_concats(selection, full) | overflowing(codes, selection, full)
        if not more:
            break
        no |= more
    coverage, lines = _coverage(selection, full, codes), []
    carriers = {n: g.name_of(selection.carrier(n)) for n in codes}
    _write(clone, selection, full, codes, io_type)
    RemoveDead()(clone)
    if drop_dead_channels:
        reduction = remove_dead_channels(clone)
        coverage, lines = _with_losses(coverage, reduction), reduction.notices()
        left = reduction.shrunk
        codes = {n: left[k].codes(c) if (k := g.label(n)) in left else c for n, c in codes.items()}
    by_name = {carriers[n]: c for n, c in codes.items()}
    return QuantizedGraph(clone, coverage, raised_notices(codes) + lines, by_name)


def _with_losses(coverage: list[Coverage], reduction: Reduction) -> list[Coverage]:
    """Say of each layer how many output channels it lost."""
    lost = {r.node: r.reason for r in reduction.records}
    return [
        replace(c, reason=f"{c.reason}, {lost[c.node]}") if c.node in lost else c for c in coverage
    ]


def complete_params(
    selection: Selection, params: Mapping[str, QuantParams]
) -> dict[str, QuantParams]:
    """Return parameters for every quantized tensor; what moves codes hands its input's on.

    Raises:
        InputError: a tensor has none.
    """
    full: dict[str, QuantParams] = {}
    for value in selection.values():
        name, producer = g.name_of(value), value.producer()
        rule = selection.quantized.get(producer) if producer is not None else None
        if rule is not None and rule.kind == Kind.SAME_SCALE and producer is not None:
            source = producer.inputs[0]
            assert source is not None
            full[name] = full[g.name_of(source)]
        elif (given := _moved_to(value, params, selection)) is not None:
            full[name] = given
        else:
            raise InputError(f"tensor {name!r} has no quantization parameters.")
    return full


def _moved_to(
    value: ir.Value, params: Mapping[str, QuantParams], selection: Selection
) -> QuantParams | None:
    """Return a value's parameters, or those of the sole reader that moves or bounds its codes."""
    while g.name_of(value) not in params:
        reader = g.sole_consumer(value)
        rule = selection.quantized.get(reader) if reader is not None else None
        if reader is None or rule is None or rule.kind not in (Kind.SAME_SCALE, Kind.BOUND):
            return None
        value = reader.outputs[0]
    return params[g.name_of(value)]


def _write(
    model: ir.Model,
    selection: Selection,
    params: dict[str, QuantParams],
    codes: Mapping[ir.Node, WeightCodes],
    io_type: str,
) -> None:
    writer = Writer(model, selection, dict(params), g.Names(model.graph))
    writer.drop_bounds()
    constants = [
        (node, index, array, _constant_params(writer, node, array))
        for node in selection.quantized
        if node not in codes
        for index, value in enumerate(node.inputs)
        if value in selection.operands(node) and (array := g.constant(value)) is not None
    ]
    for value in selection.values():
        writer.quantize(value)
    for node, code in codes.items():
        writer.write_layer(node, code)
    for node, index, array, p in constants:
        writer.write_operand(node, index, p, array)
    set_io_type(writer, io_type)


def _constant_params(writer: Writer, node: ir.Node, array: g.Array) -> QuantParams:
    """Return the parameters of a constant operand: among codes that move, those of the output."""
    y = writer.params[g.name_of(writer.selection.carrier(node))]
    return (
        y
        if writer.selection.quantized[node].kind == Kind.CONCAT
        else constant_params(array, y.dtype)
    )


def _given(record: Coverage) -> Coverage:
    """Count what the file had in codes as quantized."""
    return replace(record, state="quantized") if record.reason == AS_GIVEN else record


def _coverage(
    selection: Selection, params: Mapping[str, QuantParams], codes: Mapping[ir.Node, WeightCodes]
) -> list[Coverage]:
    records = []
    for node in (*selection.quantized, *selection.inner, *selection.fused, *selection.kept):
        if converts(node):
            continue
        if node in selection.kept:
            state, reason = "float", selection.kept[node]
        elif node in selection.inner:
            state, reason = "quantized", f"in the table of {g.label(selection.inner[node])}"
        elif node in selection.fused:
            layer = g.label(selection.fused[node])
            gone = is_redundant(node, params[g.name_of(node.outputs[0])])
            state, reason = (
                "quantized",
                f"saturation of {layer}" if gone else f"on codes of {layer}",
            )
        else:
            state, reason = "quantized", selection.quantized[node].kind.value
            if node in codes:
                reason += ", per channel" if codes[node].scale.size > 1 else ", per tensor"
        records.append(Coverage(g.label(node), g.operator(node), state, reason))
    return [_given(c) for c in records] + [
        Coverage(g.label(n), g.operator(n), "quantized", "compares codes")
        for n in selection.compared
    ]
