"""How far float32 C may be from float64 NumPy on the same inputs, operator by operator.

docs/numerics.md ("Float32 operators") states the same bounds. Integer steps, moves, and float steps
of a single rounding have none: their bits are those of the executor.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor_float import FLOAT_KERNELS
from midge.convert.executor_ops import KERNELS, Operands
from midge.convert.executor_recurrent import recurrent_bound
from midge.convert.plan import Plan, PlanOp
from midge.convert.plan_float import (
    UNLIMITED,
    BinaryF32,
    Conv2dF32,
    FullyConnectedF32,
    MatMulF32,
    Pool2dF32,
    ReduceF32,
    SoftmaxF32,
    UnaryF32,
)
from midge.convert.plan_general import RecurrentF32, ResampleF32

Array = npt.NDArray[Any]

U = 2.0**-24  # half a unit in the last place of float32, relative: one rounding
LIBRARY = 2.0**-21  # relative error of expf, tanhf, ... : 4 units in the last place
SMALLEST = 2.0**-146  # absolute: results below the normal range lose relative precision

# (relative to |y|, relative to |x|) of functions with more than one rounding; the others are exact.
UNARY_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh"), (LIBRARY, 0.0)),
    **dict.fromkeys(("cos", "cosh", "sin", "sinh", "tan"), (LIBRARY, 0.0)),
    "celu": (2 * LIBRARY, LIBRARY),
    "elu": (2 * LIBRARY, LIBRARY),
    "erf": (LIBRARY, 0.0),
    "exp": (LIBRARY, 0.0),
    "gelu": (4 * U, LIBRARY),
    "gelu_tanh": (4 * U, 4 * LIBRARY),
    "hard_sigmoid": (2 * U, 2 * U),
    "hard_swish": (4 * U, 2 * U),
    "log": (LIBRARY, 0.0),
    "mish": (4 * LIBRARY, 0.0),
    "selu": (2 * LIBRARY, LIBRARY),
    "sigmoid": (2 * LIBRARY, 0.0),
    "softplus": (2 * LIBRARY, 0.0),
    "softsign": (4 * U, 0.0),
    "swish": (2 * LIBRARY, LIBRARY),
    "tanh": (LIBRARY, 0.0),
}


def is_exact(params: Any) -> bool:
    """Tell whether C gives the executor's bits for a step, its inputs having the same bits."""
    if isinstance(params, UnaryF32):
        return params.kind not in UNARY_BOUNDS
    if isinstance(params, BinaryF32):
        return params.kind != "pow"
    if isinstance(params, (Pool2dF32, ReduceF32)):
        return params.kind in ("max", "min")
    rounded = (Conv2dF32, FullyConnectedF32, MatMulF32, RecurrentF32, ResampleF32, SoftmaxF32)
    return not isinstance(params, rounded)


def inexact_buffers(plan: Plan) -> dict[int, bool]:
    """Return the buffers whose bits may differ between executor and C.

    Returns:
        buffer -> whether codes were made of inexact values on the way: a code may then be another,
        which moves what follows by more than rounding errors do.
    """
    found: dict[int, bool] = {}
    for op in plan.ops:
        sources = [plan.tensors[t].buffer for t in op.inputs]
        inexact = [found[b] for b in sources if b in found]
        if inexact or not is_exact(op.params):
            y = plan.tensors[op.output]
            from_codes = any(inexact)
            found[y.buffer] = from_codes or (y.dtype not in ("float32", "int32") and bool(inexact))
    return found


def float_buffers(plan: Plan) -> set[int]:
    """Return the buffers that steps of this module's kind reach, exact or not."""
    found: set[int] = set()
    for op in plan.ops:
        if type(op.params) in FLOAT_KERNELS or any(
            plan.tensors[t].buffer in found for t in op.inputs
        ):
            found.add(plan.tensors[op.output].buffer)
    return found


def reference(op: PlanOp, o: Operands) -> Array:
    """Return a step's result in float64 from float32 operands, [samples, *shape as stored]."""
    kernel = KERNELS.get(type(op.params)) or FLOAT_KERNELS[type(op.params)]
    return kernel(op.params, replace(o, x=[x.astype(np.float64) for x in o.x]))


def within_bound(op: PlanOp, o: Operands, actual: Array) -> Array:
    """Tell for each element of a float step's float32 result whether it is near enough.

    Args:
        op: the step.
        o: its operands as they were when it ran.
        actual: what it gave, [samples, *shape as stored].
    """
    o = replace(o, seen=actual)
    with np.errstate(all="ignore"):
        truth = reference(op, o).reshape(actual.shape)
        near = np.abs(actual - truth) <= error_bound(op, o).reshape(actual.shape)
        rounded = truth.astype(np.float32)  # infinite where float32 overflows
    same: Array = near | (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    return same


def error_bound(op: PlanOp, o: Operands) -> Array:
    """Return how far C may be from `reference`, element by element, as float64."""
    p = op.params
    Y: Array = np.abs(reference(op, o))
    if isinstance(p, (Conv2dF32, FullyConnectedF32)):
        sums = replace(p, weight=_wide(p.weight), bias=np.abs(p.bias), limits=UNLIMITED)
        return _gamma(_terms(p) + 2) * _magnitude(op, o, sums) + SMALLEST
    if isinstance(p, MatMulF32):
        return _gamma(o.x[0].shape[-1] + 1) * _magnitude(op, o, p) + SMALLEST
    if isinstance(p, Pool2dF32):
        return _gamma(p.kernel[0] * p.kernel[1] + 1) * _magnitude(op, o, p) + SMALLEST
    if isinstance(p, ReduceF32):
        return _gamma(o.x[0].shape[2] + 1) * _magnitude(op, o, p) + SMALLEST
    if isinstance(p, RecurrentF32):
        return recurrent_bound(p, o).reshape(Y.shape) + SMALLEST
    if isinstance(p, ResampleF32):
        return _gamma(p.index.shape[1]) * _magnitude(op, o, p.magnitude) + SMALLEST
    if isinstance(p, SoftmaxF32):
        return _softmax_bound(p, o.x[0].astype(np.float64), Y).reshape(Y.shape)
    if isinstance(p, UnaryF32) and p.kind in UNARY_BOUNDS:
        relative, of_x = UNARY_BOUNDS[p.kind]
        scale = abs(p.beta if p.kind == "selu" else p.alpha)
        X = np.abs(o.x[0].astype(np.float64)).reshape(Y.shape)
        return relative * Y + of_x * max(scale, 1.0) * X + SMALLEST
    return (LIBRARY if isinstance(p, BinaryF32) and p.kind == "pow" else U) * Y + SMALLEST


def _wide(W: Array) -> Array:
    """Return |W| in a type that holds it (|-128| is no int8)."""
    wide: Array = np.abs(W.astype(np.int16) if W.dtype == np.int8 else W)
    return wide


def _terms(p: Conv2dF32 | FullyConnectedF32) -> int:
    """Return the number of terms of a sum, bias and a weight's scale included."""
    return int(p.weight[0].size) + 1 + (p.scale is not None)


def _gamma(n: int) -> float:
    """Return n U / (1 - n U), the relative error of n roundings in a row."""
    return n * U / (1 - n * U)


def _magnitude(op: PlanOp, o: Operands, params: Any) -> Array:
    """Return a sum's terms added up by their magnitude."""
    positive = replace(o, x=[np.abs(x) for x in o.x])
    return reference(replace(op, params=params), positive)


def _softmax_bound(p: SoftmaxF32, X: Array, Y: Array) -> Array:
    """Propagate the roundings of x - max, exp, the sum and the last step."""
    Y = Y.reshape(X.shape)
    D = np.abs(X - X.max(axis=-1, keepdims=True))
    E = np.exp(-D)
    depth = X.shape[-1]
    mean = (E * (U * D + LIBRARY)).sum(axis=-1, keepdims=True) / E.sum(axis=-1, keepdims=True)
    of_sum: Array = mean + _gamma(depth + 1)
    limit: Array = Y * (U * D + LIBRARY + of_sum + 2 * U) + SMALLEST
    if p.log:
        limit = of_sum + LIBRARY * float(np.log(depth)) + 2 * U * D + 2 * U * Y
    return limit
