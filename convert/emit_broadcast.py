"""How an elementwise record walks over operands whose axes of size 1 are repeated."""

from collections.abc import Sequence

from midge.convert.emit_moves import strides
from midge.convert.emit_step import Step, Words

BINARY_AXES = 4  # of a MIDGE_BINARY record


def broadcast_words(step: Step, b: Sequence[int], at: int, kind: str) -> Words:
    """Return the words of a MIDGE_BINARY record.

    Args:
        step: its first input is the first operand.
        b: shape of the second operand.
        at: offset of the second operand.
        kind: C expression of MIDGE_BINARY_KIND.

    Raises:
        UnsupportedError: it takes more axes than the record has.
    """
    axes = broadcast_axes(step.y.shape, step.x[0].shape, b)
    if len(axes) > BINARY_AXES:
        raise step.fail(f"needs {len(axes)} axes; the C kernel has {BINARY_AXES}")
    axes = [(1, 0, 0)] * (BINARY_AXES - len(axes)) + axes
    words: Words = {
        "MIDGE_BINARY_B": at,
        "MIDGE_BINARY_KIND": kind,
        "MIDGE_BINARY_STEP": step.pair("steps", *axes[-1][1:]),
    }
    words |= {f"MIDGE_BINARY_SHAPE + {i}": size for i, (size, _, _) in enumerate(axes)}
    words |= {f"MIDGE_BINARY_A_PITCH + {i}": pitch for i, (_, pitch, _) in enumerate(axes[:-1])}
    words |= {f"MIDGE_BINARY_B_PITCH + {i}": pitch for i, (_, _, pitch) in enumerate(axes[:-1])}
    return words


def broadcast_axes(
    y: Sequence[int], a: Sequence[int], b: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Return (size, pitch in a, pitch in b) of as few axes as describe a broadcast."""
    pitches = [
        [0 if n == 1 else pitch for n, pitch in zip(shape, strides(shape, 1), strict=True)]
        for shape in (a, b)
    ]
    merged: list[tuple[int, int, int]] = []
    for size, *steps in zip(y, *pitches, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1:] == (steps[0] * size, steps[1] * size):
            merged[-1] = (merged[-1][0] * size, steps[0], steps[1])
        else:
            merged.append((size, steps[0], steps[1]))
    return merged or [(1, 0, 0)]
