"""Function: an operator of the user's own, with a forward and a backward in Tensors."""

import functools
from collections.abc import Callable
from typing import Any

from midge.core.autograd.modes import STATE
from midge.core.autograd.node import Edge, Node, SavedTensor
from midge.core.errors import InputError
from midge.core.tensor import Tensor


class Function:
    """Base class of custom operators.

    Subclass it, write two static methods and call `apply`:

        class Clamp(Function):
            @staticmethod
            def forward(ctx, x, limit):
                ctx.save_for_backward(x)
                ctx.limit = limit
                return x.clip(-limit, limit)

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * (x.abs() <= ctx.limit), None

    forward runs without recording and returns a new Tensor or a tuple of them; backward gets one
    gradient per output and returns one (or None) per argument of forward, written in Tensor
    operators if second derivatives are wanted, else marked @once_differentiable. Arrays that are
    neither inputs nor outputs may be kept as attributes of ctx; they are freed after backward.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("a Function needs a static method forward(ctx, *args).")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Compute the gradients of the arguments."""
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads).")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward and record one node if an argument requires gradients."""
        if STATE.tracer is not None:
            raise InputError(
                f"{cls.__name__}: a custom Function cannot be traced; trace the model in eval mode "
                "or express it in operators."
            )
        needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        ctx = Node(_Rule(cls), {}, needs)
        previous = STATE.grad
        STATE.grad = False
        try:
            result = cls.forward(ctx, *args)
        finally:
            STATE.grad = previous
        outputs = result if isinstance(result, tuple) else (result,)
        if not all(isinstance(o, Tensor) for o in outputs):
            raise InputError(f"{cls.__name__}.forward must return Tensors.")
        if previous and any(needs):
            # An argument handed through unchanged stays what it is outside.
            outputs = tuple(o.detach() if any(o is a for a in args) else o for o in outputs)
            _record(ctx, args, outputs)
        return outputs if isinstance(result, tuple) else outputs[0]


class _Rule:
    """What a Node needs of its operator: a name and the backward rule."""

    __slots__ = ("backward", "name")

    def __init__(self, function: type[Function]) -> None:
        self.name = function.__name__
        self.backward = function.backward


def _record(ctx: Node, args: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
    edges: list[Edge] = []
    for arg, needed in zip(args, ctx.needs_input_grad, strict=True):
        node = arg.grad_fn if needed else None
        edges.append(None if not needed else (arg, 0) if node is None else (node, arg._index))
    ctx.record(tuple(edges), tuple((o.shape, o.dtype) for o in outputs))
    constant = ctx.__dict__.pop("constant_outputs", ())
    for index, output in enumerate(outputs):
        if output.dtype.kind == "f" and id(output) not in constant:
            output._requires_grad = True
            output._node, output._index = ctx, index
    ctx.saved = [None if t is None else SavedTensor(t, ctx) for t in ctx.saved]


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a Function.backward that works on raw arrays: a second derivative raises."""

    @functools.wraps(backward)
    def wrapped(ctx: Node, *grads: Tensor) -> Any:
        recording = STATE.grad
        STATE.grad = False
        try:
            result = backward(ctx, *grads)
        finally:
            STATE.grad = recording
        if not recording or not any(g.requires_grad for g in grads):
            return result
        name = f"{ctx.name} is marked once_differentiable; it has no second derivative."
        results = result if isinstance(result, tuple) else (result,)
        return tuple(
            _Refuse.apply(name, r, *grads) if isinstance(r, Tensor) else r for r in results
        )

    return wrapped


class _Refuse(Function):
    """Identity on a gradient whose own backward raises."""

    @staticmethod
    def forward(ctx: Any, message: str, result: Tensor, *grads: Tensor) -> Tensor:
        ctx.facts = message
        return result.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise InputError(str(ctx.facts))
