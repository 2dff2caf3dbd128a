"""Attention masks: the huge negative constants that are added to logits before a Softmax.

1. In an Add of a constant whose result only a Softmax reads, values of -1e3 and below (-1e9, -inf,
   the smallest float32) become at least -1e9: the probability is 0 as before, and the sum stays
   finite.
2. A Where that puts such a value before a Softmax, by a constant condition that leaves at least one
   logit of each row, becomes that Add.

When the logits' range is known, `tighten_masks` moves them to just where 8 bits still give 0.
"""

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of

MASKED = -1e3  # no logit comes here; what is below masks
CLAMPED = -1e9  # below any logit, and finite
MARGIN = 8.0  # exp(-8) is below half of the step 1/256 of a probability

Ranges = dict[str, tuple[float, float]]


class ClampMasks(Pass):
    """Bring attention masks into a finite range."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 2 and 1."""
        result, names = PassResult(), g.Names(model.graph)
        for node in nodes_of(model, "Where"):
            mask = _mask_of(node)
            if mask is None:
                continue
            logits = node.inputs[2 if g.is_constant(node.inputs[1]) else 1]
            stem = f"{g.label(node)}_mask"
            node.op_type = "Add"
            node.resize_inputs(2)
            node.replace_input_with(0, logits)
            node.replace_input_with(1, g.add_constant(model.graph, names, stem, mask))
            result.modified = True
        for node, index in find_masks(model):
            mask = g.constant(node.inputs[index])
            assert mask is not None
            clamped = np.maximum(mask, np.float32(CLAMPED))
            if not np.array_equal(mask, clamped):
                stem = f"{g.label(node)}_mask"
                node.replace_input_with(index, g.add_constant(model.graph, names, stem, clamped))
                result.modified = True
        return result


def _mask_of(node: ir.Node) -> g.Array | None:
    """Return what a Where adds to the logits of a Softmax, 0 or CLAMPED, or None."""
    condition, softmax = g.constant(node.inputs[0]), g.sole_consumer(node.outputs[0])
    if condition is None or softmax is None or not g.is_op(softmax, "Softmax"):
        return None
    for index in (1, 2):
        value, logits = g.scalar(node.inputs[index]), node.inputs[3 - index]
        shape = g.dims(logits)
        if value is None or value > MASKED or shape is None or shape != g.dims(node.outputs[0]):
            continue
        masked = condition if index == 1 else ~condition
        axis = int(g.attribute(softmax, "axis", -1)) % len(shape) - len(shape)
        rows = masked.all(axis=axis) if masked.ndim >= -axis else masked
        return None if rows.any() else np.where(masked, np.float32(CLAMPED), np.float32(0))
    return None


def find_masks(model: ir.Model) -> list[tuple[ir.Node, int]]:
    """Return each Add that masks the input of a Softmax, and which operand is the mask."""
    found = []
    for node in nodes_of(model, "Add"):
        if not g.is_op(g.sole_consumer(node.outputs[0]), "Softmax"):
            continue
        for index, value in enumerate(node.inputs):
            mask = g.constant(value)
            if mask is not None and mask.size and mask.min() <= MASKED < mask.max():
                found.append((node, index))
    return found


def tighten_masks(model: ir.Model, ranges: Ranges) -> Ranges:
    """Fit masks to the range of the logits, in place, and return the ranges that follow.

    With logits in [low, high], masked sums go to low - MARGIN or below, where they saturate: the
    range of the sum then is [low - MARGIN, high].

    Args:
        model: holds the masks.
        ranges: calibrated, by tensor name.
    """
    fitted, names = dict(ranges), g.Names(model.graph)
    for node, index in find_masks(model):
        logits, mask = node.inputs[1 - index], g.constant(node.inputs[index])
        if logits is None or mask is None or g.name_of(logits) not in ranges:
            continue
        kept = mask[mask > MASKED]
        low, high = ranges[g.name_of(logits)]
        low, high = low + float(kept.min()), high + float(kept.max())
        masked = np.float32(low - high + float(kept.max()) - MARGIN)
        new = np.where(mask > MASKED, mask, masked).astype(np.float32)
        stem = f"{g.label(node)}_mask"
        node.replace_input_with(index, g.add_constant(model.graph, names, stem, new))
        fitted[g.name_of(node.outputs[0])] = low - MARGIN, high
    return fitted
