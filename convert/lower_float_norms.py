"""Lowers normalizations of real values as chains of reductions and elementwise steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_float_elementwise import operand
from midge.convert.lower_float_values import apply, combine, reduce
from midge.convert.lower_params import fail
from midge.convert.lower_program import Stored
from midge.convert.lower_reductions import reduced_axes

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array
MVN_EPSILON = 1e-9  # of MeanVarianceNormalization, added to the deviation


@dataclass(frozen=True, slots=True)
class Moments:
    """What normalizes a tensor.

    Args:
        mean: over some axes, which are kept with size 1.
        centred: x - mean.
        deviation: root of the mean square of that.
    """

    mean: Stored
    centred: Stored
    deviation: Stored


def _source(low: "Lowering", node: ir.Node) -> Stored:
    assert node.inputs[0] is not None
    return low.reals.of(node.inputs[0])


def _moments(
    low: "Lowering", name: str, x: Stored, axes: Sequence[int], epsilon: float | None
) -> Moments:
    """Return the moments over these axes; without an epsilon it is not added to the variance."""
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    mean = reduce(low, f"{name}_mean", "mean", x, axes, shape)
    centred = combine(low, f"{name}_centred", "sub", x, mean)
    squares = apply(low, f"{name}_squares", "square", centred)
    variance = reduce(low, f"{name}_variance", "mean", squares, axes, shape)
    if epsilon is not None:
        variance = combine(low, f"{name}_eps", "add", variance, np.array([epsilon], np.float32))
    return Moments(mean, centred, apply(low, f"{name}_deviation", "sqrt", variance))


def normalized(
    low: "Lowering", name: str, x: Stored, axes: Sequence[int], epsilon: float
) -> Stored:
    """Return (x - mean) / sqrt(variance + epsilon) over some axes."""
    moments = _moments(low, name, x, axes, epsilon)
    return combine(low, f"{name}_normal", "div", moments.centred, moments.deviation)


def _finished(
    low: "Lowering", name: str, y: Stored, scale: Stored | Array, bias: Stored | Array | None
) -> Stored:
    """Return y * scale + bias."""
    if bias is None:
        return combine(low, name, "mul", y, scale)
    return combine(low, name, "add", combine(low, f"{name}_scaled", "mul", y, scale), bias)


def _layer_norm(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Normalize over the last axes; the mean and 1 / deviation are further outputs."""
    name = g.name_of(node.outputs[0])
    if node not in low.reals.moments:
        x = _source(low, node)
        axes = list(range(g.attribute(node, "axis", -1) % len(x.shape), len(x.shape)))
        epsilon = g.attribute(node, "epsilon", 1e-5)
        low.reals.moments[node] = _moments(low, name, x, axes, epsilon)
    moments = low.reals.moments[node]
    if index == 1:
        return moments.mean
    if index == 2:
        return apply(low, g.name_of(node.outputs[2]), "reciprocal", moments.deviation)
    y = combine(low, f"{name}_normal", "div", moments.centred, moments.deviation)
    bias = operand(low, node, 2) if g.operand(node, 2) is not None else None
    return _finished(low, name, y, operand(low, node, 1), bias)


def _by_channel(node: ir.Node, rank: int) -> list[Array]:
    """Return scale and bias, one value a channel, beside the other axes."""
    rows = [g.constant(v) for v in node.inputs[1:3]]
    if any(row is None for row in rows):
        raise fail(node, "its scale or bias is computed", "make them initializers")
    shape = (-1,) + (1,) * (rank - 2)
    return [np.asarray(row, np.float32).reshape(shape) for row in rows]


def _instance_norm(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Normalize each channel of each sample."""
    x, name = _source(low, node), g.name_of(node.outputs[0])
    axes = list(range(2, len(x.shape)))
    y = normalized(low, name, x, axes, g.attribute(node, "epsilon", 1e-5))
    return _finished(low, name, y, *_by_channel(node, len(x.shape)))


def _group_norm(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Normalize each group of channels."""
    x, name = _source(low, node), g.name_of(node.outputs[0])
    shape, groups = x.shape, int(g.attribute(node, "num_groups"))
    x = low.program.reorder(x, lay.identity(shape), "in_order")
    apart = replace(x, shape=(shape[0], groups, shape[1] // groups, *shape[2:]))
    axes = list(range(2, len(apart.shape)))
    y = normalized(low, name, apart, axes, g.attribute(node, "epsilon", 1e-5))
    scale, bias = _by_channel(node, len(shape))
    return _finished(low, name, replace(y, shape=shape), scale, bias)


def _mean_variance_norm(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Return (x - mean) / (deviation + 1e-9)."""
    x, name = _source(low, node), g.name_of(node.outputs[0])
    axes = [a % len(x.shape) for a in g.attribute(node, "axes", (0, 2, 3))]
    moments = _moments(low, name, x, sorted(axes), None)
    epsilon = np.array([MVN_EPSILON], np.float32)
    raised = combine(low, f"{name}_eps", "add", moments.deviation, epsilon)
    return combine(low, name, "div", moments.centred, raised)


def _lp_norm(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Divide by the sum of magnitudes, or by the root of the sum of squares; 0 / 0 is 0."""
    x, name = _source(low, node), g.name_of(node.outputs[0])
    axis, squares = g.attribute(node, "axis", -1) % len(x.shape), g.attribute(node, "p", 2) == 2
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    sizes = apply(low, f"{name}_sizes", "square" if squares else "abs", x)
    norm = reduce(low, f"{name}_sum", "sum", sizes, [axis], shape)
    norm = apply(low, f"{name}_root", "sqrt", norm) if squares else norm
    smallest = np.array([np.finfo(np.float32).tiny], np.float32)
    return combine(low, name, "div", x, combine(low, f"{name}_norm", "max", norm, smallest))


def _log_sum_exp(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Return m + log(sum(exp(x - m))), m the largest."""
    x, name = _source(low, node), g.name_of(node.outputs[0])
    axes = reduced_axes(node, x)
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    largest = reduce(low, f"{name}_max", "max", x, axes, kept)
    powers = apply(low, f"{name}_exp", "exp", combine(low, f"{name}_less", "sub", x, largest))
    log = apply(low, f"{name}_log", "log", reduce(low, f"{name}_sum", "sum", powers, axes, kept))
    y = combine(low, name, "add", log, largest)
    return replace(y, shape=low.shape(node.outputs[0]))


NORMS_F32: dict[str, Callable[["Lowering", ir.Node, int], Stored]] = {
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance_norm,
    "ReduceLogSumExp": _log_sum_exp,
}
