"""Hooks: functions that see or replace a gradient on its way, and the handle that removes them."""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midge.core.autograd.node import Hook
    from midge.core.tensor import Tensor


class RemovableHandle:
    """Removes one entry from a table of hooks, by `remove()` or at the end of a `with` block."""

    __slots__ = ("_key", "_table")

    def __init__(self, table: dict[int, Any], key: int) -> None:
        """Refer to the entry `key` of `table`."""
        self._table = table
        self._key = key

    @classmethod
    def into(cls, table: dict[int, Any], hook: Any) -> "RemovableHandle":
        """Add `hook` after those in the table and return its handle."""
        key = max(table, default=0) + 1
        table[key] = hook
        return cls(table, key)

    def remove(self) -> None:
        """Take the hook out; a second call does nothing."""
        self._table.pop(self._key, None)

    def __enter__(self) -> "RemovableHandle":
        """Keep the hook for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the hook."""
        self.remove()


class LeafHooks:
    """Hooks of a leaf: `before` sees the gradient, `after` the leaf once its grad is updated."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        """Start without hooks."""
        self.before: dict[int, Hook] = {}
        self.after: dict[int, Callable[[Tensor], None]] = {}


def run_hooks(table: "dict[int, Hook] | None", grad: "Tensor") -> "Tensor":
    """Pass a gradient through the hooks in the order in which they were registered."""
    if table:
        for hook in tuple(table.values()):
            replacement = hook(grad)
            if replacement is not None:
                grad = replacement
    return grad


def retain_hook(tensor: "Tensor") -> "Callable[[Tensor], None]":
    """Return a hook that stores the gradient in `tensor.grad` as long as the tensor lives."""
    reference = weakref.ref(tensor)

    def store(grad: "Tensor") -> None:
        kept = reference()
        if kept is not None:
            kept.grad = grad if kept.grad is None else kept.grad + grad

    return store
