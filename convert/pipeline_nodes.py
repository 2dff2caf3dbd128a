"""Nodes on the road to a quantized file: what the user excludes, and what became of each."""

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.coverage import Coverage
from midge.convert.given_codes import converts
from midge.convert.passes.base import PassRecord
from midge.convert.passes.drop_softmax import DropSoftmax, drop_notices
from midge.convert.quantize_report import QuantizeOptions


def refused_by_user(
    model: ir.Model, before: Mapping[str, str], options: QuantizeOptions
) -> tuple[dict[str, str], list[str]]:
    """Return the nodes that the options keep in float -> why, and exclusions that have no effect.

    Operators are those of the file that was read: a MatMul that has become a Gemm counts as one.
    """
    refused = {}
    for node in model.graph:
        name = g.label(node)
        op_type = before.get(name, g.operator(node))
        if name in options.nodes_to_exclude:
            refused[name] = "excluded by --nodes-to-exclude"
        elif options.op_types_to_quantize and op_type not in options.op_types_to_quantize:
            refused[name] = "not among --op-types-to-quantize"
    gone = [name for name in options.nodes_to_exclude if name not in refused]
    return refused, [
        f"--nodes-to-exclude {name} has no effect: the node was folded into its neighbours."
        for name in gone
    ]


def canonical(model: ir.Model, lines: list[str], drop_softmax: bool) -> list[PassRecord]:
    """Bring a model into canonical form, in place, and return the record of each node.

    Args:
        model: as read.
        lines: what the user must see; appended to.
        drop_softmax: the option.
    """
    records = canonicalize(model, (DropSoftmax,) if drop_softmax else ())
    if drop_softmax:
        lines += drop_notices(records)
    return records


def nodes_by_name(model: ir.Model) -> dict[str, str]:
    """Return operator by node name of the main graph, but for what only converts codes."""
    return {g.label(n): g.operator(n) for n in model.graph if not converts(n)}


def with_folded(
    coverage: list[Coverage], records: list[PassRecord], before: Mapping[str, str]
) -> list[Coverage]:
    """Add the nodes that the passes folded, and name operators as the file that was read does."""
    coverage = [replace(c, op_type=before.get(c.node, c.op_type)) for c in coverage]
    left = {c.node for c in coverage}
    why = {r.node: r.reason for r in records if r.state == "folded"}
    folded = [
        Coverage(node, op_type, "folded", why.get(node, "constant, or nothing depends on it"))
        for node, op_type in before.items()
        if node not in left
    ]
    return coverage + folded
