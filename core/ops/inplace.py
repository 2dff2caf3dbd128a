"""In-place operators: an ordinary operator on the old values, written back into the same memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.modes import STATE
from midge.core.autograd.node import Node
from midge.core.autograd.views import Step, replay, window
from midge.core.backend import Array, inverse, memory_order, xp_of
from midge.core.dtypes import category
from midge.core.errors import InputError
from midge.core.ops.activation import CLIP, RELU
from midge.core.ops.elementwise import ADD, DIV, MUL, SUB
from midge.core.ops.index import getitem, is_list
from midge.core.ops.operands import as_tensor, pair
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor


def _copy(ctx: Node, old: Array, new: Array) -> Array:
    return xp_of(old, new).broadcast_to(new, old.shape).astype(old.dtype)


def _copy_backward(ctx: Node, grad: Tensor) -> Gradients:
    return None, grad


def _copy_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3), distinct(rng, 3)))
    yield Sample((distinct(rng, 2, 3), distinct(rng, 2, 3)))


COPY = register(OpSpec("copy", "", _copy, _copy_backward, _copy_samples))


def _copy_slices(
    ctx: Node, base: Array, part: Array, *, steps: tuple[Step, ...], order: tuple[int, ...]
) -> Array:
    return base  # already written to; see _rebind


def _copy_slices_backward(ctx: Node, grad: Tensor) -> Gradients:
    """The base keeps its gradient outside the window; the new part gets it inside."""
    steps, order = ctx.attributes["steps"], ctx.attributes["order"]
    # The window is found by replaying the views on memory of the same order as the base.
    ones = xp_of(grad.array).ones([grad.shape[d] for d in order], grad.dtype)
    mask = ones.transpose(inverse(order))
    window(mask, steps)[...] = 0
    return grad * Tensor(mask), replay(grad, steps)


# Not in OPS: its attributes are operators, and only _rebind applies it.
COPY_SLICES = OpSpec("copy_slices", "", _copy_slices, _copy_slices_backward, lambda rng: ())


def _check(target: Tensor, *others: Tensor) -> bool:
    """Return whether the write is recorded.

    Raises:
        InputError: the memory must not be written to.
    """
    if STATE.tracer is not None:
        raise InputError("an in-place operation cannot be traced; use the out-of-place form.")
    if target._inference and not STATE.inference:
        raise InputError(
            "in-place update of a tensor made in inference_mode; clone() it outside first."
        )
    if any(s == 0 and n > 1 for s, n in zip(target.array.strides, target.shape, strict=True)):
        raise InputError(
            "in-place update of an expanded tensor, whose elements share memory; clone() it first."
        )
    if not STATE.grad:
        return False
    view = target._view
    if target.requires_grad:
        leaf = target if view is None else view.base
        if leaf._node is None and leaf._requires_grad:
            what = "a leaf" if view is None else "a view of a leaf"
            raise InputError(
                f"in-place update of {what} that requires gradients; wrap it in no_grad or use the "
                "out-of-place form."
            )
    recorded = target.requires_grad or any(o.requires_grad for o in others)
    if recorded and view is not None and view.steps is None:
        raise InputError(
            "in-place update of a view made in no_grad while gradients are recorded; make the view "
            "where gradients are recorded."
        )
    return recorded


def _update(target: Tensor, spec: OpSpec, others: tuple[Tensor, ...], **attributes: Any) -> Tensor:
    """Set target = spec(target, *others) in its own memory and raise its version."""
    recorded = _check(target, *others)
    old = target
    if recorded:
        # What backward needs of the old values must survive the write, so the rule saves a copy.
        old = Tensor(target.array.copy(order="K"))
        old._requires_grad = target.requires_grad
        old._node, old._index = target.grad_fn, target._index
    result = apply(spec, (old, *others), attributes)
    if result.shape != target.shape:
        raise InputError(
            f"{spec.name}_: the result has shape {list(result.shape)}, the tensor "
            f"{list(target.shape)}; an in-place operation cannot grow it."
        )
    target.array[...] = result.array
    target._version[0] += 1
    if recorded:
        _rebind(target, result)
    return target


def _rebind(target: Tensor, result: Tensor) -> None:
    """Make the written tensor, and through a view its base, the output of the recorded node."""
    view = target._view
    if view is None:
        target._node, target._index, target._requires_grad = result._node, result._index, True
        return
    base = view.base
    old = Tensor(base.array)
    old._requires_grad, old._node, old._index = base._requires_grad, base._node, base._index
    assert view.steps is not None
    attributes = {"steps": view.steps, "order": memory_order(base.array)}
    written = apply(COPY_SLICES, (old, result), attributes)
    base._node, base._index, base._requires_grad = written._node, written._index, True
    view.refresh(target)


def _arithmetic(target: Tensor, spec: OpSpec, other: Any) -> Tensor:
    value, operand = pair(target, other, floating=spec is DIV)
    if category(value.dtype) > category(target.dtype):
        raise InputError(
            f"{spec.name}_: a {value.dtype} result does not fit into a {target.dtype} tensor."
        )
    return _update(target, spec, (operand.to(target.dtype),))


def add_(x: Any, other: Any, alpha: float = 1) -> Tensor:
    """Set x = x + alpha * other in place."""
    return _arithmetic(x, ADD, other if alpha == 1 else other * alpha)


def sub_(x: Any, other: Any, alpha: float = 1) -> Tensor:
    """Set x = x - alpha * other in place."""
    return _arithmetic(x, SUB, other if alpha == 1 else other * alpha)


def mul_(x: Any, other: Any) -> Tensor:
    """Set x = x * other in place."""
    return _arithmetic(x, MUL, other)


def div_(x: Any, other: Any) -> Tensor:
    """Set x = x / other in place."""
    return _arithmetic(x, DIV, other)


def copy_(x: Any, other: Any) -> Tensor:
    """Overwrite x with other, broadcast and cast, in place."""
    new = Tensor(xp_of(x.array).asarray(other)) if isinstance(other, list | tuple) else other
    return _update(x, COPY, (as_tensor(new),))


def clip_(x: Any, min: float | None = None, max: float | None = None) -> Tensor:
    """Limit x to [min, max] in place."""
    return _update(x, CLIP, (), min=min, max=max)


def relu_(x: Any) -> Tensor:
    """Set x = max(x, 0) in place."""
    return _update(x, RELU, ())


def setitem(x: Any, key: Any, value: Any) -> None:
    """Overwrite the part of x that `key` names: x[key] = value.

    Raises:
        InputError: integer or bool arrays as a key while gradients are recorded; use where.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if not any(is_list(k) for k in keys):
        copy_(getitem(x, key), value)
        return
    new = as_tensor(value)
    if _check(x, new):
        raise InputError(
            "index assignment by arrays cannot be recorded; use where, or no_grad if no gradient "
            "is wanted."
        )
    raw = tuple(k.array if isinstance(k, Tensor) else k for k in keys)
    x.array[raw] = new.array
    x._version[0] += 1
