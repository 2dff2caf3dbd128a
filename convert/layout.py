"""Where the elements of a tensor lie, so that Transpose and Reshape need not move any.

An element's position in the ONNX file's row-major order is a number with one digit per axis. The
storage writes the same digits, possibly cut finer, in another order. A Reshape changes neither; a
Transpose only renames the digits. Bytes move where an operator asks for an order that they are not
in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

Shape = tuple[int, ...]
NHWC = (0, 2, 3, 1)  # storage order of an NCHW tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """A storage order.

    Args:
        factors: sizes of the digits of the row-major index in the ONNX file, the largest first.
        order: storage axis j is digit order[j].
    """

    factors: Shape
    order: tuple[int, ...]

    @property
    def storage_shape(self) -> Shape:
        """Shape of the storage, one axis a digit."""
        return tuple(self.factors[k] for k in self.order)

    def canonical(self) -> "Layout":
        """Return the same order with as few digits as describe it: equal orders compare equal."""
        runs: list[list[int]] = []
        following = _successors(self.factors)
        for k in (k for k in self.order if self.factors[k] != 1):
            if runs and following[runs[-1][-1]] == k:
                runs[-1].append(k)
            else:
                runs.append([k])
        ranked = sorted(runs)
        sizes = tuple(prod(self.factors[k] for k in run) for run in ranked)
        return Layout(sizes, tuple(ranked.index(run) for run in runs))

    def is_identity(self) -> bool:
        """Tell whether the storage is in the file's row-major order."""
        return len(self.canonical().factors) <= 1

    def refined(self, strides: Iterable[int]) -> "Layout | None":
        """Return the same order with a cut between digits at each of these strides.

        Args:
            strides: of the row-major index, in elements.

        Returns:
            None where a cut would split a digit unevenly.
        """
        base, pieces = self.canonical(), []
        top = prod(base.factors)
        for factor in base.factors:
            bottom = top // factor
            cuts = [top, *sorted({s for s in strides if bottom < s < top}, reverse=True), bottom]
            if any(high % low for high, low in pairwise(cuts)):
                return None
            pieces.append([high // low for high, low in pairwise(cuts)])
            top = bottom
        first = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
        order = [first[k] + i for k in base.order for i in range(len(pieces[k]))]
        return Layout(tuple(f for piece in pieces for f in piece), tuple(order))

    def axes(self, shape: Sequence[int]) -> "tuple[Layout, list[list[int]]] | None":
        """Return the order cut at the axes of a shape, and each axis's digits (none for size 1)."""
        fine = self.refined(strides(shape))
        if fine is None:
            return None
        groups, k = [], 0
        for size in shape:
            group: list[int] = []
            while prod(fine.factors[i] for i in group) < size:
                group.append(k)
                k += 1
            groups.append(group)
        return fine, groups

    def transposed(self, shape: Sequence[int], perm: Sequence[int]) -> "Layout | None":
        """Return the layout of the same bytes seen as ONNX Transpose(perm) of a tensor."""
        cut = self.axes(shape)
        if cut is None:
            return None
        fine, groups = cut
        row_major = [k for axis in perm for k in groups[axis]]
        factors = tuple(fine.factors[k] for k in row_major)
        return Layout(factors, tuple(row_major.index(k) for k in fine.order))


def identity(shape: Sequence[int]) -> Layout:
    """Return the layout of a tensor that is stored as the file has it."""
    return Layout(tuple(shape), tuple(range(len(shape))))


def permuted(shape: Sequence[int], order: Sequence[int]) -> Layout:
    """Return the layout whose storage axis j is file axis order[j]."""
    return Layout(tuple(shape), tuple(order))


def channels_last(shape: Sequence[int]) -> Layout:
    """Return the NHWC layout of an NCHW tensor; [N, C, W] counts as [N, C, 1, W]."""
    return permuted(image_shape(shape), NHWC)


def spelt(shape: Sequence[int], layout: Layout) -> Layout:
    """Return the same order with one digit per axis of the file's shape where that is possible."""
    if layout.is_identity():
        return identity(shape)
    if 3 <= len(shape) <= 4 and channels_last(shape).canonical() == layout.canonical():
        return channels_last(shape)
    return layout.canonical()


def image_shape(shape: Sequence[int]) -> Shape:
    """Return the [N, C, H, W] of an image tensor; a 1-D convolution's has H = 1."""
    return (*shape[:2], *[1] * (4 - len(shape)), *shape[2:])


def strides(shape: Sequence[int]) -> set[int]:
    """Return the strides, in elements, at which the axes of a row-major tensor begin."""
    return {prod(shape[i:]) for i in range(len(shape) + 1)}


def permutation(source: Layout, target: Layout) -> tuple[Shape, tuple[int, ...]] | None:
    """Return (shape, perm) such that source bytes, reshaped and transposed, are target bytes.

    Returns:
        None where the two orders have no common cut into digits.
    """
    a = source.refined(strides(target.canonical().factors))
    b = target.refined(strides(source.canonical().factors))
    if a is None or b is None:
        return None
    return a.storage_shape, tuple(a.order.index(k) for k in b.order)


def _successors(factors: Shape) -> dict[int, int]:
    """Map each digit that is not of size 1 to the next such digit."""
    real = [k for k, f in enumerate(factors) if f != 1]
    return {**dict.fromkeys(real, -1), **dict(pairwise(real))}
