"""The table of all operators that an imported module runs, and the rows of elementwise ones."""

from functools import reduce
from math import pi, sqrt
from typing import Any

import numpy as np

from midge.convert.to_module_call import (
    Call,
    Row,
    Table,
    array,
    beside,
    dtype_of,
    exact,
    number,
    plain,
)
from midge.convert.to_module_layers import LAYERS
from midge.convert.to_module_moves import MOVES
from midge.convert.to_module_norms import NORMS
from midge.convert.to_module_picks import PICKS
from midge.convert.to_module_pools import POOLS
from midge.convert.to_module_recurrent import RECURRENT
from midge.convert.to_module_reduce import REDUCTIONS
from midge.core import ops
from midge.core.backend import Array
from midge.core.tensor import Tensor


def _fold(function: Row) -> Row:
    """Make a row of a function of two that takes any number of operands."""
    return lambda call, *operands: reduce(function, operands)


def _truncated(a: Array, b: Array) -> Array:
    """Return the quotient of integers, rounded towards 0."""
    return (np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)).astype(a.dtype)


def _div(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return ops.div(a, b) if a.dtype.kind == "f" else exact(_truncated, a, b)


def _mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return ops.fmod(a, b) if call.get("fmod", 0) else ops.remainder(a, b)


def _pow(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Return a ** b in the dtype of a."""
    if a.dtype.kind == "f":
        return ops.pow(a, ops.cast(b, a.dtype))
    if b.dtype.kind == "f":
        return ops.cast(ops.pow(ops.cast(a, b.dtype), b), a.dtype)
    return ops.cast(ops.pow(a, b), a.dtype)


def _mean(call: Call, *operands: Tensor) -> Tensor:
    return ops.div(reduce(ops.add, operands), float(len(operands)))


def _clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if x.dtype.kind == "f" and (low is not None or high is not None):
        limits = [None if limit is None else number(limit) for limit in (low, high)]
        return ops.clip(x, *limits)
    x = x if low is None else ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


def _cast(call: Call, x: Tensor) -> Tensor:
    return ops.cast(x, dtype_of(call, call.get("to")))


def _cast_like(call: Call, x: Tensor, like: Tensor) -> Tensor:
    return ops.cast(x, like.dtype)


def _xor(a: Tensor, b: Tensor) -> Tensor:
    return ops.ne(a, b)


def _is_inf(call: Call, x: Tensor) -> Tensor:
    signs = [s for s, name in ((1, "positive"), (-1, "negative")) if call.get(f"detect_{name}", 1)]
    found = [ops.eq(x, beside(x, s * np.inf)) for s in signs]
    return reduce(ops.logical_or, found) if found else ops.ne(x, x)


def _shift(call: Call, a: Tensor, b: Tensor) -> Tensor:
    left = call.get("direction") == "LEFT"
    return exact(np.left_shift if left else np.right_shift, a, b)


def _leaky_relu(call: Call, x: Tensor) -> Tensor:
    return _below(x, x * call.get("alpha", 0.01))


def _below(x: Tensor, y: Tensor) -> Tensor:
    """Return y where x is below 0, else x."""
    return ops.where(ops.lt(x, beside(x, 0)), y, x)


def _exp_minus_1(x: Tensor) -> Tensor:
    """Return exp(x) - 1 for x <= 0, else 0; at 0, where Elu is smooth, the gradient is 1."""
    return ops.exp(ops.clip(x, max=0.0)) - 1


def _elu(call: Call, x: Tensor) -> Tensor:
    alpha = float(call.get("alpha", 1.0))
    return ops.relu(x) + _exp_minus_1(x) * alpha


def _celu(call: Call, x: Tensor) -> Tensor:
    alpha = float(call.get("alpha", 1.0))
    return ops.relu(x) + _exp_minus_1(x / alpha) * alpha


# Source: Klambauer et al., "Self-normalizing neural networks", 2017; the numbers are ONNX's.
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _selu(call: Call, x: Tensor) -> Tensor:
    alpha, gamma = float(call.get("alpha", SELU_ALPHA)), float(call.get("gamma", SELU_GAMMA))
    return (ops.relu(x) + _exp_minus_1(x) * alpha) * gamma


def _softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x)); exp never overflows, and half of the gradient at 0 is a tie's."""
    return ops.maximum(x, beside(x, 0)) + ops.log(ops.exp(-ops.abs(x)) + 1)


def _gelu(call: Call, x: Tensor) -> Tensor:
    if call.get("approximate", "none") == "tanh":
        inner = (x + x * x * x * 0.044715) * sqrt(2 / pi)
        return x * 0.5 * (ops.tanh(inner) + 1)
    return x * 0.5 * (ops.erf(x * sqrt(0.5)) + 1)


def _hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return ops.clip(x * call.get("alpha", 0.2) + call.get("beta", 0.5), 0.0, 1.0)


def _hard_swish(x: Tensor) -> Tensor:
    return x * ops.clip(x * (1 / 6) + 0.5, 0.0, 1.0)


def _prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    return _below(x, x * slope)


def _shrink(call: Call, x: Tensor) -> Tensor:
    lambd, bias = call.get("lambd", 0.5), call.get("bias", 0.0)
    zero = beside(x, 0)
    upper = ops.where(ops.gt(x, beside(x, lambd)), x - bias, zero)
    return ops.where(ops.lt(x, beside(x, -lambd)), x + bias, upper)


def _swish(call: Call, x: Tensor) -> Tensor:
    return x * ops.sigmoid(x * call.get("alpha", 1.0))


def _thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return ops.where(ops.gt(x, beside(x, call.get("alpha", 1.0))), x, beside(x, 0))


def _dropout(call: Call, x: Tensor, ratio: Tensor | None = None, mode: Tensor | None = None) -> Any:
    """Drop in train() mode only; the mask of inference keeps everything."""
    if mode is not None and bool(array(mode)):
        raise call.fail("it is in training mode", "export the model for inference")
    p = 0.5 if ratio is None else number(ratio)
    y = ops.dropout(x, p, call.training)
    if call.outputs == 1:
        return y
    if call.training:
        raise call.fail("its mask is wanted in train() mode", "call eval() first")
    return y, beside(x, np.ones(x.shape), np.dtype(bool))


def _dequantize(call: Call, x: Tensor, scale: Tensor, zero_point: Tensor | None = None) -> Tensor:
    """Return (x - zero_point) * scale, per tensor or per entry of an axis."""
    if call.get("block_size", 0):
        raise call.fail("it has a block_size", "quantize per tensor or per channel")
    if scale.dtype.kind != "f" or call.get("output_dtype", 0):
        raise call.fail("its scale or result is no float32", "use float32 scales")
    shape = [1] * x.ndim
    if scale.numel() > 1:
        shape[call.get("axis", 1)] = scale.numel()
    real = ops.cast(x, scale.dtype)
    if zero_point is not None:
        real = real - ops.reshape(ops.cast(zero_point, scale.dtype), shape)
    return real * ops.reshape(scale, shape)


UNARY: Table = {
    name: plain(function)
    for name, function in {
        "Abs": ops.abs,
        "Acos": ops.acos,
        "Acosh": ops.acosh,
        "Asin": ops.asin,
        "Asinh": ops.asinh,
        "Atan": ops.atan,
        "Atanh": ops.atanh,
        "Ceil": ops.ceil,
        "Cos": ops.cos,
        "Cosh": ops.cosh,
        "Erf": ops.erf,
        "Exp": ops.exp,
        "Floor": ops.floor,
        "HardSwish": _hard_swish,
        "Identity": lambda x: x,
        "IsNaN": lambda x: ops.ne(x, x),
        "Log": ops.log,
        "Mish": lambda x: x * ops.tanh(_softplus(x)),
        "Neg": ops.neg,
        "Not": ops.logical_not,
        "Reciprocal": lambda x: 1 / x,
        "Relu": ops.relu,
        "Round": ops.round,
        "Sigmoid": ops.sigmoid,
        "Sign": ops.sign,
        "Sin": ops.sin,
        "Sinh": ops.sinh,
        "Softplus": _softplus,
        "Softsign": lambda x: x / (ops.abs(x) + 1),
        "Sqrt": ops.sqrt,
        "Tan": ops.tan,
        "Tanh": ops.tanh,
    }.items()
}
ELEMENTWISE: Table = {
    "Add": plain(ops.add),
    "And": plain(ops.logical_and),
    "BitShift": _shift,
    "BitwiseAnd": lambda call, a, b: exact(np.bitwise_and, a, b),
    "BitwiseNot": lambda call, x: exact(np.bitwise_not, x),
    "BitwiseOr": lambda call, a, b: exact(np.bitwise_or, a, b),
    "BitwiseXor": lambda call, a, b: exact(np.bitwise_xor, a, b),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Celu": _celu,
    "Clip": _clip,
    "DequantizeLinear": _dequantize,
    "Div": _div,
    "Dropout": _dropout,
    "Elu": _elu,
    "Equal": plain(ops.eq),
    "Gelu": _gelu,
    "Greater": plain(ops.gt),
    "GreaterOrEqual": plain(ops.ge),
    "HardSigmoid": _hard_sigmoid,
    "IsInf": _is_inf,
    "LeakyRelu": _leaky_relu,
    "Less": plain(ops.lt),
    "LessOrEqual": plain(ops.le),
    "Max": _fold(ops.maximum),
    "Mean": _mean,
    "Min": _fold(ops.minimum),
    "Mod": _mod,
    "Mul": plain(ops.mul),
    "Or": plain(ops.logical_or),
    "PRelu": _prelu,
    "Pow": _pow,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sub": plain(ops.sub),
    "Sum": _fold(ops.add),
    "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu,
    "Where": plain(ops.where),
    "Xor": plain(_xor),
}
ROWS: Table = {
    **UNARY,
    **ELEMENTWISE,
    **LAYERS,
    **MOVES,
    **NORMS,
    **PICKS,
    **POOLS,
    **RECURRENT,
    **REDUCTIONS,
}
