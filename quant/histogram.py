"""Histograms of activations in fixed bins, and the ranges that percentile, MSE and entropy choose.

A bin is the upper half of a float32's bits: its sign, exponent and 7 bits of mantissa. The 65,536
bins are fixed, so the counts are the same for any order and batching of the values, memory is
constant, and an outlier leaves the bins of the bulk as fine as they were (0.8 % of the value).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.core.errors import InputError
from midge.quant.observers import Range, extremes

Array = npt.NDArray[Any]

BINS = 1 << 16
BUFFER = 1 << 16  # values counted at a time: counting costs a pass over all bins
LEVELS = 255  # steps between the smallest and the largest code of 8 bits
PERCENTILE = 99.9  # of the values lie inside, the rest in equal parts on both sides
INNER_PERCENTILE = 99.0  # MSE and entropy never clip more
OUTLIER = 16  # times the PERCENTILE range: what lies beyond is no part of the distribution
NEGLIGIBLE = 2.0**-16  # of the range: becomes 0 whatever the range
CANDIDATES = 40  # ends of a range tried on each side
SWEEPS = 2  # over both sides in turn


class Histogram:
    """Counts of float32 values by sign, exponent and 7 bits of mantissa."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._counts: Array = np.zeros(BINS, np.int64)
        self._waiting: list[Array] = []
        self._pending = 0
        self.low, self.high = np.inf, -np.inf

    def update(self, x: Array) -> None:
        """Take in an array.

        Raises:
            InputError: a value is NaN or infinite.
        """
        if x.size == 0:
            return
        low, high = extremes(x)
        self.low, self.high = min(self.low, low), max(self.high, high)
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(-1)
        self._waiting.append((bits >> np.uint32(16)).astype(np.uint16))
        self._pending += x.size
        if self._pending >= BUFFER:
            self._count()

    def _count(self) -> None:
        if self._waiting:
            self._counts += np.bincount(np.concatenate(self._waiting), minlength=BINS)
            self._waiting, self._pending = [], 0

    def bins(self) -> tuple[Array, Array, Array]:
        """Return the occupied bins from the lowest value up: lower ends, upper ends, counts.

        Raises:
            InputError: nothing was seen.
        """
        if self.low > self.high:
            raise InputError("no value was observed")
        self._count()
        keys = np.flatnonzero(self._counts).astype(np.uint32)
        near = (keys << np.uint32(16)).view(np.float32).astype(np.float64)
        far = ((keys << np.uint32(16)) | np.uint32(0xFFFF)).view(np.float32).astype(np.float64)
        order = np.argsort(near + far, kind="stable")
        ends = np.sort(np.stack([near, far]), axis=0)[:, order].clip(self.low, self.high)
        return ends[0], ends[1], self._counts[keys][order]


class HistogramObserver(Histogram):
    """A histogram whose range is chosen by a method.

    Args:
        method: from occupied bins (lower ends, upper ends, counts) to a range.
    """

    def __init__(self, method: Callable[[Array, Array, Array], Range]) -> None:
        """Start with nothing seen."""
        super().__init__()
        self._method = method

    def range(self) -> Range:
        """Return (low, high). Zeros do not count: every range holds 0 exactly.

        Raises:
            InputError: nothing was seen.
        """
        lower, upper, counts = self.bins()
        some = np.maximum(np.abs(lower), np.abs(upper)) > np.finfo(np.float32).tiny
        if not some.any():
            return 0.0, 0.0
        low, high = self._method(lower[some], upper[some], counts[some])
        return min(low, 0.0) + 0.0, max(high, 0.0)  # no -0.0


def percentile_range(
    lower: Array, upper: Array, counts: Array, percentile: float = PERCENTILE
) -> Range:
    """Return the range that holds `percentile` % of the values, as many out below as above.

    Args:
        lower: ends of the bins, ascending.
        upper: ends of the bins, ascending.
        counts: values per bin.
        percentile: 0 to 100.
    """
    total = np.cumsum(counts)
    tail = (100 - percentile) / 200 * total[-1]

    def quantile(rank: float) -> float:
        index = min(int(np.searchsorted(total, rank)), len(counts) - 1)
        part = (rank - (total[index] - counts[index])) / counts[index]
        return float(lower[index] + part * (upper[index] - lower[index]))

    return quantile(tail), quantile(total[-1] - tail)


def mse_range(lower: Array, upper: Array, counts: Array) -> Range:
    """Return the range whose 8-bit codes give the least squared error.

    A value inside errs by s^2 / 12 on average (by its square if it is below s / 2 and becomes 0),
    one outside by its distance to the range.

    Source: Nagel et al., "A white paper on neural network quantization", 2021, section 3.1.
    """
    lower, upper, counts = _without_outliers(lower, upper, counts)
    values, weights = (lower + upper) / 2, counts / counts.sum()
    squares = values**2

    def error(low: float, high: float) -> float:
        step = (high - low) / LEVELS
        inside = np.minimum(np.where(np.abs(values) < step / 2, squares, np.inf), step**2 / 12)
        beyond = values - np.clip(values, low, high)
        return float((weights * np.where(beyond == 0, inside, beyond**2)).sum())

    return _search(lower, upper, counts, error)


def entropy_range(lower: Array, upper: Array, counts: Array) -> Range:
    """Return the range whose 8-bit codes keep the distribution best (least KL divergence).

    P holds the values inside, with those outside added to the end bins; Q spreads the values inside
    that share a code evenly over the occupied bins of that code. The divergence is
    sum P log(P / Q).

    Source: Migacz, "8-bit inference with TensorRT", GTC 2017.
    """
    lower, upper, counts = _without_outliers(lower, upper, counts)
    values = (lower + upper) / 2
    widths = np.maximum(upper - lower, NEGLIGIBLE**2 * np.abs(values).max())

    def divergence(low: float, high: float) -> float:
        first = int(np.searchsorted(values, low, "left"))
        last = int(np.searchsorted(values, high, "right"))
        if first >= last:
            return np.inf
        inside, share = counts[first:last].astype(np.float64), widths[first:last]
        P = inside.copy()
        P[0] += counts[:first].sum()
        P[-1] += counts[last:].sum()
        codes = np.rint((values[first:last] - low) / ((high - low) / LEVELS))
        first_of_code = np.ones(len(codes), bool)
        np.not_equal(codes[1:], codes[:-1], out=first_of_code[1:])
        starts = np.flatnonzero(first_of_code)
        density = np.add.reduceat(inside, starts) / np.add.reduceat(share, starts)
        Q = density[np.cumsum(first_of_code) - 1] * share
        P, Q = P / P.sum(), Q / Q.sum()
        return float((P * np.log(P / Q)).sum())

    return _search(lower, upper, counts, divergence)


def _without_outliers(lower: Array, upper: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Drop bins far beyond the bulk, which no 8 bits could hold with it, and those next to 0."""
    low, high = percentile_range(lower, upper, counts)
    reach = OUTLIER * max(high, -low)
    size = np.maximum(np.abs(lower), np.abs(upper))
    kept = (size <= reach) & (size >= NEGLIGIBLE * reach / OUTLIER)
    return lower[kept], upper[kept], counts[kept]


def _search(
    lower: Array, upper: Array, counts: Array, loss: Callable[[float, float], float]
) -> Range:
    """Return the range with the least loss, each end between an inner percentile and the extreme.

    Both ends are moved in turn, starting once from the widest and once from the narrowest range, as
    long tails on both sides hide each other.
    """
    widest = min(float(lower[0]), 0.0), max(float(upper[-1]), 0.0)
    inner = percentile_range(lower, upper, counts, INNER_PERCENTILE)
    narrowest = min(inner[0], 0.0), max(inner[1], 0.0)
    lows = [-v for v in _ends(-narrowest[0], -widest[0])]
    highs = _ends(narrowest[1], widest[1])
    loss = cache(loss)  # both searches come to the same ranges in the end
    found = []
    for low, high in (widest, narrowest):
        for _ in range(SWEEPS):
            low = min((loss(v, high), v) for v in lows)[1]
            high = min((loss(low, v), v) for v in highs)[1]
        found.append((low, high))
    return min(found, key=lambda r: loss(*r))


def _ends(near: float, far: float) -> list[float]:
    """Return candidates from `near` to `far`, both 0 or more, evenly over their logarithms."""
    if far <= 0:
        return [0.0]
    return [float(v) for v in np.geomspace(max(near, far / OUTLIER**2), far, CANDIDATES)]
