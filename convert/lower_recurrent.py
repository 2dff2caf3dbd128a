"""Lowers LSTM, GRU and RNN in float32: a step for each direction, states in and out.

Refused by name: sequence_lens other than the whole length, clip, input_forget, activations other
than the default (an RNN may have Relu), and weights that are no constants.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import take, transposed
from midge.convert.lower_float_values import constant_step
from midge.convert.lower_params import fail, real_constant
from midge.convert.lower_program import Stored
from midge.convert.plan import Concat
from midge.convert.plan_general import RecurrentF32

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# What each direction computes with by default.
DEFAULTS: dict[str, list[tuple[str, ...]]] = {
    "LSTM": [("sigmoid", "tanh", "tanh")],
    "GRU": [("sigmoid", "tanh")],
    "RNN": [("tanh",), ("relu",)],
}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
OUTPUTS = ("Y", "Y_h", "Y_c")


def _recurrent(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower one output: Y, Y_h or Y_c; what a direction computes is computed once."""
    _check(low, node)
    parts = [_direction(low, node, d) for d in range(len(_directions(node)))]
    name = f"{g.name_of(node.outputs[index])}"
    made = [_part(low, node, index, d, y) for d, y in enumerate(parts)]
    y = made[0]
    if len(made) > 1:
        axis = 1 if index == 0 else 0
        y = _joined(low, name, made, axis)
    if g.attribute(node, "layout", 0):
        y = transposed(low, y, (2, 0, 1, 3) if index == 0 else (1, 0, 2))
    return replace(y, shape=low.shape(node.outputs[index]))


def _directions(node: ir.Node) -> tuple[bool, ...]:
    return DIRECTIONS[g.attribute(node, "direction", "forward")]


def _check(low: "Lowering", node: ir.Node) -> None:
    """Refuse what the steps do not compute."""
    lengths = g.operand(node, 4)
    if lengths is not None:
        given = g.constant(lengths)
        if given is None or not np.all(given == _size(low, node)[0]):
            raise fail(node, "it has sequence_lens", "give every sequence its whole length")
    if g.attribute(node, "clip") is not None:
        raise fail(node, "it clips its gates", "export it without clip")
    if g.attribute(node, "input_forget", 0):
        raise fail(node, "its input_forget is set", "export it without input_forget")
    names = [str(name).lower() for name in g.attribute(node, "activations", ())]
    known = DEFAULTS[node.op_type]
    if names and names not in [list(one) * len(_directions(node)) for one in known]:
        raise fail(node, f"its activations are {names}", f"use {', '.join(known[0])}")


def _size(low: "Lowering", node: ir.Node) -> tuple[int, int, int]:
    """Return steps, batch and inputs."""
    assert node.inputs[0] is not None
    shape = low.shape(node.inputs[0])
    first, second, inputs = shape
    return (second, first, inputs) if g.attribute(node, "layout", 0) else (first, second, inputs)


def _constant(node: ir.Node, position: int, direction: int, shape: tuple[int, ...]) -> Array:
    """Return an operand of one direction; zeros where it is absent."""
    value = g.operand(node, position)
    if value is None:
        return np.zeros(shape, np.float32)
    array = real_constant(value)
    if array is None:
        raise fail(node, f"its operand {value.name!r} is computed", "make it an initializer")
    return np.ascontiguousarray(array[direction].reshape(shape), np.float32)


def _direction(low: "Lowering", node: ir.Node, direction: int) -> Stored:
    """Return [T (+ 1), B, H] of one direction."""
    key = node, direction
    if key not in low.reals.recurrent:
        low.reals.recurrent[key] = _step(low, node, direction)
    return low.reals.recurrent[key]


def _step(low: "Lowering", node: ir.Node, direction: int) -> Stored:
    kind, gates = node.op_type.lower(), GATES[node.op_type]
    steps, batch, inputs = _size(low, node)
    w = real_constant(node.inputs[1])
    if w is None:
        raise fail(node, "its W is no constant", "make it an initializer")
    hidden = w.shape[1] // gates
    bias = _constant(node, 3, direction, (2, gates, hidden))
    total, hidden_bias = bias.sum(axis=0), np.zeros(hidden, np.float32)
    reset_after = bool(kind == "gru" and g.attribute(node, "linear_before_reset", 0))
    if reset_after:
        total[2], hidden_bias = bias[0, 2], bias[1, 2]
    states = [_state(low, node, position, direction, (batch, hidden)) for position in (5, 6)]
    activations = [str(name).lower() for name in g.attribute(node, "activations", ())]
    params = RecurrentF32(
        kind=kind,
        weight=_constant(node, 1, direction, (gates * hidden, inputs)),
        recurrence=_constant(node, 2, direction, (gates * hidden, hidden)),
        bias=np.ascontiguousarray(total.reshape(-1), np.float32),
        hidden_bias=np.ascontiguousarray(hidden_bias),
        peepholes=_constant(node, 7, direction, (3 * hidden,)),
        backward=_directions(node)[direction],
        reset_after=reset_after,
        relu="relu" in activations,
        has_state=(states[0] is not None, states[1] is not None),
    )
    name = f"{g.label(node)}_{direction}"
    shape = (steps + (kind != "rnn"), batch, hidden)
    y = low.program.new(name, shape, lay.identity(shape), None)
    tensors = [_time_first(low, node).tensor, *(s.tensor for s in states if s is not None)]
    macs = steps * batch * (params.weight.size + params.recurrence.size)
    return low.program.op(g.label(node), params, tensors, y, macs)


def _time_first(low: "Lowering", node: ir.Node) -> Stored:
    """Return X as [T, B, I] in order."""
    assert node.inputs[0] is not None
    x = low.reals.of(node.inputs[0])
    if g.attribute(node, "layout", 0):
        x = transposed(low, x, (1, 0, 2))
    return _in_order(low, x)


def _in_order(low: "Lowering", x: Stored) -> Stored:
    x = low.program.reorder(x, lay.identity(x.shape), "in_order")
    return replace(x, tensor=low.program.view(x, x.shape), layout=lay.identity(x.shape))


def _state(
    low: "Lowering", node: ir.Node, position: int, direction: int, shape: tuple[int, int]
) -> Stored | None:
    """Return the first state [B, H] of a direction, None where it is 0."""
    value = g.operand(node, position)
    if value is None:
        return None
    array, batch_first = real_constant(value), bool(g.attribute(node, "layout", 0))
    if array is not None:
        state = (array[:, direction] if batch_first else array[direction]).reshape(shape)
        name = f"{g.name_of(value)}_{direction}"
        return constant_step(low, name, state) if state.any() else None
    x = low.reals.of(value)
    if batch_first:
        x = transposed(low, x, (1, 0, 2))
    names = (g.label(node), f"{g.name_of(value)}_{direction}")
    start = (direction, 0, 0)
    return _in_order(low, replace(take(low, names, x, start, (1, 1, 1), (1, *shape)), shape=shape))


def _part(low: "Lowering", node: ir.Node, index: int, direction: int, y: Stored) -> Stored:
    """Return one direction's Y [T, 1, B, H], or Y_h or Y_c [1, B, H]."""
    steps, batch, hidden = _size(low, node)[0], *y.shape[1:]
    first = {
        0: 0,
        1: 0 if _directions(node)[direction] else steps - 1,
        2: steps,
    }[index]
    count = steps if index == 0 else 1
    names = (g.label(node), f"{g.label(node)}_{OUTPUTS[index]}_{direction}")
    y = take(low, names, y, (first, 0, 0), (1, 1, 1), (count, batch, hidden))
    return replace(y, shape=(steps, 1, batch, hidden)) if index == 0 else y


def _joined(low: "Lowering", name: str, parts: list[Stored], axis: int) -> Stored:
    """Join the directions along an axis."""
    shape = list(parts[0].shape)
    shape[axis] = len(parts)
    y = low.program.new(name, shape, lay.identity(shape), None)
    inputs = [
        low.program.view(low.program.reorder(x, lay.identity(x.shape), "in_order"), x.shape)
        for x in parts
    ]
    return low.program.op(name, Concat(axis), inputs, y)


RECURRENT: dict[str, Callable[["Lowering", ir.Node, int], Stored]] = dict.fromkeys(
    GATES, _recurrent
)
