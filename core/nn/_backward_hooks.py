"""Full backward hooks of a Module: identities around forward that see the gradients pass."""

from collections.abc import Callable
from typing import Any

from midge.core.autograd.function import Function
from midge.core.tensor import Tensor

Hook = Callable[..., Any]


class Watch:
    """The hooks of one call of a module.

    The gradients of the outputs pass first and are kept; when those of the inputs arrive, the
    hooks are called with both.

    Args:
        module: the module that is called.
        hooks: its full backward hooks.
    """

    def __init__(self, module: Any, hooks: tuple[Hook, ...]) -> None:
        """Remember whom to call."""
        self.module = module
        self.hooks = hooks
        self.places: list[int] = []
        self.count = 0
        self.grad_output: tuple[Tensor | None, ...] = ()

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with the tensors that require gradients watched."""
        self.count = len(args)
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not self.places:
            return args
        watched = _Watched.apply(self.input_grads, *(args[i] for i in self.places))
        result = list(args)
        for place, tensor in zip(self.places, watched, strict=True):
            result[place] = tensor
        return tuple(result)

    def outputs(self, output: Any) -> Any:
        """Return the output, a Tensor or a tuple, watched."""
        single = isinstance(output, Tensor)
        values = (output,) if single else tuple(output)
        live = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not live:
            return output
        kept = list(values)
        for place, tensor in zip(
            live, _Watched.apply(self.output_grads, *(values[i] for i in live)), strict=True
        ):
            kept[place] = tensor
        return kept[0] if single else tuple(kept)

    def output_grads(self, grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Keep the gradients of the outputs; without watched inputs this is the end."""
        self.grad_output = grads
        if not self.places:
            self._call((None,) * self.count)
        return grads

    def input_grads(self, grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Call the hooks and return the gradients that go on."""
        full: list[Tensor | None] = [None] * self.count
        for place, grad in zip(self.places, grads, strict=True):
            full[place] = grad
        changed = self._call(tuple(full))
        return tuple(changed[i] for i in self.places)

    def _call(self, grad_input: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.hooks:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                grad_input = changed if isinstance(changed, tuple) else (changed,)
        return grad_input


class _Watched(Function):
    """Identity whose gradients pass through a function."""

    @staticmethod
    def forward(ctx: Any, through: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.facts = through
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return None, *ctx.facts(grads)
