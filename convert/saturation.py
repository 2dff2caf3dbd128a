"""Whether ONNX Runtime's uint8 x int8 sums can saturate on x86 without VNNI: a proof from weights.

There its kernels multiply with vpmaddubsw, which adds two neighbouring products in 16 bits:

    sat16(x_a * w_a + x_b * w_b),  x = 0..255, w int8

A layer is safe when 255 * (|w_a| + |w_b|) fits int16 for every two weights of one sign in one
output channel. Which two are neighbours is the kernel's affair, so all are considered: "safe" is
proved, "may saturate" is a bound. Weights in -64..64 are always safe. The C of midge is exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.coverage import Coverage
from midge.convert.lower_params import codes_in_file, dequantizes_constant, is_dequantize
from midge.quant.scheme import CODE_RANGE, REDUCED_WEIGHT_MAX

INT16_MAX = 2**15 - 1
LARGEST_CODE = CODE_RANGE["uint8"][1]
DEQUANTIZED = ("Conv", "Gemm", "MatMul")
# The dynamic layers, and the operator whose weight has the same layout.
PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
MAY = "may saturate in ONNX Runtime on x86 without VNNI"
MARK = "may saturate without VNNI"


@dataclass(frozen=True, slots=True)
class Saturation:
    """What the weights of a file prove.

    Args:
        pairs: layer -> the largest magnitude that a sum of two of its products can have.
    """

    pairs: Mapping[str, int] = field(default_factory=dict)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that may saturate."""
        return tuple(name for name, pair in self.pairs.items() if pair > INT16_MAX)

    def summary(self) -> str:
        """Return how many layers may saturate."""
        return f"{MAY}: {len(self.layers)} of {len(self.pairs)} layers"

    def notices(self, remedy: str = "") -> list[str]:
        """Return the line that the user must see, if any layer may saturate.

        Args:
            remedy: what to do, before the session option of ONNX Runtime that always helps.
        """
        if not self.layers:
            return []
        how = f"{remedy}, or set" if remedy else "set"
        return [
            f"{self.summary()}; the C is exact anyway. There, {how} session.x64quantprecision=1."
        ]

    def marked(self, coverage: list[Coverage]) -> list[Coverage]:
        """Return the coverage with a word about each layer that may saturate."""
        found = set(self.layers)
        return [
            replace(c, reason=f"{c.reason}, {MARK}") if c.node in found else c for c in coverage
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the proof as plain data."""
        return {"layers": len(self.pairs), "may_saturate": list(self.layers), "pairs": self.pairs}


REDUCE_RANGE = f"quantize with --reduce-range (weights -{REDUCED_WEIGHT_MAX}..{REDUCED_WEIGHT_MAX})"


def saturation_of(model: ir.Model) -> Saturation:
    """Look at every layer of constant int8 weights, in a file that has activations in codes.

    ONNX Runtime moves a DequantizeLinear behind a Reshape and quantizes a layer between quantized
    neighbours by itself, so that a float activation proves nothing. Uint8 weights are left out:
    its kernels for those widen first.

    Args:
        model: of any tool.
    """
    pairs, codes = {}, any(_dequantizes_activation(node) for node in model.graph)
    for node in model.graph:
        W = _weight(node, codes)
        if W is not None and W.dtype == np.int8:
            W = W[:, None] if W.ndim == 1 else W  # a MatMul with a vector
            pairs[g.label(node)] = largest_pair(W, _channel_axis(node, W.ndim))
    return Saturation(pairs)


def largest_pair(W: g.Array, axis: int) -> int:
    """Return the largest magnitude of x_a w_a + x_b w_b over two weights of one channel.

    The largest uint8 code for weights of one sign and 0 for the other make it: no two weights of
    opposite sign can do more than the larger alone.

    Args:
        W: int8 codes.
        axis: output channels.
    """
    rows = np.moveaxis(W.astype(np.int64), axis, 0).reshape(W.shape[axis], -1)
    rows = np.pad(rows, ((0, 0), (0, 2)))  # a kernel fills up with zeros
    sums = [np.sort(np.maximum(side, 0))[:, -2:].sum(axis=1) for side in (rows, -rows)]
    return LARGEST_CODE * int(np.max(sums, initial=0))


def _dequantizes_activation(node: ir.Node) -> bool:
    return is_dequantize(node) and dequantizes_constant(node.outputs[0]) is None


def _weight(node: ir.Node, codes: bool) -> g.Array | None:
    """Return the stored codes of a layer's weight where it may multiply codes, else None."""
    if g.is_op(node, *PRODUCTS):
        return g.constant(node.inputs[1])
    if not codes or not g.is_op(node, *DEQUANTIZED):
        return None
    dequantize = dequantizes_constant(node.inputs[1])
    return None if dequantize is None else codes_in_file(dequantize)


def _channel_axis(node: ir.Node, rank: int) -> int:
    if g.is_op(node, *PRODUCTS):
        return g.WEIGHT_AXIS[PRODUCTS[node.op_type]] % rank
    return g.channel_axis(node, rank)
