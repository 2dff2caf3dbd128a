"""Ranges from data: observers see arrays one after another and say which range to quantize.

They take constant memory. MinMaxObserver gives the same answer for any order and batching of the
values, AverageObserver for any order of the arrays; MovingAverageObserver depends on the order, as
training wants it to.
"""

from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from midge.core.errors import InputError

Array = npt.NDArray[Any]
Range = tuple[float, float]


class Observer(Protocol):
    """What calibration and QAT need of an observer."""

    def update(self, x: Array) -> None:
        """Take in the values of a float array of any shape."""

    def range(self) -> Range:
        """Return (low, high) of what to represent."""


def extremes(x: Array) -> Range:
    """Return the smallest and the largest value.

    Raises:
        InputError: one is NaN or infinite.
    """
    low, high = float(x.min()), float(x.max())
    if not np.isfinite(high - low):
        raise InputError(f"a value is not finite: the range is [{low}, {high}]")
    return low, high


class MinMaxObserver:
    """The smallest and the largest value seen."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.low, self.high = np.inf, -np.inf

    def update(self, x: Array) -> None:
        """Take in an array; an empty one changes nothing.

        Raises:
            InputError: a value is NaN or infinite.
        """
        if x.size == 0:
            return
        low, high = extremes(x)
        self.low, self.high = min(self.low, low), max(self.high, high)

    def range(self) -> Range:
        """Return (low, high).

        Raises:
            InputError: nothing was seen.
        """
        if self.low > self.high:
            raise InputError("no value was observed")
        return self.low, self.high


class AverageObserver:
    """The mean over arrays of the smallest value, and of the largest.

    The sums are exact, so the order of the arrays does not matter.
    """

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._low = self._high = Fraction(0)
        self._count = 0

    def update(self, x: Array) -> None:
        """Take in one array, as a sample."""
        if x.size:
            low, high = extremes(x)
            self._low += Fraction(low)
            self._high += Fraction(high)
            self._count += 1

    def range(self) -> Range:
        """Return (low, high).

        Raises:
            InputError: nothing was seen.
        """
        if not self._count:
            raise InputError("no value was observed")
        return float(self._low / self._count), float(self._high / self._count)


class MovingAverageObserver:
    """Exponential moving averages of each array's smallest and largest value.

    low <- low + momentum (min x - low), and the same for high; the first array sets both.

    Source: Jacob et al., "Quantization and training of neural networks for efficient
    integer-arithmetic-only inference", 2018, section 3.1.
    """

    def __init__(self, momentum: float = 0.01) -> None:
        """Start with nothing seen.

        Args:
            momentum: weight of each new array, 0 to 1.
        """
        self.momentum = momentum
        self.low = self.high = np.nan

    def update(self, x: Array) -> None:
        """Take in one array, as a batch."""
        if x.size == 0:
            return
        low, high = extremes(x)
        if np.isnan(self.low):
            self.low, self.high = low, high
        self.low += self.momentum * (low - self.low)
        self.high += self.momentum * (high - self.high)

    def range(self) -> Range:
        """Return (low, high).

        Raises:
            InputError: nothing was seen.
        """
        if np.isnan(self.low):
            raise InputError("no value was observed")
        return self.low, self.high
