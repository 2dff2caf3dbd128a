"""Rows of LSTM, GRU and RNN, step by step; gradients flow through every step.

Source: ONNX, operators LSTM, GRU and RNN (equations and the order of gates).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from midge.convert.to_module_call import Call, Row, Table, array, beside
from midge.core import ops
from midge.core.tensor import Tensor

State = tuple[Tensor, ...]
Function = Callable[[Tensor], Tensor]
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
# Activations without parameters; those with alpha and beta are refused.
ACTIVATIONS: dict[str, Function] = {
    "relu": ops.relu,
    "sigmoid": ops.sigmoid,
    "softsign": lambda x: x / (ops.abs(x) + 1),
    "tanh": ops.tanh,
}


@dataclass(frozen=True, slots=True)
class Direction:
    """What one direction of a layer computes with.

    Args:
        W: [gates * H, I].
        R: [gates * H, H].
        Wb: [gates * H] beside W.
        Rb: [gates * H] beside R.
        P: [3, H] peepholes in the order i, o, f, or None.
        functions: activations, in the order f, g, h.
        clip: bound of what goes into an activation, or None.
        reset_after: GRU, the reset gate acts on the product with R.
        input_forget: LSTM, the forget gate is 1 - the input gate.
    """

    W: Tensor
    R: Tensor
    Wb: Tensor | None
    Rb: Tensor | None
    P: Tensor | None
    functions: tuple[Function, ...]
    clip: float | None
    reset_after: bool
    input_forget: bool

    def apply(self, index: int, x: Tensor) -> Tensor:
        """Return activation number `index` of x, which is clipped first."""
        if self.clip is not None:
            x = ops.clip(x, -self.clip, self.clip)
        return self.functions[index](x)


def _lstm(d: Direction, x: Tensor, state: State) -> State:
    """Return (h, c) after one step; x is W x + Wb, the gates are i, o, f, c."""
    h, c = state
    i, o, f, g = ops.chunk(x + ops.linear(h, d.R, d.Rb), 4, dim=-1)
    if d.P is not None:
        i, f = i + d.P[0] * c, f + d.P[2] * c
    i = d.apply(0, i)
    f = 1 - i if d.input_forget else d.apply(0, f)
    c = f * c + i * d.apply(1, g)
    if d.P is not None:
        o = o + d.P[1] * c
    return d.apply(0, o) * d.apply(2, c), c


def _gru(d: Direction, x: Tensor, state: State) -> State:
    """Return (h,) after one step; x is W x + Wb, the gates are z, r, h."""
    (h,) = state
    n = h.shape[-1]
    xz, xr, xh = ops.chunk(x, 3, dim=-1)
    if d.reset_after:
        rz, rr, rh = ops.chunk(ops.linear(h, d.R, d.Rb), 3, dim=-1)
        z, r = d.apply(0, xz + rz), d.apply(0, xr + rr)
        new = d.apply(1, xh + r * rh)
    else:
        gates = ops.linear(h, d.R[: 2 * n], None if d.Rb is None else d.Rb[: 2 * n])
        rz, rr = ops.chunk(gates, 2, dim=-1)
        z, r = d.apply(0, xz + rz), d.apply(0, xr + rr)
        inner = ops.linear(r * h, d.R[2 * n :], None if d.Rb is None else d.Rb[2 * n :])
        new = d.apply(1, xh + inner)
    return ((1 - z) * new + z * h,)


def _rnn(d: Direction, x: Tensor, state: State) -> State:
    """Return (h,) after one step; x is W x + Wb."""
    return (d.apply(0, x + ops.linear(state[0], d.R, d.Rb)),)


STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _functions(call: Call) -> list[tuple[Function, ...]]:
    """Return the activations of each direction.

    Raises:
        UnsupportedError: one is unknown, or has parameters.
    """
    kind, directions = call.node.op_type, DIRECTIONS[call.get("direction", "forward")]
    size = len(DEFAULTS[kind])
    names = call.get("activations", DEFAULTS[kind] * len(directions))
    unknown = sorted({n for n in names if n.lower() not in ACTIVATIONS})
    if unknown or call.get("activation_alpha") or call.get("activation_beta"):
        what = ", ".join(unknown) or "parameters of its activations"
        raise call.fail(f"it has {what}", f"use {', '.join(sorted(ACTIVATIONS))}")
    found = [ACTIVATIONS[n.lower()] for n in names]
    return [tuple(found[i * size : (i + 1) * size]) for i in range(len(directions))]


def _direction(
    call: Call,
    index: int,
    functions: tuple[Function, ...],
    operands: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
) -> Direction:
    weight, recurrence, bias, peepholes = operands
    half = weight.shape[1]
    clip = call.get("clip")
    return Direction(
        W=weight[index],
        R=recurrence[index],
        Wb=None if bias is None else bias[index, :half],
        Rb=None if bias is None else bias[index, half:],
        P=None if peepholes is None else ops.reshape(peepholes[index], (3, -1)),
        functions=functions,
        clip=None if clip is None else float(clip),
        reset_after=bool(call.get("linear_before_reset", 0)),
        input_forget=bool(call.get("input_forget", 0)),
    )


def _run(
    step: Callable[[Direction, Tensor, State], State],
    d: Direction,
    x: Tensor,
    state: State,
    order: list[int],
    valid: Tensor | None,
) -> tuple[Tensor, State]:
    """Return [T, B, H] of one direction and its last state.

    Args:
        step: of the operator.
        d: the direction.
        x: [T, B, I].
        state: [B, H] each.
        order: in which steps are taken.
        valid: [T, B, 1], whether a sequence is still running, or None where all are.
    """
    inputs = ops.linear(x, d.W, d.Wb)
    rows: dict[int, Tensor] = {}
    for t in order:
        new = step(d, inputs[t], state)
        rows[t] = new[0]
        if valid is not None:  # behind its end a sequence keeps its state and gives zeros
            new = tuple(ops.where(valid[t], n, old) for n, old in zip(new, state, strict=True))
            rows[t] = ops.where(valid[t], rows[t], 0)
        state = new
    return ops.stack([rows[t] for t in range(len(order))]), state


def _row(kind: str) -> Row:
    states = 2 if kind == "LSTM" else 1

    def row(
        call: Call,
        x: Tensor,
        weight: Tensor,
        recurrence: Tensor,
        bias: Tensor | None = None,
        lengths: Tensor | None = None,
        *rest: Tensor | None,
    ) -> Any:
        layout = bool(call.get("layout", 0))
        x = ops.transpose(x, 0, 1) if layout else x
        first = [*rest[:states], *[None] * (states - len(rest[:states]))]
        peepholes = rest[2] if len(rest) > 2 else None
        steps, batch, hidden = x.shape[0], x.shape[1], recurrence.shape[2]
        valid = _valid(x, lengths, steps)
        ends: list[State] = []
        outputs: list[Tensor] = []
        functions = _functions(call)
        for index, backward in enumerate(DIRECTIONS[call.get("direction", "forward")]):
            d = _direction(call, index, functions[index], (weight, recurrence, bias, peepholes))
            state = tuple(
                beside(x, np.zeros((batch, hidden)))
                if s is None
                else (s[:, index] if layout else s[index])
                for s in first
            )
            order = list(range(steps))[:: -1 if backward else 1]
            y, end = _run(STEPS[kind], d, x, state, order, valid)
            outputs.append(y)
            ends.append(end)
        return _results(call, outputs, ends, states, layout)

    return row


def _valid(x: Tensor, lengths: Tensor | None, steps: int) -> Tensor | None:
    """Return [T, B, 1]: whether step t lies inside each sequence; None where all do."""
    if lengths is None or bool((array(lengths) == steps).all()):
        return None
    inside = np.arange(steps)[:, None] < array(lengths).reshape(1, -1)
    return beside(x, inside[..., None], np.dtype(np.bool_))


def _results(
    call: Call, outputs: list[Tensor], ends: list[State], states: int, layout: bool
) -> Any:
    """Return Y [T, D, B, H], Y_h [D, B, H] and Y_c, batch first with layout 1."""
    y = ops.stack(outputs, 1)
    last = [ops.stack([end[k] for end in ends]) for k in range(states)]
    if layout:
        y = ops.permute(y, (2, 0, 1, 3))
        last = [ops.transpose(s, 0, 1) for s in last]
    return (y, *last)[: max(call.outputs, 1)] if call.outputs > 1 else y


RECURRENT: Table = {kind: _row(kind) for kind in STEPS}
