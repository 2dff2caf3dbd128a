"""Lays constants out as the C kernels read them: one array of 32-bit words per model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.plan import Conv2d, FullyConnected

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
