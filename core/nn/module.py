"""Module: the call that runs the hooks, the state, train() and eval()."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from midge.core.autograd.hooks import RemovableHandle
from midge.core.autograd.modes import STATE, no_grad
from midge.core.errors import InputError, did_you_mean
from midge.core.nn import _backward_hooks as backward_hooks
from midge.core.nn._tree import Tree
from midge.core.tensor import Tensor


class Keys(NamedTuple):
    """What `load_state_dict` did not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module(Tree):
    """Base of all networks and layers.

    A subclass calls super().__init__(), assigns Parameters and Modules as attributes and defines
    forward(). Calling the module runs its hooks and forward().

    Attributes:
        training: True in train() mode, the default; False in eval() mode.
    """

    training: bool

    def __init__(self) -> None:
        """Start empty and in train() mode."""
        super().__init__()
        self.training = True
        self._pre_hooks: dict[int, Any] = {}
        self._hooks: dict[int, Any] = {}
        self._backward_hooks: dict[int, Any] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; every subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward().")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pre-hooks, forward() and the hooks."""
        if STATE.tracer is not None:
            from midge.core.trace import scope

            with scope(self):
                return self._call(args, kwargs)
        if not (self._pre_hooks or self._hooks or self._backward_hooks):
            return self.forward(*args, **kwargs)
        return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook in tuple(self._pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        watch = None
        if self._backward_hooks:
            watch = backward_hooks.Watch(self, tuple(self._backward_hooks.values()))
            args = watch.inputs(args)
        output = self.forward(*args, **kwargs)
        for hook in tuple(self._hooks.values()):
            changed = hook(self, args, output)
            if changed is not None:
                output = changed
        return output if watch is None else watch.outputs(output)

    # -- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Return parameters and persistent buffers by name, detached, on the same memory."""
        return {name: tensor.detach() for name, tensor in self._state()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Keys:
        """Copy values into the parameters and buffers; their memory and layout stay.

        Args:
            state_dict: tensors or arrays by name, as `state_dict()` returns them.
            strict: names must match exactly.

        Returns:
            The names that were missing and those that were not expected.

        Raises:
            InputError: a name or a shape does not match; nothing has been changed then.
        """
        own = dict(self._state())
        keys = Keys(
            [n for n in own if n not in state_dict], [n for n in state_dict if n not in own]
        )
        faults = []
        if strict and keys.missing_keys:
            faults.append(f"missing {', '.join(keys.missing_keys)}")
        if strict and keys.unexpected_keys:
            hints = [_hinted(n, own) for n in keys.unexpected_keys]
            faults.append(f"unexpected {', '.join(hints)}")
        for name, tensor in own.items():
            if name in state_dict and tuple(state_dict[name].shape) != tensor.shape:
                shape = list(state_dict[name].shape)
                faults.append(f"{name} has shape {shape} where {list(tensor.shape)} is needed")
        if faults:
            raise InputError(f"load_state_dict of {type(self).__name__}: {'; '.join(faults)}.")
        with no_grad():
            for name, tensor in own.items():
                if name in state_dict:
                    tensor.copy_(state_dict[name])
        return keys

    def to(self, *args: Any, dtype: Any = None, device: Any = None) -> Self:
        """Move parameters and buffers; a dtype goes to the float ones only. Returns self."""
        for module in self.modules():
            for table in (module._parameters, module._buffers):
                for tensor in table.values():
                    if tensor is not None:
                        _move(tensor, args, dtype, device)
        return self

    def float(self) -> Self:
        """Make float parameters and buffers float32; returns self."""
        return self.to(dtype="float32")

    def double(self) -> Self:
        """Make float parameters and buffers float64; returns self."""
        return self.to(dtype="float64")

    def cpu(self) -> Self:
        """Move to host memory; returns self."""
        return self.to(device="cpu")

    def cuda(self) -> Self:
        """Move to the first CUDA device; returns self."""
        return self.to(device="cuda")

    # -- modes ------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module and all below it; returns self."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Leave train() mode, here and in all modules below; gradients stay on. Returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Train all parameters, or freeze them; returns self."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = Tensor(parameter.grad.array * 0)

    # -- hooks ------------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments."""
        return RemovableHandle.into(self._pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; what it returns replaces the output."""
        return RemovableHandle.into(self._hooks, hook)

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` once the gradients of the inputs are known.

        Both are tuples, with None for what has no gradient. A returned tuple replaces grad_input.
        """
        return RemovableHandle.into(self._backward_hooks, hook)

    # -- text -------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Return what `repr` shows between the brackets."""
        return ""

    def __repr__(self) -> str:
        """Return the tree of modules."""
        lines = [f"({name}): {child!r}" for name, child in self.named_children()]
        if not lines:
            return f"{type(self).__name__}({self.extra_repr()})"
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {body}\n)"


def _hinted(name: str, known: Mapping[str, Any]) -> str:
    """Return a name with its nearest known ones in brackets."""
    hint = did_you_mean(name, known).strip()
    return f"{name} ({hint})" if hint else name


def _move(tensor: Tensor, args: tuple[Any, ...], dtype: Any, device: Any) -> None:
    """Give a tensor new memory of another dtype or on another device; it stays the same object."""
    with no_grad():
        moved = tensor.detach().to(*args, dtype=dtype, device=device)
        if tensor.dtype.kind != "f" and moved.dtype != tensor.dtype:
            moved = tensor.detach().to(device=moved.device)
        tensor.data = moved
        if tensor.grad is not None:
            tensor.grad = tensor.grad.detach().to(moved)
