"""Tensor: an array with a gradient and a history. It holds no mathematics; core/ops does."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from midge.core import methods, operators
from midge.core.autograd import node as node_module
from midge.core.autograd.hooks import LeafHooks, RemovableHandle, retain_hook
from midge.core.autograd.modes import STATE
from midge.core.autograd.node import Hook, Node
from midge.core.autograd.views import View, link
from midge.core.backend import Array, is_array, to_numpy
from midge.core.device import Device, device_of
from midge.core.dtypes import DType, as_dtype, is_float
from midge.core.errors import InputError

_NDARRAY = np.ndarray


class Tensor(operators.Operators, methods.Methods):
    """An n-dimensional array that records what is computed with it.

    Args:
        array: NumPy or CuPy array of a supported dtype; shared, not copied.
        requires_grad: record operators and receive a gradient; float dtypes only.

    Attributes:
        array: the raw array. Writing into it by hand is not seen by autograd.
        grad: gradient of the last backward passes, summed; None before the first.
    """

    __slots__ = (
        "__weakref__",
        "_hooks",
        "_index",
        "_inference",
        "_node",
        "_requires_grad",
        "_version",
        "_view",
        "array",
        "grad",
    )

    array: Array
    grad: "Tensor | None"

    def __init__(self, array: Array, requires_grad: bool = False) -> None:
        """Wrap `array`."""
        if type(array) is not _NDARRAY and not is_array(array):
            array = _wrap(array)
        self.array = array
        self.grad = None
        self._requires_grad = False
        self._node: Node | None = None
        self._index = 0  # which output of the node this is
        self._version = [0]  # shared by every tensor on the same memory
        self._view: View | None = None
        self._hooks: LeafHooks | None = None
        self._inference = STATE.inference
        if requires_grad:
            self.requires_grad_()

    # -- what it is -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        shape: tuple[int, ...] = self.array.shape
        return shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        """NumPy dtype of the elements."""
        dtype: DType = self.array.dtype
        return dtype

    @property
    def device(self) -> Device:
        """Where the elements lie."""
        return device_of(self.array)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of one dimension."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """Return the number of elements."""
        return int(self.array.size)

    def is_contiguous(self) -> bool:
        """Tell whether the elements lie in C order."""
        return bool(self.array.flags.c_contiguous)

    def __len__(self) -> int:
        """Return the size of the first dim."""
        if not self.shape:
            raise TypeError("len() of a 0-dim tensor.")
        return self.shape[0]

    # -- autograd ---------------------------------------------------------------------------

    @property
    def grad_fn(self) -> Node | None:
        """Node that made this tensor; None for a leaf."""
        if self._view is not None:
            self._view.refresh(self)
        return self._node

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operator made this tensor."""
        return self.grad_fn is None

    @property
    def requires_grad(self) -> bool:
        """Whether operators on this tensor are recorded; may be assigned on leaves."""
        if self._view is not None:
            self._view.refresh(self)
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Start or stop recording operators on this leaf.

        Raises:
            InputError: not a float dtype, not a leaf, or made in inference_mode.
        """
        if requires_grad and not is_float(self.dtype):
            raise InputError(f"only float tensors can require gradients; this one is {self.dtype}.")
        if requires_grad and self._inference and not STATE.inference:
            raise InputError(
                "a tensor made in inference_mode cannot require gradients; clone() it first."
            )
        if not requires_grad and self.grad_fn is not None:
            raise InputError(
                "requires_grad can be switched off on leaf tensors only; use detach() to leave the "
                "graph."
            )
        self._requires_grad = bool(requires_grad)
        return self

    def backward(
        self,
        gradient: "Tensor | None" = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: "Sequence[Tensor] | None" = None,
    ) -> None:
        """Add d self / d leaf to the `grad` of every leaf (or of `inputs` only).

        Args:
            gradient: d loss / d self, same shape; may be left out for a single element.
            retain_graph: keep what nodes saved for another pass; default `create_graph`.
            create_graph: record the backward pass itself, for higher-order gradients.
            inputs: accumulate into these tensors only.
        """
        from midge.core.autograd.engine import backward

        backward([self], [gradient], retain_graph, create_graph, inputs)

    def detach(self) -> "Tensor":
        """Return a tensor on the same memory, outside the graph."""
        result = Tensor(self.array)
        result._version = self._version
        result._inference = self._inference
        return result

    def detach_(self) -> "Tensor":
        """Take this tensor out of the graph and make it a leaf."""
        if self._view is not None:
            raise InputError("detach_() on a view; use detach().")
        self._node, self._index, self._requires_grad = None, 0, False
        return self

    @property
    def data(self) -> "Tensor":
        """The detached tensor; assigning replaces the memory and keeps the identity."""
        return self.detach()

    @data.setter
    def data(self, value: "Tensor") -> None:
        self.array = value.array

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad)` when the gradient is computed; a returned Tensor replaces it."""
        if not self.requires_grad:
            raise InputError("register_hook on a tensor that does not require gradients.")
        node = self.grad_fn
        if node is not None:
            return RemovableHandle.into(node.hook_table(self._index), hook)
        if self._hooks is None:
            self._hooks = LeafHooks()
        return RemovableHandle.into(self._hooks.before, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(leaf)` each time a backward pass has added to the leaf's grad."""
        if not self.requires_grad or self.grad_fn is not None:
            raise InputError("register_post_accumulate_grad_hook needs a leaf with requires_grad.")
        if self._hooks is None:
            self._hooks = LeafHooks()
        return RemovableHandle.into(self._hooks.after, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this non-leaf tensor in `grad` as well."""
        if not self.requires_grad:
            raise InputError("retain_grad on a tensor that does not require gradients.")
        node = self.grad_fn
        if node is not None:
            node.retain_table()[self._index] = retain_hook(self)

    def _link_view(self, base: "Tensor", spec: Any, attributes: Mapping[str, Any]) -> None:
        """Share the version of `base` if the memory is shared, and remember how to replay."""
        link(self, base, spec, attributes)

    # -- leaving the graph ------------------------------------------------------------------

    def numpy(self) -> Array:
        """Return the NumPy array on the same memory.

        Raises:
            InputError: it requires grad (use detach()) or lies on another device (use cpu()).
        """
        if self.requires_grad:
            raise InputError(
                "numpy() on a tensor that requires gradients; use tensor.detach().numpy()."
            )
        if self.device.type != "cpu":
            raise InputError(f"numpy() on a tensor on {self.device}; use tensor.cpu().numpy().")
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Let NumPy functions read the tensor."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=bool(copy))

    def item(self) -> Any:
        """Return the single element as a Python number."""
        if self.array.size != 1:
            raise InputError(f"item() of a tensor with {self.array.size} elements; it needs one.")
        return self.array.item()

    def tolist(self) -> Any:
        """Return nested lists of Python numbers."""
        return self.array.tolist()

    def __bool__(self) -> bool:
        """Return whether the single element is nonzero."""
        return bool(self.item())

    def __int__(self) -> int:
        """Return the single element as an int."""
        return int(self.item())

    def __float__(self) -> float:
        """Return the single element as a float."""
        return float(self.item())

    def __index__(self) -> int:
        """Let a single integer be an index or a size."""
        if self.dtype.kind == "f":
            raise TypeError(
                "only integer tensors of a single element can be converted to an index."
            )
        return int(self.item())

    def __format__(self, spec: str) -> str:
        """Format a single element as a number, everything else as repr() does."""
        return format(self.item(), spec) if self.numel() == 1 and spec else repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tensor":
        """Copy a leaf with its gradient; the history of a recorded result cannot be copied."""
        if self.grad_fn is not None:
            raise InputError("only leaf tensors can be deep-copied; detach() or clone() this one.")
        result = type(self)(self.array.copy(order="K"), self._requires_grad)
        memo[id(self)] = result
        result.grad = copy.deepcopy(self.grad, memo)
        return result

    def __reduce__(self) -> Any:
        """Pickle as a NumPy array on the CPU."""
        return type(self), (to_numpy(self.array), self._requires_grad)

    def __repr__(self) -> str:
        """Show the values as tensor(...)."""
        text = np.array2string(to_numpy(self.array), separator=", ", prefix="tensor(")
        if str(self.dtype) not in ("float32", "int64", "bool"):
            text += f", dtype={self.dtype}"
        if self.device.type != "cpu":
            text += f", device='{self.device}'"
        if self.grad_fn is not None:
            text += f", grad_fn={self.grad_fn!r}"
        elif self._requires_grad:
            text += ", requires_grad=True"
        return f"tensor({text})"


def _wrap(value: Any) -> Array:
    """Return a NumPy scalar as a 0-dim array; everything else is refused."""
    if isinstance(value, np.generic):
        as_dtype(value.dtype)
        return np.asarray(value)
    raise InputError(
        f"Tensor() wraps a NumPy or CuPy array, not {type(value).__name__}; use tensor(data)."
    )


# Nodes rebuild tensors, and the methods call operators, which need the class above: both learn of
# each other last.
node_module.bind(Tensor)

from midge.core import ops  # noqa: E402

operators.bind(ops)
methods.bind(ops)
