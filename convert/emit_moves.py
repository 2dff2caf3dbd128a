"""Records of the steps that move elements and change none: Pad, Concat, Transpose, Slice."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.emit_step import Record, Step, Words, record, word
from midge.convert.plan import ITEM_BYTES, Concat, Pad, Slice, Transpose
from midge.convert.strips import interleaves

Array = npt.NDArray[Any]

COPY_AXES = 6  # of midge_copy
MAX_COPIES = 1024  # records of one step
PAD_AXES = 5  # of midge_pad


def strides(shape: Sequence[int], item: int) -> list[int]:
    """Return the bytes from one element to the next along each axis, row-major."""
    result = [item] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        result[i] = result[i + 1] * shape[i + 1]
    return result


def merge_axes(shape: Sequence[int], pitch: Sequence[int]) -> list[tuple[int, int]]:
    """Return (size, pitch) of as few axes as describe the same elements in the same order."""
    merged: list[tuple[int, int]] = []
    for size, step in zip(shape, pitch, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == step * size:
            merged[-1] = (merged[-1][0] * size, step)
        else:
            merged.append((size, step))
    return merged


def pad_records(step: Step) -> list[Record]:
    """Return the records of a Pad."""
    p = step.op.params
    assert isinstance(p, Pad)
    item = ITEM_BYTES[step.y.dtype]
    if item != 1:
        raise step.fail(f"{step.y.dtype} elements cannot be padded")
    words = {**pad_words(step, p.before), "MIDGE_PAD_VALUE": p.value & 0xFF}
    return [record(step, "midge_pad", words)]


def pad_words(step: Step, before: Sequence[int]) -> Words:
    """Return where the elements of a padded tensor go."""
    item = ITEM_BYTES[step.y.dtype]
    pitch = strides(step.y.shape, item)
    axes = merge_axes(step.x[0].shape, pitch)
    if not axes or axes[-1][1] != item:
        axes.append((1, item))
    axes = _fill_axes(step, axes, PAD_AXES)
    axes[-1] = (axes[-1][0] * item, 1)  # a run is counted in bytes
    words: Words = {
        "MIDGE_PAD_BYTES": step.y.bytes,
        "MIDGE_PAD_START": sum(b * s for b, s in zip(before, pitch, strict=True)),
    }
    words |= {f"MIDGE_PAD_SHAPE + {i}": size for i, (size, _) in enumerate(axes)}
    words |= {f"MIDGE_PAD_PITCH + {i}": stride for i, (_, stride) in enumerate(axes[:-1])}
    return words


def _fill_axes(step: Step, axes: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Return exactly `count` axes, the added ones in front and of size 1."""
    if len(axes) > count:
        raise step.fail(f"needs {len(axes)} axes; the C kernel has {count}")
    return [(1, 0)] * (count - len(axes)) + axes


def concat_records(step: Step) -> list[Record]:
    """Return the records of a Concat."""
    p = step.op.params
    assert isinstance(p, Concat)
    item = ITEM_BYTES[step.y.dtype]
    pitch = int(np.prod(step.y.shape[p.axis :], dtype=np.int64)) * item
    rows = int(np.prod(step.y.shape[: p.axis], dtype=np.int64))
    result, start = [], step.y_at
    for x, at in zip(step.x, step.x_at, strict=True):
        words: Words = {
            "MIDGE_OP_X": at,
            "MIDGE_OP_Y": start,
            "MIDGE_CONCAT_ROWS": rows,
            "MIDGE_CONCAT_BYTES": x.bytes // rows,
            "MIDGE_CONCAT_PITCH": pitch,
        }
        result.append(record(step, "midge_concat", words))
        start += x.bytes // rows
    return result


def transpose_records(step: Step) -> list[Record]:
    """Return the records of a Transpose."""
    p = step.op.params
    assert isinstance(p, Transpose)
    if interleaves(p, step.x[0]):
        _, H, W, C = step.y.shape
        words: Words = {
            "MIDGE_INTERLEAVE_WIDTH": W,
            "MIDGE_INTERLEAVE_CHANNELS": C,
            "MIDGE_INTERLEAVE_PLANE": H * W,
        }
        return [record(step, "midge_interleave", words, H)]
    pitch = strides(step.x[0].shape, ITEM_BYTES[step.y.dtype])
    return _copies(step, 0, [pitch[axis] for axis in p.perm])


def slice_records(step: Step) -> list[Record]:
    """Return the records of a Slice."""
    p = step.op.params
    assert isinstance(p, Slice)
    pitch = strides(step.x[0].shape, ITEM_BYTES[step.y.dtype])
    start = sum(first * stride for first, stride in zip(p.start, pitch, strict=True))
    return _copies(step, start, [k * stride for k, stride in zip(p.step, pitch, strict=True)])


def _copies(step: Step, start: int, pitch: Sequence[int]) -> list[Record]:
    """Return the records that gather Y's elements from X, beginning `start` bytes into it.

    One does where the kernel has the axes; else there is one for each place along the outer axes.
    """
    item = ITEM_BYTES[step.y.dtype]
    axes = merge_axes(step.y.shape, pitch) or [(1, item)]
    outer, axes = axes[:-COPY_AXES], axes[-COPY_AXES:]
    sizes = [size for size, _ in outer]
    if int(np.prod(sizes, dtype=np.int64)) > MAX_COPIES:
        raise step.fail(f"needs {len(outer) + len(axes)} axes; the C kernel has {COPY_AXES}")
    axes = _fill_axes(step, axes, COPY_AXES)
    block = int(np.prod([size for size, _ in axes], dtype=np.int64)) * item
    words: Words = {"MIDGE_COPY_ITEM": item}
    words |= {f"MIDGE_COPY_SHAPE + {i}": size for i, (size, _) in enumerate(axes)}
    words |= {f"MIDGE_COPY_PITCH + {i}": word(stride) for i, (_, stride) in enumerate(axes)}
    found = []
    for number, place in enumerate(np.ndindex(*sizes)):
        offset = sum(i * stride for i, (_, stride) in zip(place, outer, strict=True))
        places = {
            "MIDGE_OP_X": step.x_at[0] + start + offset,
            "MIDGE_OP_Y": step.y_at + number * block,
        }
        found.append(record(step, "midge_copy", {**words, **places}))
    return found


def constant_record(step: Step, value: Array) -> Record:
    """Return the record that copies an array into the arena."""
    at = step.data.append(f"{step.op.name}: constant", value)
    return record(
        step, "midge_constant", {"MIDGE_OP_DATA": at, "MIDGE_CONSTANT_BYTES": value.nbytes}
    )
