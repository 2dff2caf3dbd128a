"""RNN, GRU and LSTM, with PyTorch's parameters and results; gradients flow through every step.

Source: PyTorch, torch.nn.RNN, GRU and LSTM (the equations of their pages); Hochreiter, Schmidhuber,
"Long short-term memory", 1997; Cho et al., "Learning phrase representations using RNN
encoder-decoder", 2014.
"""

from math import sqrt
from typing import Any, ClassVar

import numpy as np

from midge.core import ops
from midge.core.creation import zeros
from midge.core.errors import InputError, did_you_mean
from midge.core.nn import functional as F
from midge.core.nn import init
from midge.core.nn.module import Module
from midge.core.nn.parameter import Parameter
from midge.core.tensor import Tensor

State = tuple[Tensor, ...]
NONLINEARITIES = {"tanh": ops.tanh, "relu": ops.relu}


class _Recurrent(Module):
    """Layers that read a sequence step by step.

    Args:
        input_size: size of the last dimension of x.
        hidden_size: units of each layer and direction.
        num_layers: layers on top of each other.
        bias: add biases.
        batch_first: x is [B, T, input_size], not [T, B, input_size].
        bidirectional: read the sequence backwards too, and join both along the last dimension.

    Raises:
        InputError: a size is not positive; in forward: x or a state has another shape, named.

    Attributes:
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0: of layer 0, gates below each other;
            `_reverse` is added for the other direction. All uniform within +-1 / sqrt(hidden_size).
    """

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        bidirectional: bool = False,
    ) -> None:
        """Draw the weights."""
        super().__init__()
        for name, size in (
            ("input_size", input_size),
            ("hidden_size", hidden_size),
            ("num_layers", num_layers),
        ):
            if size < 1:
                raise InputError(f"{type(self).__name__}: {name}={size}; it must be 1 or more.")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        rows, bound = self.gates * hidden_size, 1 / sqrt(hidden_size)
        for layer, suffix in self._parts():
            width = hidden_size * (1 + bidirectional) if layer else input_size
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (rows, width),
                "weight_hh": (rows, hidden_size),
            }
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
            for name, shape in shapes.items():
                parameter = Parameter(np.empty(shape, np.float32))
                init.uniform_(parameter, -bound, bound)
                self.register_parameter(f"{name}_l{layer}{suffix}", parameter)

    def _parts(self) -> list[tuple[int, str]]:
        """Return (layer, suffix of its parameters) of every direction, in the order of states."""
        suffixes = ("", "_reverse") if self.bidirectional else ("",)
        return [(layer, suffix) for layer in range(self.num_layers) for suffix in suffixes]

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """Return the state after one step.

        Args:
            x: [B, gates * H] of the input, its bias added.
            h: the same of the state.
            state: before the step, [B, H] each.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step().")

    def _run(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Return [T, B, directions * H] and each state [layers * directions, B, H].

        Raises:
            InputError: x is not [T, B, input_size], or a state has another shape.
        """
        order = "[B, T, input_size]" if self.batch_first else "[T, B, input_size]"
        if x.ndim != 3 or x.shape[2] != self.input_size or 0 in x.shape:
            raise InputError(
                f"{type(self).__name__}: x is {list(x.shape)}; it must be {order} with "
                f"input_size={self.input_size} and no empty axis."
            )
        y = ops.transpose(x, 0, 1) if self.batch_first else x
        parts = self._parts()
        shape = (len(parts), y.shape[1], self.hidden_size)
        if state is None:
            state = (zeros(shape, dtype=np.float32, device=x.device),) * self.states
        for given in state:
            if given.shape != shape:
                raise InputError(
                    f"{type(self).__name__}: a state is {list(given.shape)}; it must be [layers * "
                    f"directions, B, hidden_size], here {list(shape)}."
                )
        ends: list[State] = []
        for layer in range(self.num_layers):
            rows = [i for i, (at, _) in enumerate(parts) if at == layer]
            made = [self._direction(y, parts[i], tuple(s[i] for s in state)) for i in rows]
            y = ops.concat([out for out, _ in made], dim=-1) if len(made) > 1 else made[0][0]
            ends += [end for _, end in made]
        last = tuple(ops.stack([end[k] for end in ends]) for k in range(self.states))
        return (ops.transpose(y, 0, 1) if self.batch_first else y), last

    def _direction(self, x: Tensor, part: tuple[int, str], state: State) -> tuple[Tensor, State]:
        """Return [T, B, H] and the last state of one direction of one layer."""
        layer, suffix = part
        end = f"l{layer}{suffix}"
        w, r = getattr(self, f"weight_ih_{end}"), getattr(self, f"weight_hh_{end}")
        biases = [getattr(self, f"bias_{k}_{end}") if self.bias else None for k in ("ih", "hh")]
        inputs = F.linear(x, w, biases[0])
        steps = range(x.shape[0])
        rows: dict[int, Tensor] = {}
        for t in reversed(steps) if suffix else steps:
            state = self.step(inputs[t], F.linear(state[0], r, biases[1]), state)
            rows[t] = state[0]
        return ops.stack([rows[t] for t in steps]), state

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


class _OneState(_Recurrent):
    """Layers whose state is h alone."""

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read sequences.

        Args:
            x: float [T, B, input_size], or [B, T, input_size] with batch_first.
            h: the first state, [layers * directions, B, hidden_size]; zeros by default.

        Returns:
            The last layer's h at every step, ordered as x, [..., directions * hidden_size]; and
            the last state, shaped as the first.

        Raises:
            InputError: a shape does not fit, named.
        """
        y, (last,) = self._run(x, None if h is None else (h,))
        return y, last


class RNN(_OneState):
    """h = tanh(W x + b_ih + R h' + b_hh), or relu of it; see _Recurrent for what both share.

    Args:
        *args: as for LSTM.
        nonlinearity: "tanh" or "relu".
        **options: as for LSTM.

    Raises:
        InputError: another nonlinearity.
    """

    def __init__(self, *args: Any, nonlinearity: str = "tanh", **options: Any) -> None:
        """Draw the weights."""
        if nonlinearity not in NONLINEARITIES:
            hint = did_you_mean(nonlinearity, NONLINEARITIES)
            raise InputError(f"RNN: nonlinearity={nonlinearity!r} is neither tanh nor relu.{hint}")
        super().__init__(*args, **options)
        self.nonlinearity = nonlinearity

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """Return (h,)."""
        return (NONLINEARITIES[self.nonlinearity](x + h),)


class GRU(_OneState):
    """r, z = sigmoid(.); n = tanh(W x + b_ih + r (R h' + b_hh)); h = (1 - z) n + z h'."""

    gates = 3

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """Return (h,)."""
        xr, xz, xn = ops.chunk(x, 3, dim=-1)
        hr, hz, hn = ops.chunk(h, 3, dim=-1)
        z = ops.sigmoid(xz + hz)
        n = ops.tanh(xn + ops.sigmoid(xr + hr) * hn)
        return ((1 - z) * n + z * state[0],)


class LSTM(_Recurrent):
    """i, f, g, o = gates of W x + b_ih + R h' + b_hh; c = f c' + i g; h = o tanh(c)."""

    gates = 4
    states = 2

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """Return (h, c)."""
        i, f, g, o = ops.chunk(x + h, 4, dim=-1)
        c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Read sequences.

        Args:
            x: float [T, B, input_size], or [B, T, input_size] with batch_first.
            state: the first (h, c), each [layers * directions, B, hidden_size]; zeros by default.

        Returns:
            The last layer's h at every step, ordered as x, [..., directions * hidden_size]; and
            the last (h, c), shaped as the first.

        Raises:
            InputError: a shape does not fit, named.
        """
        y, (h, c) = self._run(x, state)
        return y, (h, c)
