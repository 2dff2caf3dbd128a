"""Unary functions in float64, from which training and the converter make the same tables."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives 0, as it should
        return 1 / (1 + np.exp(-x))


TRAINABLE: dict[str, Callable[[Array], Array]] = {"sigmoid": sigmoid, "tanh": np.tanh}
