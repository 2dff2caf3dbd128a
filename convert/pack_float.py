"""Lays the weights of float layers out in panels, as midge_panel_f32.h reads them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
WIDTHS = (16, 8, 4, 1)  # output channels that accumulate side by side, the widest that fits first


def widths(channels: int) -> Iterator[int]:
    """Yield the widths of the panels of this many channels."""
    while channels:
        width = next(w for w in WIDTHS if w <= channels)
        yield width
        channels -= width


def panels(weight: Array) -> Array:
    """Return [O, I] panel by panel: the weights of one input for every channel, then the next."""
    parts, first = [], 0
    for width in widths(len(weight)):
        parts.append(np.ascontiguousarray(weight[first : first + width].T).reshape(-1))
        first += width
    return np.concatenate(parts)


def conv2d_panels(weight: Array, groups: int) -> Array:
    """Return [O, kh, kw, C / groups] as panels of each group in turn."""
    rows = weight.reshape(len(weight), -1)
    return np.concatenate([panels(group) for group in np.split(rows, groups)])
