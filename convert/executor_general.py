"""The steps of plan_general.py in NumPy.

A kernel of real values computes in the dtype of its inputs, see executor_float.py; integers and
truths are int32, also where a reference in float64 is asked for.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor_ops import Operands
from midge.convert.executor_recurrent import recurrent
from midge.convert.plan_general import (
    Arg,
    BinaryS32,
    Cast,
    Compare,
    ConstantS32,
    Gather,
    GatherElements,
    RecurrentF32,
    ResampleF32,
    TopF32,
    Where,
)

Array = npt.NDArray[Any]
S32 = np.iinfo(np.int32)

COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
}


def _divided(a: Array, b: Array) -> Array:
    """Divide towards 0; 0 where b is 0."""
    quotient = np.abs(a) // np.maximum(np.abs(b), 1)
    return np.where(b == 0, 0, np.sign(a) * np.sign(b) * quotient)


def _fmod(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, a - _divided(a, b) * b)


def _mod(a: Array, b: Array) -> Array:
    rest = _fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


# On int64 operands, so that nothing overflows before the result is wrapped to 32 bits.
INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    **COMPARISONS,
    "add": np.add,
    "and": np.bitwise_and,
    "div": _divided,
    "fmod": _fmod,
    "max": np.maximum,
    "min": np.minimum,
    "mod": _mod,
    "mul": np.multiply,
    "or": np.bitwise_or,
    "sub": np.subtract,
    "xor": np.bitwise_xor,
}


def compare(p: Compare, o: Operands) -> Array:
    """Compare real values."""
    return COMPARISONS[p.kind](o.x[0], o.x[1]).astype(np.int32).reshape(-1, *o.y.shape)


def binary(p: BinaryS32, o: Operands) -> Array:
    """Combine integers; what leaves 32 bits wraps."""
    a, b = (x.astype(np.int64) for x in o.x)
    return INTEGER[p.kind](a, b).astype(np.int32).reshape(-1, *o.y.shape)


def where(p: Where, o: Operands) -> Array:
    """Choose element by element."""
    Y: Array = np.where(o.x[0] != 0, o.x[1], o.x[2])
    return Y


def cast(p: Cast, o: Operands) -> Array:
    """Change the type."""
    X = o.x[0]
    if p.kind == "to_f32":
        return X.astype(np.float32)
    if p.kind.startswith("truth"):
        truth: Array = (X != 0).astype(np.int32)
        return truth
    whole = np.trunc(np.nan_to_num(X.astype(np.float64), nan=0.0))
    codes: Array = np.clip(whole, S32.min, S32.max).astype(np.int32)
    return codes


def arg(p: Arg, o: Operands) -> Array:
    """Return where the best value stands, [S, outer, 1, inner]."""
    X = o.x[0]
    best, index = X[:, :, 0].copy(), np.zeros(X[:, :, 0].shape, np.int32)
    for k in range(1, X.shape[2]):
        v = X[:, :, k]
        better = v < best if p.smallest else v > best
        better |= (v == best) & p.last
        np.copyto(best, v, where=better)
        index[better] = k
    return index.reshape(-1, *o.y.shape)


def top(p: TopF32, o: Operands) -> Array:
    """Return where the best values stand, [S, outer, k, inner]."""
    X = -o.x[0] if p.smallest else o.x[0]
    n = X.shape[2]
    places = np.arange(n).reshape(n, 1)
    left = ~np.isnan(X)
    found = np.zeros((*X.shape[:2], p.k, X.shape[3]), np.int32)
    for k in range(p.k):
        best = np.where(left, X, -np.inf).max(axis=2, keepdims=True)
        index = np.where(left & (best == X), places, n).min(axis=2, keepdims=True)
        found[:, :, k : k + 1] = np.where(index < n, index, 0)
        left &= places != index
    return found.reshape(-1, *o.y.shape)


def _inside(index: Array, size: int) -> Array:
    """Count indices below 0 from the end, and move those outside to the nearest."""
    whole = index.astype(np.int64)
    place: Array = np.clip(np.where(whole < 0, whole + size, whole), 0, size - 1)
    return place


def gather(p: Gather, o: Operands) -> Array:
    """Pick slices along the middle axis."""
    index = o.x[-1].reshape(len(o.x[-1]), -1)
    X = o.x[0] if p.table is None else np.broadcast_to(p.table, (len(index), *p.table.shape))
    picked = _inside(index, X.shape[2])
    Y: Array = X[np.arange(len(X))[:, None], :, picked]  # [S, m, outer, inner]
    return Y.swapaxes(1, 2).reshape(-1, *o.y.shape)


def gather_elements(p: GatherElements, o: Operands) -> Array:
    """Pick elements along the middle axis."""
    index = _inside(o.x[1], o.x[0].shape[2])
    Y: Array = np.take_along_axis(o.x[0], index, axis=2)
    return Y.reshape(-1, *o.y.shape)


def resample(p: ResampleF32, o: Operands) -> Array:
    """Add up weighted slices of the middle axis."""
    X = o.x[0]
    Y = np.zeros((len(X), X.shape[1], len(p.index), X.shape[3]), X.dtype)
    for k in range(p.index.shape[1]):
        Y = Y + X[:, :, p.index[:, k]] * p.weight[:, k].astype(X.dtype)[:, None]
    return Y.reshape(-1, *o.y.shape)


def constant(p: ConstantS32, o: Operands) -> Array:
    """Return the constant once; the executor repeats it for every sample."""
    return p.value.reshape(1, *o.y.shape)


GENERAL_KERNELS: dict[type, Callable[[Any, Operands], Array]] = {
    Arg: arg,
    BinaryS32: binary,
    Cast: cast,
    Compare: compare,
    ConstantS32: constant,
    Gather: gather,
    GatherElements: gather_elements,
    RecurrentF32: recurrent,
    ResampleF32: resample,
    TopF32: top,
    Where: where,
}
