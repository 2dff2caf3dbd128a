"""LSTM, GRU and RNN in NumPy, and how far float32 C may be from float64 NumPy."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor_functions import UNARY
from midge.convert.executor_ops import Operands
from midge.convert.plan_general import RecurrentF32

Array = npt.NDArray[Any]

U = 2.0**-24  # one rounding of float32, relative
LIBRARY = 2.0**-21  # relative error of expf and tanhf


@dataclass(frozen=True, slots=True)
class Inexact:
    """A value and how far float32 C may be from it.

    Sums and products carry both along: |a b - a' b'| <= |a| e_b + |b| e_a + e_a e_b, and each
    operation adds a rounding of its result.
    """

    value: Array
    error: Array

    def __add__(self, other: "Inexact") -> "Inexact":
        """Add."""
        value, error = self.value + other.value, self.error + other.error
        return Inexact(value, error + U * (np.abs(value) + error))

    def __mul__(self, other: "Inexact") -> "Inexact":
        """Multiply."""
        value = self.value * other.value
        error = np.abs(self.value) * other.error + np.abs(other.value) * self.error
        error = error + self.error * other.error
        return Inexact(value, error + U * (np.abs(value) + error))

    def one_minus(self) -> "Inexact":
        """Return 1 - self."""
        value = 1 - self.value
        return Inexact(value, self.error + U * (np.abs(value) + self.error))

    def apply(self, name: str) -> "Inexact":
        """Apply "sigmoid" (slope at most 1/4), "tanh" or "relu" (slope at most 1)."""
        value = _function(name, self.value)
        slope = 0.25 if name == "sigmoid" else 1.0
        rounding = 0.0 if name == "relu" else 2 * LIBRARY
        return Inexact(value, slope * self.error + rounding * np.abs(value))


def _function(name: str, x: Array) -> Array:
    if name == "relu":
        x = np.maximum(x, x.dtype.type(0))
        return x
    y: Array = np.asarray(UNARY[name](x, x.dtype.type(0), x.dtype.type(0)), x.dtype)
    return y


def recurrent(p: RecurrentF32, o: Operands) -> Array:
    """Run every step; float32 in float32, float64 in float64."""
    return _run(p, o, bounded=False).value.reshape(-1, *o.y.shape)


def recurrent_bound(p: RecurrentF32, o: Operands) -> Array:
    """Return how far C may be from `recurrent` in float64, element by element."""
    wide = replace(o, x=[x.astype(np.float64) for x in o.x])
    return _run(p, wide, bounded=True).error.reshape(-1, *o.y.shape)


def _run(p: RecurrentF32, o: Operands, *, bounded: bool) -> Inexact:
    """Return [S, T (+ 1), B, H]; every step reads the h that was seen before it, where one was.

    Errors of h then do not add up from step to step. `bounded` asks for errors at all.
    """
    X = o.x[0]
    steps, batch = X.shape[1:3]
    first = [Inexact(np.zeros((len(X), batch, p.hidden), X.dtype), np.zeros(()))] * 2
    given = iter(o.x[1:])
    for i, has in enumerate(p.has_state):
        if has:
            first[i] = Inexact(next(given).reshape(len(X), batch, p.hidden), np.zeros(()))
    h, kept = first
    seen = None if o.seen is None else o.seen.reshape(-1, *o.y.shape)
    rows: dict[int, Inexact] = {}
    for t in range(steps - 1, -1, -1) if p.backward else range(steps):
        h, kept = STEPS[p.kind](p, X[:, t], h, kept)
        rows[t] = h
        if seen is not None:
            h = Inexact(seen[:, t].astype(X.dtype), np.zeros(()))
        if not bounded:
            h, kept = (Inexact(v.value, np.zeros(())) for v in (h, kept))
    found = [rows[t] for t in range(steps)] + ([] if p.kind == "rnn" else [kept])
    shape = h.value.shape
    return Inexact(
        np.stack([r.value for r in found], axis=1),
        np.stack([np.broadcast_to(r.error, shape) for r in found], axis=1),
    )


def _gates(p: RecurrentF32, x: Array, h: Inexact, *which: int) -> list[Inexact]:
    """Return x W + h R + b of some gates, [S, B, H] each."""
    return [_sum(p, x, h, k, p.bias[k * p.hidden : (k + 1) * p.hidden]) for k in which]


def _sum(p: RecurrentF32, x: Array | None, h: Inexact | None, gate: int, bias: Array) -> Inexact:
    rows = slice(gate * p.hidden, (gate + 1) * p.hidden)
    like = x if x is not None else h.value if h is not None else bias
    dtype = like.dtype
    W, R, b = (a.astype(dtype) for a in (p.weight[rows], p.recurrence[rows], bias))
    value, size, error, terms = b, np.abs(b), np.zeros(()), 1
    if x is not None:
        value, size, terms = value + x @ W.T, size + np.abs(x) @ np.abs(W).T, terms + W.shape[1]
    if h is not None:
        value = value + h.value @ R.T
        carried = np.broadcast_to(h.error, h.value.shape) @ np.abs(R).T
        size, error = size + np.abs(h.value) @ np.abs(R).T + carried, carried
        terms += R.shape[1]
    roundings = (terms + 1) * U / (1 - (terms + 1) * U)
    return Inexact(value, error + roundings * size)


def _lstm(p: RecurrentF32, x: Array, h: Inexact, c: Inexact) -> tuple[Inexact, Inexact]:
    """i, f = sigmoid(. + P c'); c = f c' + i tanh(.); o = sigmoid(. + P c); h = o tanh(c)."""
    i, o, f, cell = _gates(p, x, h, 0, 1, 2, 3)
    peep_i, peep_o, peep_f = (
        Inexact(v.astype(x.dtype), np.zeros(())) for v in np.split(p.peepholes, 3)
    )
    if p.peepholes.any():
        i, f = i + peep_i * c, f + peep_f * c
    kept = f.apply("sigmoid") * c + i.apply("sigmoid") * cell.apply("tanh")
    if p.peepholes.any():
        o = o + peep_o * kept
    return o.apply("sigmoid") * kept.apply("tanh"), kept


def _gru(p: RecurrentF32, x: Array, h: Inexact, _: Inexact) -> tuple[Inexact, Inexact]:
    """Compute h = (1 - z) n + z h' with n = tanh(x W + (r h') R + b).

    Where it resets after, n = tanh(x W + Wb + r (h' R + Rb)).
    """
    z, r = (gate.apply("sigmoid") for gate in _gates(p, x, h, 0, 1))
    reset = r * h
    bias = p.bias[2 * p.hidden :]
    if p.reset_after:
        n = _sum(p, x, None, 2, bias) + r * _sum(p, None, h, 2, p.hidden_bias)
    else:
        n = _sum(p, x, reset, 2, bias)
    return z.one_minus() * n.apply("tanh") + z * h, reset


def _rnn(p: RecurrentF32, x: Array, h: Inexact, kept: Inexact) -> tuple[Inexact, Inexact]:
    (gate,) = _gates(p, x, h, 0)
    return gate.apply("relu" if p.relu else "tanh"), kept


STEPS = {"gru": _gru, "lstm": _lstm, "rnn": _rnn}
