"""Initial values for parameters; every function overwrites its tensor in place and returns it.

Numbers are drawn in the logical order of the tensor's shape, so its memory layout changes nothing.
"""

from math import sqrt
from typing import Any

from midge.core.autograd.modes import no_grad
from midge.core.backend import Array
from midge.core.errors import InputError, did_you_mean
from midge.core.random import Generator, default_generator
from midge.core.tensor import Tensor

_GAINS = {
    "linear": 1.0,
    "conv2d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": sqrt(2),
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which weights before a nonlinearity are larger.

    Args:
        nonlinearity: "linear", "conv2d", "sigmoid", "tanh", "relu" or "leaky_relu".
        param: negative slope of leaky_relu, default 0.01.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return sqrt(2 / (1 + slope * slope))
    if nonlinearity not in _GAINS:
        known = (*_GAINS, "leaky_relu")
        raise InputError(
            f"init: nonlinearity {nonlinearity!r} is unknown.{did_you_mean(nonlinearity, known)}"
        )
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Return the inputs that one output of a weight sees, and the outputs that see one input."""
    if tensor.ndim < 2:
        raise InputError(
            f"init: fan in and fan out need two dimensions or more, got {list(tensor.shape)}."
        )
    taps = tensor.numel() // max(tensor.shape[0] * tensor.shape[1], 1)
    return tensor.shape[1] * taps, tensor.shape[0] * taps


def _fill(tensor: Tensor, values: Array | float) -> Tensor:
    with no_grad():
        tensor.copy_(Tensor(values).to(device=tensor.device) if not _is_number(values) else values)
    return tensor


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Draw from [a, b)."""
    drawn = (generator or default_generator).uniform(tensor.shape, tensor.dtype)
    return _fill(tensor, drawn * tensor.dtype.type(b - a) + tensor.dtype.type(a))


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Draw from the normal distribution."""
    drawn = (generator or default_generator).normal(tensor.shape, tensor.dtype)
    return _fill(tensor, drawn * tensor.dtype.type(std) + tensor.dtype.type(mean))


def constant_(tensor: Tensor, value: float) -> Tensor:
    """Set to one value."""
    return _fill(tensor, value)


def zeros_(tensor: Tensor) -> Tensor:
    """Set to 0."""
    return _fill(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Set to 1."""
    return _fill(tensor, 1.0)


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Draw from +-gain * sqrt(6 / (fan_in + fan_out)).

    Source: Glorot and Bengio, Understanding the difficulty of training deep networks, 2010.
    """
    bound = gain * sqrt(6 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw normal numbers of standard deviation gain * sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * sqrt(2 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise InputError(f"init: mode is {mode!r}; use 'fan_in' or 'fan_out'.")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Draw from +-gain * sqrt(3 / fan).

    Args:
        tensor: [out, in, ...].
        a: negative slope of leaky_relu; sqrt(5) gives +-1 / sqrt(fan_in).
        mode: "fan_in" keeps the size of activations, "fan_out" that of gradients.
        nonlinearity: what follows; see calculate_gain.
        generator: source of the random numbers; default the one of manual_seed().

    Source: He et al., Delving Deep into Rectifiers, 2015.
    """
    bound = sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Draw normal numbers of standard deviation gain / sqrt(fan); see kaiming_uniform_."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)
