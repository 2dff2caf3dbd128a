"""Lowers GridSample: coordinates, places and weights step by step, then a Gather for every tap.

Source of the formulas: ONNX, operator GridSample; the taps of mode cubic are those of Keys, "Cubic
convolution interpolation for digital image processing", 1981, with a = -0.75.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import take
from midge.convert.lower_float_values import apply, combine
from midge.convert.lower_params import fail
from midge.convert.lower_program import Stored
from midge.convert.plan_float import PadF32
from midge.convert.plan_general import Cast, Gather

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

CUBIC = -0.75
EXACT = 2**24  # float32 holds every integer below
MODES = {"bilinear": "linear", "bicubic": "cubic"}  # names before opset 20 and since


@dataclass(frozen=True, slots=True)
class Tap:
    """One of the elements along an axis that a sample is made of.

    Args:
        place: [N, 1, ...] float32, whole numbers of elements of storage.
        weight: of the same shape, None for 1.
    """

    place: Stored
    weight: Stored | None


@dataclass(frozen=True, slots=True)
class Sampler:
    """The attributes of one GridSample.

    Args:
        low: the lowering.
        mode: "nearest", "linear" or "cubic".
        padding: "zeros", "border" or "reflection".
        aligned: -1 and 1 are the centres of the outermost elements, not their outer edges.
    """

    low: "Lowering"
    mode: str
    padding: str
    aligned: bool

    def with_number(self, name: str, kind: str, x: Stored, number: float) -> Stored:
        """Combine a tensor with a number."""
        return combine(self.low, name, kind, x, np.array([number], np.float32))

    def coordinate(self, name: str, grid: Stored, index: int, size: int) -> Stored:
        """Return [N, 1, ...] coordinates in elements of an axis of this size."""
        start, shape = [0] * len(grid.shape), (*grid.shape[:-1], 1)
        start[-1] = index
        part = take(self.low, (name, f"{name}_grid"), grid, start, [1] * len(shape), shape)
        part = replace(part, shape=(shape[0], 1, *shape[1:-1]))
        x = self.with_number(f"{name}_raised", "add", part, 1)
        if self.aligned:
            half = self.with_number(f"{name}_half", "mul", x, 0.5)
            return self.with_number(f"{name}_at", "mul", half, size - 1)
        x = self.with_number(f"{name}_scaled", "mul", x, size)
        x = self.with_number(f"{name}_less", "sub", x, 1)
        return self.with_number(f"{name}_at", "mul", x, 0.5)

    def taps(self, name: str, x: Stored, size: int, pitch: int) -> list[Tap]:
        """Return what samples at these coordinates are made of along one axis.

        Args:
            name: stem of names.
            x: coordinates.
            size: of the axis.
            pitch: elements of storage between neighbours along it.
        """
        if self.mode == "nearest":
            whole = apply(self.low, f"{name}_round", "round", x)
            return [Tap(self._placed(name, whole, size, pitch), None)]
        base = apply(self.low, f"{name}_floor", "floor", x)
        t = combine(self.low, f"{name}_t", "sub", x, base)
        first, weights = (
            (-1, self._cubic(name, t)) if self.mode == "cubic" else (0, self._linear(name, t))
        )
        found = []
        for k, weight in enumerate(weights):
            tap = self.with_number(f"{name}_tap_{k}", "add", base, first + k)
            found.append(Tap(self._placed(f"{name}_{k}", tap, size, pitch), weight))
        return found

    def _placed(self, name: str, tap: Stored, size: int, pitch: int) -> Stored:
        """Return where a tap stands in the storage; around zeros lies one element of padding."""
        if self.padding == "zeros":
            tap = apply(self.low, f"{name}_clip", "clip", tap, -1, size)
            tap = self.with_number(f"{name}_moved", "add", tap, 1)
        else:
            tap = self._inside(f"{name}_back", tap, size)
            tap = apply(self.low, f"{name}_clip", "clip", tap, 0, size - 1)
        return self.with_number(f"{name}_place", "mul", tap, pitch)

    def _inside(self, name: str, x: Stored, size: int) -> Stored:
        """Bring coordinates that lie beyond the border back."""
        low, high = (0.0, size - 1.0) if self.aligned else (-0.5, size - 0.5)
        span = high - low
        if self.padding == "border" or span == 0:
            return apply(self.low, f"{name}_limit", "clip", x, 0, size - 1)
        x = self.with_number(f"{name}_from", "sub", x, low)
        x = self.with_number(f"{name}_turn", "mod", x, 2 * span)
        x = self.with_number(f"{name}_middle", "sub", x, span)
        x = apply(self.low, f"{name}_way", "abs", x)
        return combine(self.low, f"{name}_reflected", "sub", np.array([high], np.float32), x)

    def _linear(self, name: str, t: Stored) -> list[Stored]:
        return [combine(self.low, f"{name}_w0", "sub", np.array([1], np.float32), t), t]

    def _cubic(self, name: str, t: Stored) -> list[Stored]:
        far = (CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC)
        near = (CUBIC + 2, -(CUBIC + 3), 0.0, 1.0)
        distances = [self.with_number(f"{name}_d0", "add", t, 1), t]
        for number in (1, 2):
            distance = np.array([number], np.float32)
            distances.append(combine(self.low, f"{name}_d{number + 1}", "sub", distance, t))
        return [
            self._polynomial(f"{name}_w{k}", d, terms)
            for k, (d, terms) in enumerate(zip(distances, (far, near, near, far), strict=True))
        ]

    def _polynomial(self, name: str, x: Stored, terms: tuple[float, ...]) -> Stored:
        """Return ((a x + b) x + c) x + d."""
        y = self.with_number(f"{name}_0", "mul", x, terms[0])
        for k, term in enumerate(terms[1:], 1):
            y = self.with_number(f"{name}_{k}", "add", y, term) if term else y
            y = combine(self.low, f"{name}_x{k}", "mul", y, x) if k < len(terms) - 1 else y
        return y


def _grid_sample(low: "Lowering", node: ir.Node, index: int) -> Stored:
    given = str(g.attribute(node, "mode", "linear"))
    sampler = Sampler(
        low,
        MODES.get(given, given),
        str(g.attribute(node, "padding_mode", "zeros")),
        bool(g.attribute(node, "align_corners", 0)),
    )
    x, grid = (low.reals.of(v) for v in node.inputs[:2] if v is not None)
    _require_form(node, sampler, x)
    name, sizes = g.name_of(node.outputs[0]), x.shape[2:]
    order = (0, *range(2, len(x.shape)), 1)
    line, extents = _line(low, name, x, order, sampler.padding == "zeros")
    axes = []
    for a, size in enumerate(sizes):
        at = sampler.coordinate(f"{name}_{a}", grid, len(sizes) - 1 - a, size)
        axes.append(sampler.taps(f"{name}_{a}", at, size, prod(extents[a + 1 :])))
    axes[0] = [
        _of_sample(low, f"{name}_image_{k}", t, prod(extents)) for k, t in enumerate(axes[0])
    ]
    shape, total = low.shape(node.outputs[0]), None
    for k, taps in enumerate(product(*axes)):
        part = _gathered(low, f"{name}_part_{k}", line, taps, (shape, order))
        made = f"{name}_sum_{k}"
        total = part if total is None else combine(low, made, "add", total, part)
    assert total is not None
    return total


def _require_form(node: ir.Node, sampler: Sampler, x: Stored) -> None:
    """Refuse what no engine computes, and what is too large to count in float32."""
    if sampler.mode == "cubic" and len(x.shape) > 4:
        raise fail(node, "it is cubic over volumes", "use mode linear")
    if prod(n + 2 for n in x.shape) >= EXACT:
        raise fail(node, f"its input has {prod(x.shape)} elements", f"use fewer than {EXACT}")


def _line(
    low: "Lowering", name: str, x: Stored, order: tuple[int, ...], pads: bool
) -> tuple[int, list[int]]:
    """Return all pixels in a row, channels last, and the spatial extents, padded with zeros."""
    x = low.program.reorder(x, lay.permuted(x.shape, order), "channels_last")
    if pads:
        width = tuple(int(axis > 1) for axis in order)
        shape = tuple(n + 2 * (a > 1) for a, n in enumerate(x.shape))
        source = [low.program.view(x, [x.shape[a] for a in order])]
        y = low.program.new(f"{name}_padded", shape, lay.permuted(shape, order), None)
        x = low.program.op(f"{name}_padded", PadF32(width, width, 0.0), source, y)
    extents = list(x.shape[2:])
    return low.program.view(x, (1, x.shape[0] * prod(extents), x.shape[1])), extents


def _of_sample(low: "Lowering", name: str, tap: Tap, pitch: int) -> Tap:
    """Add where each sample of the batch begins."""
    N, rank = tap.place.shape[0], len(tap.place.shape)
    if N == 1:
        return tap
    first = (np.arange(N) * pitch).astype(np.float32).reshape(N, *[1] * (rank - 1))
    return Tap(combine(low, name, "add", tap.place, first), tap.weight)


def _gathered(
    low: "Lowering",
    name: str,
    line: int,
    taps: tuple[Tap, ...],
    form: tuple[tuple[int, ...], tuple[int, ...]],
) -> Stored:
    """Return the pixels of one tap of each axis, times the weights of all."""
    shape, order = form
    place, weight = taps[0].place, taps[0].weight
    for k, tap in enumerate(taps[1:]):
        place = combine(low, f"{name}_at_{k}", "add", place, tap.place)
        if weight is not None and tap.weight is not None:
            weight = combine(low, f"{name}_weight_{k}", "mul", weight, tap.weight)
    place = low.program.reorder(place, lay.identity(place.shape), "in_order")
    count, layout = prod(place.shape), lay.identity(place.shape)
    whole = low.program.new(f"{name}_index", place.shape, layout, None, dtype="int32")
    whole = low.program.op(f"{name}_index", Cast("to_s32"), [place.tensor], whole)
    storage = (1, count, shape[1])
    y = low.program.new(name, shape, lay.permuted(shape, order), None, storage=storage)
    y = low.program.op(name, Gather(), [line, low.program.view(whole, (count,))], y)
    return y if weight is None else combine(low, f"{name}_weighted", "mul", y, weight)


GRID: dict[str, Callable[["Lowering", ir.Node, int], Stored]] = {"GridSample": _grid_sample}
