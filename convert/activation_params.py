"""From the ranges of activations to scales and zero-points.

1. A tensor with a range of its own gets asymmetric 8-bit parameters (scheme.activation_params).
2. A Softmax's output has scale 1/256 and zero-point 0.
3. An operator that moves codes gives its output the parameters of its input; a Pad's value is made
   part of that range.
4. The inputs of a Concat share its output's parameters while each of them keeps `CONCAT_SQNR_DB`.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.insert_qdq import constant_params
from midge.convert.one_table import OneTable, unfit_for_table
from midge.convert.passes.fold_pads import pad_value
from midge.convert.select import Selection
from midge.core.errors import InputError
from midge.quant.arithmetic import add_coefficients, portable_sum_params, portable_table_params
from midge.quant.rules import Kind
from midge.quant.scheme import SOFTMAX_PARAMS, QuantParams, activation_params

CONCAT_SQNR_DB = 25.0
# A bell curve that fills 8 bits at four standard deviations has an SQNR of 40.9 dB; every doubling
# of the step costs 6.02 dB. Used where only ranges are known.
FULL_RANGE_SQNR_DB = 40.9
CONCAT_RATIO = 10 ** ((FULL_RANGE_SQNR_DB - CONCAT_SQNR_DB) / 20)  # of two steps: 6.2

Range = tuple[float, float]
PROBABILITIES = (0.0, 1.0)
LEAST_PROBABILITY = 1 / 32  # of the largest seen: below it, steps of 1/256 leave too few codes


def tensors_to_observe(selection: Selection) -> list[str]:
    """Return the names of the tensors whose ranges `params_from_ranges` needs.

    Those within a function of one tensor are among them: should it be unfit for a table, its nodes
    are on their own.
    """
    roots = _roots(selection)
    inner = [v for n in selection.inner for v in n.outputs if g.is_float(v)]
    return [g.name_of(v) for v in (*selection.values(), *inner) if roots.get(v, v) is v]


def params_from_ranges(
    selection: Selection,
    ranges: Mapping[str, Range],
    dtype: str = "uint8",
    given: Mapping[str, QuantParams] | None = None,
) -> dict[str, QuantParams]:
    """Return the parameters of every tensor that is quantized.

    Args:
        selection: what is quantized.
        ranges: (smallest, largest) of the tensors to observe, by name.
        dtype: "uint8" or "int8".
        given: parameters that the file has already, which stay, by name.

    Raises:
        InputError: a tensor has no range.
    """
    roots = _roots(selection)
    own: dict[ir.Value, Range] = {}
    for value in selection.values():
        if roots[value] is value:
            if _is_fixed(value):
                own[value] = PROBABILITIES
                continue
            if value.name not in ranges:
                raise InputError(f"tensor {value.name!r} has no calibrated range.")
            own[value] = ranges[g.name_of(value)]
    _include_pad_values(selection, roots, own)
    shared = _share_concat(selection, roots, own)
    params: dict[str, QuantParams] = {}
    for value in selection.values():
        fixed = SOFTMAX_PARAMS.as_dtype(dtype) if _is_fixed(roots[value]) else None
        params[g.name_of(value)] = fixed or activation_params(*shared[roots[value]], dtype)
    params.update((n, p) for n, p in (given or {}).items() if n in params)
    _make_sums_portable(selection, params)
    _make_tables_portable(selection, params)
    params.update((n, p) for n, p in (given or {}).items() if n in params)
    return params


def _make_sums_portable(selection: Selection, params: dict[str, QuantParams]) -> None:
    """Raise the scale of an Add or Sub by a few float32 steps where ONNX Runtime rounds it apart.

    What has the sum's scale (operators that move codes, members of a Concat) follows.
    """
    for node, rule in selection.quantized.items():
        if rule.kind != Kind.ADD:
            continue
        old = params[g.name_of(selection.carrier(node))]
        a, b = (
            params[g.name_of(v)] if c is None else constant_params(c, old.dtype)
            for v in selection.operands(node)
            for c in [g.constant(v)]
        )
        if not np.isfinite(add_coefficients(a, b, old)).all():
            raise InputError(
                f"{g.label(node)}: the ranges of its inputs and its output lie too far apart for "
                "float32; are the calibration data and the model sound? Leave the node in float "
                "with --nodes-to-exclude."
            )
        new = portable_sum_params(a, b, old, subtract=node.op_type == "Sub")
        if new != old and old not in (a, b):
            params.update({name: new for name, p in params.items() if p == old})


def _make_tables_portable(selection: Selection, params: dict[str, QuantParams]) -> None:
    """Raise the scale of a table's result a little where float32 could round it apart."""
    for node, rule in selection.quantized.items():
        if rule.kind != Kind.TABLE:
            continue
        table = selection.tables.get(node) or OneTable((node,))
        x, old = params[g.name_of(table.source)], params[g.name_of(node.outputs[0])]
        new = portable_table_params(table, x, old)
        if new != old and old not in (x, SOFTMAX_PARAMS.as_dtype(old.dtype)):
            params.update({name: new for name, p in params.items() if p == old})


def _is_fixed(value: ir.Value) -> bool:
    """Tell whether the tensor's parameters are the same whatever the data."""
    return g.is_op(value.producer(), "Softmax")


def _roots(selection: Selection) -> dict[ir.Value, ir.Value]:
    """Map every tensor to the one whose parameters it has."""
    roots: dict[ir.Value, ir.Value] = {}
    for value in selection.values():
        producer = value.producer()
        rule = selection.quantized.get(producer) if producer is not None else None
        moved = rule is not None and rule.kind == Kind.SAME_SCALE and producer is not None
        source = producer.inputs[0] if moved and producer is not None else None
        roots[value] = value if source is None else roots[source]
    return roots


def _include_pad_values(
    selection: Selection, roots: dict[ir.Value, ir.Value], own: dict[ir.Value, Range]
) -> None:
    for node in selection.quantized:
        value = pad_value(node) if g.is_op(node, "Pad") else None
        if value is not None and node.inputs[0] is not None:
            root = roots[node.inputs[0]]
            own[root] = min(own[root][0], value), max(own[root][1], value)


def _span(bounds: Range) -> Range:
    return min(bounds[0], 0.0), max(bounds[1], 0.0)


def _width(bounds: Range) -> float:
    low, high = _span(bounds)
    return high - low


def _share_concat(
    selection: Selection, roots: dict[ir.Value, ir.Value], own: dict[ir.Value, Range]
) -> dict[ir.Value, Range]:
    """Return each root's range after the inputs of Concats were joined where they may be.

    Groups grow one Concat at a time; a group takes in a tensor only if every member's own range is
    at least 1 / CONCAT_RATIO of the joint one.
    """
    group: dict[ir.Value, list[ir.Value]] = {root: [root] for root in own}
    for node, rule in selection.quantized.items():
        if rule.kind != Kind.CONCAT:
            continue
        home = roots[selection.carrier(node)]
        for operand in selection.operands(node):
            root = roots.get(operand)
            if root is None or group[root] is group[home]:
                continue
            joined = group[home] + group[root]
            joint = _width(_union([own[v] for v in joined]))
            if all(not _is_fixed(v) and joint <= CONCAT_RATIO * _width(own[v]) for v in joined):
                for member in joined:
                    group[member] = joined
    return {root: _union([own[v] for v in group[root]]) for root in own}


def _union(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def flat_softmaxes(selection: Selection, ranges: Mapping[str, Range]) -> dict[str, str]:
    """Return the Softmaxes to keep in float -> why: what they give is too small for 8 bits."""
    return {
        g.label(node): f"its largest probability is {high:.2g}, for which steps of 1/256 are coarse"
        for node, rule in selection.quantized.items()
        if rule.kind == Kind.SOFTMAX
        and 0 < (high := ranges[g.name_of(node.outputs[0])][1]) < LEAST_PROBABILITY
    }


def unfit_tables(
    selection: Selection, params: Mapping[str, QuantParams], ranges: Mapping[str, Range]
) -> dict[str, str]:
    """Return the functions of one tensor that must not be one table -> why, by their last node."""
    found = {}
    for node, table in selection.tables.items():
        x, y = g.name_of(table.source), g.name_of(node.outputs[0])
        why = unfit_for_table(table, params[x], ranges[y])
        if why:
            found[g.label(node)] = why
    return found


def wide_concats(selection: Selection, params: Mapping[str, QuantParams]) -> dict[str, str]:
    """Return the Concats to keep in float -> why.

    These join tensors whose steps differ by more than CONCAT_RATIO, so that one scale would leave a
    part below CONCAT_SQNR_DB, and nothing behind them computes in codes that needs that one scale.
    """
    found = {}
    for node, rule in selection.quantized.items():
        if rule.kind != Kind.CONCAT or _feeds_codes(node, selection):
            continue
        y_scale = params[g.name_of(selection.carrier(node))].scale
        for operand in selection.operands(node):
            x = params.get(g.name_of(operand))
            if x is not None and y_scale > CONCAT_RATIO * x.scale:
                found[g.label(node)] = (
                    f"one scale for all would leave {operand.name!r} below {CONCAT_SQNR_DB:.0f} dB"
                )
    return found


def _feeds_codes(node: ir.Node, selection: Selection) -> bool:
    """Tell whether the node's result reaches a quantized operator that computes."""
    for use in (u for v in node.outputs for u in v.uses()):
        rule = selection.quantized.get(use.node)
        if rule is None:
            continue
        if rule.kind != Kind.SAME_SCALE or _feeds_codes(use.node, selection):
            return True
    return False
