"""How far a quantized network is from the float one: signal-to-quantization-noise ratios."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.core.errors import InputError
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]


def sqnr_db(reference: Array, value: Array) -> float:
    """Return 10 log10( sum(reference^2) / sum((reference - value)^2) ) in dB.

    Args:
        reference: exact values, any shape.
        value: approximate values, same shape.

    Returns:
        Infinity where the two are equal, minus infinity where only the reference is all zero.

    Raises:
        InputError: the shapes differ.
    """
    a, b = np.asarray(reference, np.float64), np.asarray(value, np.float64)
    if a.shape != b.shape:
        raise InputError(f"reference has shape {list(a.shape)}, value {list(b.shape)}.")
    noise, signal = float(np.sum((a - b) ** 2)), float(np.sum(a**2))
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(signal / noise)) if signal else float("-inf")


@dataclass(frozen=True, slots=True)
class TensorQuality:
    """How one quantized tensor compares with its float original.

    Args:
        name: of the tensor.
        sqnr_db: over all samples.
        saturated: share of elements at the smallest or largest code.
    """

    name: str
    sqnr_db: float
    saturated: float


def layer_quality(
    float_values: Mapping[str, Array],
    codes: Mapping[str, Array],
    params: Mapping[str, QuantParams],
) -> list[TensorQuality]:
    """Compare every quantized tensor that the float network has too, in the order of `codes`.

    Args:
        float_values: values of the float network by tensor name.
        codes: codes of the quantized network by tensor name, same shapes.
        params: how the codes map to real values.

    Raises:
        InputError: a tensor has different shapes in the two networks, or they share none.
    """
    found = []
    for name, q in codes.items():
        if name not in float_values:
            continue
        p = params[name]
        real = arithmetic.dequantize(q, p)
        edge = float(np.mean((q == p.qmin) | (q == p.qmax))) if q.size else 0.0
        found.append(TensorQuality(name, sqnr_db(float_values[name], real), edge))
    if not found:
        raise InputError("the float and the quantized network share no tensor name.")
    return found
