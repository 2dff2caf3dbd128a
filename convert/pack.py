"""Lays constants out as the C kernels read them: one array of 32-bit words per model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.plan import Conv2d, FullyConnected
from midge.convert.target import PANEL, QUAD

Array = npt.NDArray[Any]


@dataclass(slots=True)
class ConstData:
    """The const data of a model, grown block by block.

    Attributes:
        blocks: (title, uint32 words) in order.
        words: number of words so far.
    """

    blocks: list[tuple[str, Array]] = field(default_factory=list)
    words: int = 0
    _known: dict[bytes, int] = field(default_factory=dict)

    def append(self, title: str, *parts: Array) -> int:
        """Append arrays one after another, each padded to whole words; return the word offset.

        A block with the same bytes as an earlier one is stored once.

        Args:
            title: shown as a comment in the generated C.
            parts: arrays of any dtype; int8 codes go four to a word, the first lowest.
        """
        raw = b"".join(_whole_words(part) for part in parts)
        if raw in self._known:
            return self._known[raw]
        offset = self._known[raw] = self.words
        block = np.frombuffer(raw, "<u4")
        self.blocks.append((title, block))
        self.words += len(block)
        return offset


def _whole_words(part: Array) -> bytes:
    """Return the little-endian bytes of an array, padded with zeros to a multiple of 4."""
    raw = np.ascontiguousarray(part).astype(part.dtype.newbyteorder("<")).tobytes()
    return raw + b"\0" * (-len(raw) % 4)


def per_channel(m: Array, channels: int) -> Array:
    """Return float32 multipliers [channels] from [channels] or [1]."""
    return np.broadcast_to(np.asarray(m, np.float32).reshape(-1), (channels,))


def conv2d(params: Conv2d) -> tuple[Array, Array, Array]:
    """Return (bias [O], multipliers [O], weights [O, kh, kw, C / groups])."""
    channels = params.weight.shape[0]
    m = per_channel(params.requantization.m, channels)
    return params.bias.astype(np.int32), m, params.weight.astype(np.int8)


def depthwise_conv2d(params: Conv2d) -> tuple[Array, Array, Array]:
    """Return (bias [O], multipliers [O], weights [kh, kw, O]): neighbours in memory, in a pixel."""
    bias, m, weight = conv2d(params)
    return bias, m, np.moveaxis(weight[..., 0], 0, -1)


def fully_connected(params: FullyConnected | Conv2d) -> tuple[Array, Array, Array]:
    """Return (bias [O], multipliers [O], weights [O, I]) of a matrix product or 1 x 1 Conv."""
    weight = params.weight.reshape(params.weight.shape[0], -1)
    m = per_channel(params.requantization.m, len(weight))
    return params.bias.astype(np.int32), m, weight.astype(np.int8)


def conv2d_panels(params: Conv2d) -> tuple[Array, Array, Array]:
    """Return (bias [O], multipliers [O], weights [bytes]) of midge_conv2d_c4n16_s8."""
    bias, m, weight = conv2d(params)
    return _folded(bias, params, params.x_zero_point + 128), m, panels(weight)


def fully_connected_panels(params: FullyConnected) -> tuple[Array, Array, Array]:
    """Return (bias [O], multipliers [O], weights [bytes]) of midge_fully_connected_c4n16_s8."""
    bias, m, weight = fully_connected(params)
    return _folded(bias, params, params.x_zero_point), m, panels(weight)


def _folded(bias: Array, params: Conv2d | FullyConnected, offset: int) -> Array:
    """Return the bias less `offset` times each channel's sum of weights; it may wrap."""
    weight = params.centred
    sums = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.int64)
    folded: Array = bias.astype(np.int64) - offset * sums
    return folded.astype(np.int32)


def panels(weight: Array) -> Array:
    """Return int8 weights [O, ...] as panels of PANEL channels, each [K / 4, channels, 4], flat.

    K is rounded up to a multiple of 4 with zeros.
    """
    flat = weight.reshape(len(weight), -1)
    flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % QUAD)))
    parts = (flat[first : first + PANEL] for first in range(0, len(flat), PANEL))
    return np.concatenate(
        [part.reshape(len(part), -1, QUAD).swapaxes(0, 1).reshape(-1) for part in parts]
    )
