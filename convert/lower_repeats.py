"""Lowers moves that repeat or pick elements: Expand, Tile, Resize, Gather, DepthToSpace."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_axes import expand, pick, repeat, take, transposed
from midge.convert.lower_params import fail
from midge.convert.lower_program import Stored
from midge.convert.lower_target import Destination
from midge.convert.resize_axes import COORDINATES, Axis, axes_of, in_float32, mode_of

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

HALF = Fraction(1, 2)
ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "floor": floor,
    "ceil": ceil,
    "round_prefer_floor": lambda x: ceil(x - HALF),
    "round_prefer_ceil": lambda x: floor(x + HALF),
}
# Where element i of m lies among n, where the scale is m / n.
EXACT: dict[str, Callable[[int, int, int], Fraction]] = {
    **dict.fromkeys(
        ("half_pixel", "half_pixel_symmetric"), lambda i, n, m: (i + HALF) * Fraction(n, m) - HALF
    ),
    "pytorch_half_pixel": lambda i, n, m: (
        (i + HALF) * Fraction(n, m) - HALF if m > 1 else Fraction(0)
    ),
    "asymmetric": lambda i, n, m: Fraction(i * n, m),
    "align_corners": lambda i, n, m: Fraction(i * (n - 1), max(m - 1, 1)),
}


def _expand(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    return expand(low, g.label(node), sources[0], low.shape(node.outputs[0]))


def _tile(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    times = g.constant(node.inputs[1])
    if times is None:
        raise fail(node, "its repeats are computed", "make them constants")
    return repeat(low, g.label(node), sources[0], [int(n) for n in times], whole=True)


def _resize(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    """Lower a nearest Resize that repeats elements evenly, or takes every n-th."""
    x, shape = sources[0], low.shape(node.outputs[0])
    if g.attribute(node, "mode", "nearest") != "nearest":
        raise fail(node, f"its mode is {g.attribute(node, 'mode')}", "resize with mode nearest")
    picked = [nearest(node, axis) for axis in axes_of(node, x.shape, shape)]
    times = [-(-size // n) for n, size in zip(x.shape, shape, strict=True)]
    even = [list(np.repeat(range(n), k)) for n, k in zip(x.shape, times, strict=True)]
    if picked == even:
        return repeat(low, g.label(node), x, times, whole=False)
    return _pick(low, node, x, picked, target)


def nearest(node: ir.Node, axis: Axis) -> list[int]:
    """Return the elements that a nearest Resize takes along one axis."""
    mode, n, size = mode_of(node), axis.n, axis.m
    rounding = ROUNDINGS[g.attribute(node, "nearest_mode", "round_prefer_floor")]
    if mode in EXACT and axis.scale in (size / n, np.float32(size / n)):
        places = [EXACT[mode](i, n, size) for i in range(size)]
    else:
        narrow = in_float32(axis)
        places = [Fraction(float(COORDINATES[mode](np.float32(i), narrow))) for i in range(size)]
    if mode == "tf_crop_and_resize" and not all(0 <= at <= n - 1 for at in places):
        raise fail(node, "it takes elements from outside of its input", "resize with mode linear")
    return [min(max(rounding(at), 0), n - 1) for at in places]


def _gather(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    """Lower a Gather of constant indices with one step from each to the next."""
    x, indices = sources[0], g.constant(node.inputs[1])
    if indices is None:
        raise fail(node, "its indices are computed", "make them constants")
    axis = g.attribute(node, "axis", 0) % len(x.shape)
    picked = [list(range(n)) for n in x.shape]
    picked[axis] = [int(i) % x.shape[axis] for i in indices.reshape(-1)]
    y = _pick(low, node, x, picked, target)
    return replace(y, shape=low.shape(node.outputs[0]))


def _pick(
    low: "Lowering", node: ir.Node, x: Stored, picked: list[list[int]], target: Destination
) -> Stored:
    """Take these elements along each axis."""
    names, start, step = (g.label(node), target.name), [], []
    for axis, places in enumerate(picked):
        steps = set(np.diff(places).tolist()) or {1}
        if len(steps) > 1:
            x = pick(low, names, x, axis, places)
        start.append(places[0] if len(steps) == 1 else 0)
        step.append(steps.pop() if len(steps) == 1 else 1)
    return take(low, names, x, start, step, tuple(len(axis) for axis in picked))


def _depth_to_space(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    x, b = sources[0], int(g.attribute(node, "blocksize"))
    N, C, H, W = x.shape
    deep = C // (b * b)
    if g.attribute(node, "mode", "DCR") == "DCR":
        x = transposed(low, replace(x, shape=(N, b, b, deep, H, W)), (0, 3, 4, 1, 5, 2))
    else:
        x = transposed(low, replace(x, shape=(N, deep, b, b, H, W)), (0, 1, 4, 2, 5, 3))
    return replace(x, shape=low.shape(node.outputs[0]))


def _space_to_depth(
    low: "Lowering", node: ir.Node, index: int, sources: Sequence[Stored], target: Destination
) -> Stored:
    x, b = sources[0], int(g.attribute(node, "blocksize"))
    N, C, H, W = x.shape
    x = transposed(low, replace(x, shape=(N, C, H // b, b, W // b, b)), (0, 3, 5, 1, 2, 4))
    return replace(x, shape=low.shape(node.outputs[0]))


REPEATS: dict[str, Callable[..., Stored]] = {  # of codes and of float elements
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Gather": _gather,
    "Resize": _resize,
    "SpaceToDepth": _space_to_depth,
    "Tile": _tile,
}
