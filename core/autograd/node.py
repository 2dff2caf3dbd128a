"""Node: one recorded operator, its edges towards the leaves, and what it keeps for backward.

A node owns its inputs' history but never its own output tensor, so a graph dies by reference
counting as soon as the last tensor that needs it goes.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from midge.core.autograd.modes import STATE
from midge.core.backend import Array
from midge.core.errors import InputError

if TYPE_CHECKING:
    from midge.core.tensor import Tensor

# Where a gradient goes: output `index` of a node, or a leaf tensor itself (index 0).
Edge: TypeAlias = "tuple[Node | Tensor, int] | None"
Hook: TypeAlias = "Callable[[Tensor], Tensor | None]"

_sequence = count(1)
_FREED = (
    "backward a second time through {name}: what it saved was freed by the first pass; "
    "pass retain_graph=True to the first backward()."
)


def bind(tensor_class: "type[Tensor]") -> None:
    """Name the Tensor class; core/tensor.py does it, as it needs this module first."""
    globals()["Tensor"] = tensor_class


class SavedTensor:
    """A tensor kept for the backward pass, with the version it had.

    Only a leaf that requires grad is kept as the object it is. Everything else is rebuilt from its
    array and edge, so that no reference cycle tensor -> node -> tensor can arise.

    Args:
        tensor: what to keep.
        owner: the node that keeps it; not referred to, for the same reason.
    """

    __slots__ = (
        "array",
        "counter",
        "handle",
        "index",
        "leaf",
        "node",
        "own",
        "requires_grad",
        "version",
    )

    def __init__(self, tensor: "Tensor", owner: "Node") -> None:
        """Keep `tensor` for `owner`."""
        if tensor._inference:
            raise InputError(
                "a tensor made in inference_mode cannot be saved for backward; clone() it outside "
                "inference_mode, or use no_grad."
            )
        self.handle = None
        self.counter = tensor._version
        self.version = tensor._version[0]
        self.requires_grad = tensor._requires_grad
        node = tensor._node
        self.own = node is owner
        self.node = None if self.own else node
        self.index = tensor._index
        self.leaf = tensor if node is None and self.requires_grad else None
        self.array: Array = tensor.array
        if STATE.packing is not None:
            self.handle = STATE.packing, STATE.packing.pack(self.array, self.counter)
            self.array = None if self.leaf is None else self.array

    def unpack(self, owner: "Node") -> "Tensor":
        """Return the tensor as it was saved.

        Raises:
            InputError: it was modified in place since.
        """
        array, counter = self.array, self.counter
        if self.handle is not None:
            packing, handle = self.handle
            again, counter = packing.unpack(handle)
            array = again if self.leaf is None else array
        changed = self.leaf is not None and self.leaf.array is not array
        if changed or (counter is self.counter and counter[0] != self.version):
            raise InputError(
                f"{owner.name}: a tensor of shape {list(array.shape)} that it saved for backward "
                f"has been modified by an in-place operation (version {counter[0]}, expected "
                f"{self.version}); use the out-of-place form or clone() the tensor first."
            )
        if self.leaf is not None:
            return self.leaf
        tensor = Tensor(array)
        tensor._version = counter
        tensor._requires_grad = self.requires_grad
        tensor._node, tensor._index = owner if self.own else self.node, self.index
        return tensor


class Node:
    """A recorded operator; also the `ctx` that its forward and backward rules get.

    Attributes:
        rule: the OpSpec or Function subclass with the `backward` rule and a `name`.
        attributes: the operator's keyword attributes.
        needs_input_grad: per input, whether its gradient is wanted. Rules may skip the others.
        facts: any small value the backward rule needs (sizes, axes); kept as long as the node.
            Arrays go into other attributes (`ctx.mask = ...`): those are freed after backward.
        edges: per input, where its gradient goes.
        metas: shape and dtype of each output.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "attributes",
        "edges",
        "facts",
        "freed",
        "hooks",
        "metas",
        "needs_input_grad",
        "retained",
        "rule",
        "saved",
        "sequence",
    )

    def __init__(self, rule: Any, attributes: Mapping[str, Any], needs: tuple[bool, ...]) -> None:
        """Start as the ctx of one call; `record` makes it a part of the graph."""
        self.rule = rule
        self.attributes = attributes
        self.needs_input_grad = needs
        self.saved: Any = ()

    def record(self, edges: tuple[Edge, ...], metas: tuple[tuple[Any, Any], ...]) -> None:
        """Make this a part of the graph."""
        self.sequence = next(_sequence)
        self.edges: tuple[Edge, ...] = edges
        self.metas = metas
        self.freed = False
        self.hooks: dict[int, dict[int, Hook]] | None = None
        self.retained: dict[int, Any] | None = None

    def save(self, *positions: int) -> None:
        """Keep inputs 0, 1, ... and outputs ~0, ~1, ... for the backward rule.

        They come back, in this order, as `saved_tensors`. Call it once, in forward.
        """
        self.saved = positions

    def save_for_backward(self, *tensors: "Tensor | None") -> None:
        """Keep tensors for the backward rule of a custom Function; inputs, outputs or others."""
        self.saved = tensors

    def mark_non_differentiable(self, *outputs: "Tensor") -> None:
        """Say, in a custom forward, that these outputs have no gradient."""
        self.constant_outputs = {id(output) for output in outputs}

    @property
    def saved_tensors(self) -> tuple["Tensor", ...]:
        """What was saved, in the same order.

        Raises:
            InputError: freed by an earlier backward pass, or modified in place since.
        """
        if self.freed:
            raise InputError(_FREED.format(name=self.name))
        # Custom functions may save None; their annotations say so, the common case stays simple.
        return tuple(None if s is None else s.unpack(self) for s in self.saved)  # type: ignore[misc]

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Rules may keep any attribute."""

    def __getattr__(self, name: str) -> Any:
        """Explain a missing attribute: `release` clears those that forward set."""
        if (
            name not in self.__slots__
            and not name.startswith("__")
            and getattr(self, "freed", False)
        ):
            raise InputError(_FREED.format(name=self.name))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def input_shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of an input whose gradient is wanted."""
        edge = self.edges[position]
        if edge is None:
            raise InputError(f"{self.name}: input {position} needs no gradient, its shape is gone.")
        target, index = edge
        shape: tuple[int, ...]
        shape = target.metas[index][0] if isinstance(target, Node) else target.array.shape
        return shape

    def release(self) -> None:
        """Free everything that was kept for the backward rule."""
        self.saved = ()
        self.__dict__.clear()
        self.freed = True

    def hook_table(self, index: int) -> dict[int, Hook]:
        """Return the hooks on the gradient of output `index`."""
        if self.hooks is None:
            self.hooks = {}
        return self.hooks.setdefault(index, {})

    def retain_table(self) -> dict[int, Any]:
        """Return, per output, what stores the gradient after all hooks."""
        if self.retained is None:
            self.retained = {}
        return self.retained

    @property
    def name(self) -> str:
        """Name as PyTorch forms it: MulBackward, CrossEntropyBackward."""
        words = str(self.rule.name).split("_")
        return "".join(w[:1].upper() + w[1:] for w in words) + "Backward"

    @property
    def next_functions(self) -> tuple[Edge, ...]:
        """The nodes (or leaf tensors) that the inputs' gradients go to."""
        return self.edges

    def __repr__(self) -> str:
        """Show the name."""
        return f"<{self.name}>"
