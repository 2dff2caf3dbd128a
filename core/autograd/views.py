"""Views: tensors on the memory of another one, and in-place writes through them.

A view remembers its base and the operators that lead from the base to it. When the base has been
written to since, the view's place in the graph is out of date and is rebuilt by replaying them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from midge.core.autograd.modes import STATE, enable_grad
from midge.core.backend import Array, xp_of
from midge.core.errors import InputError

if TYPE_CHECKING:
    from midge.core.tensor import Tensor

Step = tuple[Any, Mapping[str, Any]]


class View:
    """How a tensor lies in another one's memory.

    Attributes:
        base: the tensor that owns the memory (never itself a view).
        steps: (OpSpec, attributes) from base to view; None if made where nothing was recorded.
        version: version of the memory at which the view's node was right.
    """

    __slots__ = ("base", "steps", "version")

    def __init__(self, base: "Tensor", steps: tuple[Step, ...] | None, version: int) -> None:
        """Describe one view."""
        self.base = base
        self.steps = steps
        self.version = version

    def refresh(self, view: "Tensor") -> None:
        """Replay the steps if the memory was written to since the node of `view` was made."""
        if self.version == view._version[0]:
            return
        self.version = view._version[0]
        if self.steps is None or not self.base._requires_grad:
            return
        replayed = replay(self.base, self.steps)
        view._node, view._index = replayed._node, replayed._index
        view._requires_grad = True


def link(view: "Tensor", base: "Tensor", spec: Any, attributes: Mapping[str, Any]) -> None:
    """Make `view` share the version of `base` if it shares its memory."""
    if not xp_of(base.array).may_share_memory(view.array, base.array):
        return
    view._version = base._version
    view._inference = base._inference
    owner = base
    steps: tuple[Step, ...] | None = ()
    if base._view is not None:
        owner, steps = base._view.base, base._view.steps
    known = STATE.grad and steps is not None
    longer = (*steps, (spec, attributes)) if known and steps is not None else None
    view._view = View(owner, longer, view._version[0])


def replay(base: "Tensor", steps: tuple[Step, ...]) -> "Tensor":
    """Apply the steps to `base`, recording."""
    from midge.core.opspec import apply

    result = base
    with enable_grad():
        for spec, attributes in steps:
            result = apply(spec, (result,), attributes)
    return result


def window(array: Array, steps: tuple[Step, ...]) -> Array:
    """Return the part of `array` that the steps lead to, on the same memory.

    Raises:
        InputError: a step copies for this memory order, so there is no such part.
    """
    from midge.core.autograd.node import Node

    result = array
    for spec, attributes in steps:
        result = spec.forward(Node(spec, attributes, (False,)), result, **attributes)
    if array.size and not xp_of(array).may_share_memory(array, result):
        raise InputError("in-place write through a view whose memory order cannot be followed.")
    return result
