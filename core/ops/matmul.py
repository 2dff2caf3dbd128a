"""Matrix products: matmul with broadcasting batches, and linear.

BLAS may add in another order for a transposed operand, so every operand is brought into C order
first and transposition is an attribute: the memory layout of the inputs never changes a result.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, contiguous
from midge.core.errors import InputError
from midge.core.ops import reduce, shape
from midge.core.ops.elementwise import save_factors
from midge.core.ops.operands import as_tensor, pair, result_type
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor


def _matmul(
    ctx: Node, a: Array, b: Array, *, transpose_a: bool = False, transpose_b: bool = False
) -> Array:
    save_factors(ctx)
    a, b = contiguous(a), contiguous(b)
    return (a.swapaxes(-1, -2) if transpose_a else a) @ (b.swapaxes(-1, -2) if transpose_b else b)


def _matmul_backward(ctx: Node, grad: Tensor) -> Gradients:
    ta = ctx.attributes.get("transpose_a", False)
    tb = ctx.attributes.get("transpose_b", False)
    saved = ctx.saved_tensors
    left = right = None
    if ctx.needs_input_grad[0]:
        b = saved[-1]
        left = product(b, grad, tb, True) if ta else product(grad, b, False, not tb)
    if ctx.needs_input_grad[1]:
        a = saved[0]
        right = product(grad, a, True, ta) if tb else product(a, grad, not ta, False)
    return left, right


def _matmul_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3), distinct(rng, 3, 4)))
    yield Sample((distinct(rng, 2, 2, 3), distinct(rng, 2, 3, 1)))
    yield Sample((distinct(rng, 2, 1, 2, 3), distinct(rng, 3, 3, 2)))
    yield Sample((distinct(rng, 2, 0), distinct(rng, 0, 3)))
    yield Sample((distinct(rng, 3, 2), distinct(rng, 3, 4)), {"transpose_a": True})
    yield Sample((distinct(rng, 2, 3), distinct(rng, 4, 3)), {"transpose_b": True})
    both = {"transpose_a": True, "transpose_b": True}
    yield Sample((distinct(rng, 3, 2), distinct(rng, 2, 4, 3)), both)


def _linear(ctx: Node, x: Array, weight: Array, bias: Array | None) -> Array:
    left, right, _ = ctx.needs_input_grad
    if left or right:
        ctx.save(0, 1)
    x, weight = contiguous(x), contiguous(weight)
    y = x.reshape(-1, x.shape[-1]) @ weight.T
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


def _linear_backward(ctx: Node, grad: Tensor) -> Gradients:
    need_x, need_weight, need_bias = ctx.needs_input_grad
    rows = shape.reshape(grad, (-1, grad.shape[-1]))
    gx = gweight = gbias = None
    if need_x:
        weight = ctx.saved_tensors[1]
        gx = shape.reshape(product(rows, weight), ctx.input_shape(0))
    if need_weight:
        x = ctx.saved_tensors[0]
        gweight = product(rows, shape.reshape(x, (-1, x.shape[-1])), True, False)
    if need_bias:
        gbias = reduce.sum(rows, 0)
    return gx, gweight, gbias


def _linear_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3), distinct(rng, 4, 3), distinct(rng, 4)))
    yield Sample((distinct(rng, 2, 3), distinct(rng, 4, 3), None))
    yield Sample((distinct(rng, 2, 1, 2, 3), distinct(rng, 1, 3), distinct(rng, 1)))
    yield Sample((distinct(rng, 3), distinct(rng, 2, 3), distinct(rng, 2)))


MATMUL = register(OpSpec("matmul", "MatMul", _matmul, _matmul_backward, _matmul_samples))
LINEAR = register(OpSpec("linear", "Gemm", _linear, _linear_backward, _linear_samples))


def product(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """Return op(a) @ op(b), where op exchanges the last two dims or does nothing."""
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return apply(MATMUL, (a, b), {name: True for name, on in flags.items() if on})


def matmul(a: Any, b: Any) -> Tensor:
    """Return the matrix product over the last two dims; batch dims broadcast.

    A 1-dim operand is a row on the left and a column on the right, and its dim disappears.
    """
    a, b = pair(a, b)
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise InputError(f"matmul: shapes {list(a.shape)} and {list(b.shape)} do not fit.")
    row, column = a.ndim == 1, b.ndim == 1
    y = product(shape.unsqueeze(a, 0) if row else a, shape.unsqueeze(b, 1) if column else b)
    if row:
        y = shape.squeeze(y, -2)
    return shape.squeeze(y, -1) if column else y


def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """Return x @ weight.T + bias.

    Args:
        x: [..., in].
        weight: [out, in].
        bias: [out] or None.
    """
    tensors = [as_tensor(t) for t in (x, weight, bias) if t is not None]
    x, weight = tensors[:2]
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise InputError(
            f"linear: the input is {list(x.shape)} but the weight {list(weight.shape)} needs "
            f"[..., in] with weight [out, in]."
        )
    if len(tensors) == 3 and tensors[2].shape != weight.shape[:1]:
        raise InputError(
            f"linear: the bias is {list(tensors[2].shape)}, the weight has {weight.shape[0]} rows."
        )
    dtype = result_type(*tensors)
    tensors = [t if t.dtype == dtype else t.to(dtype) for t in tensors]
    return apply(LINEAR, tensors if len(tensors) == 3 else [*tensors, None])
