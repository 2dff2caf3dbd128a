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

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

HALF = Fraction(1, 2)
ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "floor": floor,
    "ceil": ceil,
    "round_prefer_floor": lambda x: ceil(x - HALF),
    "round_prefer_ceil": lambda x: floor(x + HALF),
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
    sizes = enumerate(zip(x.shape, shape, strict=True))
    picked = [nearest(node, axis, n, size) for axis, (n, size) in sizes]
    times = [-(-size // n) for n, size in zip(x.shape, shape, strict=True)]
    even = [list(np.repeat(range(n), k)) for n, k in zip(x.shape, times, strict=True)]
    if picked == even:
        return repeat(low, g.label(node), x, times, whole=False)
    return _pick(low, node, x, picked, target)


def nearest(node: ir.Node, axis: int, n: int, size: int) -> list[int]:
    """Return the elements that a nearest Resize takes along one axis of n, `size` of them."""
    scales, axes = g.constant(g.operand(node, 2)), g.attribute(node, "axes", ())
    if scales is not None and scales.size:
        where = {a: float(s) for a, s in zip(axes or range(len(scales)), scales, strict=True)}
        if where.get(axis, 1.0) * n != size:
            raise fail(
                node, f"it scales an axis of {n} by {where[axis]:.6g}", "use a scale that fits"
            )
    mode = g.attribute(node, "coordinate_transformation_mode", "half_pixel")
    rounding = ROUNDINGS[g.attribute(node, "nearest_mode", "round_prefer_floor")]
    ratio = Fraction(n, size)
    spans: dict[str, Callable[[int], Fraction]] = {
        "half_pixel": lambda i: (i + HALF) * ratio - HALF,
        "half_pixel_symmetric": lambda i: (i + HALF) * ratio - HALF,
        "pytorch_half_pixel": lambda i: (i + HALF) * ratio - HALF if size > 1 else Fraction(0),
        "asymmetric": lambda i: i * ratio,
        "align_corners": lambda i: Fraction(i * (n - 1), max(size - 1, 1)),
    }
    if mode not in spans or g.attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise fail(node, f"its coordinates are {mode}", "use half_pixel or asymmetric")
    return [min(max(rounding(spans[mode](i)), 0), n - 1) for i in range(size)]


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
