"""Lowers operators that move float elements: the integer ones' functions, on four-byte items."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes
from midge.convert.lower_moves import (
    MOVES_ANY,
    pad_widths,
    pad_with_elements,
    pads_with_elements,
)
from midge.convert.lower_params import fail, real_constant
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Destination
from midge.convert.plan_float import PadF32

if TYPE_CHECKING:
    from midge.convert.lower import Lowering


def _move(low: "Lowering", node: ir.Node, index: int) -> Stored:
    values = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    sources = [low.reals.of(v) for v in values if v is not None]
    target = Destination(g.name_of(node.outputs[index]), None)
    return MOVES_ANY[node.op_type](low, node, index, sources, target)


def _pad(low: "Lowering", node: ir.Node, index: int) -> Stored:
    assert node.inputs[0] is not None
    x = low.reals.of(node.inputs[0])
    before, after = pad_widths(node, x)
    if pads_with_elements(node):
        return pad_with_elements(low, node, x, before, after)
    given = g.operand(node, 2)
    value = np.zeros(1, np.float32) if given is None else real_constant(given)
    if value is None or value.size != 1:
        raise fail(node, "its value is computed", "make it a constant")
    if not any(before) and not any(after):
        return x
    (x,), order = by_axes(low, [x])
    shape, real = low.shape(node.outputs[0]), float(value.reshape(-1)[0])
    params = PadF32(tuple(before[a] for a in order), tuple(after[a] for a in order), real)
    y = low.program.new(g.name_of(node.outputs[0]), shape, lay.permuted(shape, order), None)
    inputs = [low.program.view(x, [x.shape[a] for a in order])]
    return low.program.op(g.label(node), params, inputs, y)


MOVES_F32: dict[str, Callable[["Lowering", ir.Node, int], Stored]] = {
    **dict.fromkeys(MOVES_ANY, _move),
    "Pad": _pad,
}
