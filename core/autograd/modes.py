"""Thread-local switches: whether operators record a graph, and who else listens to them."""

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Listener(Protocol):
    """What runs an operator in the place of `opspec.apply`: a tracer."""

    def apply(self, spec: Any, inputs: Any, attributes: Any) -> Any:
        """Run and record one operator."""


class Packing(Protocol):
    """What keeps the saved tensors of a region in another way: a checkpoint."""

    def pack(self, array: Any, version: list[int]) -> Any:
        """Return a handle for an array that a node wants to keep."""

    def unpack(self, handle: Any) -> tuple[Any, list[int]]:
        """Return the array of a handle and its version counter."""


class State(threading.local):
    """One per thread.

    Attributes:
        grad: operators record nodes.
        inference: new tensors can never take part in autograd.
        tracer: the tracer that runs the operators, or None.
        packing: who keeps saved tensors, or None for the node itself.
    """

    grad: bool = True
    inference: bool = False
    tracer: Listener | None = None
    packing: Packing | None = None


STATE = State()


class _Mode:
    """A context manager, re-entrant, that is also a decorator."""

    _grad = True
    _inference: bool | None = None

    def __init__(self) -> None:
        self._previous: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        self._previous.append((STATE.grad, STATE.inference))
        self._switch()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        STATE.grad, STATE.inference = self._previous.pop()

    def __call__(self, function: F) -> F:
        """Run the decorated function in this mode."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # One mode object serves every call and thread of the function, so state stays local.
            previous = STATE.grad, STATE.inference
            self._switch()
            try:
                return function(*args, **kwargs)
            finally:
                STATE.grad, STATE.inference = previous

        return wrapped  # type: ignore[return-value]  # same signature as `function`

    def _switch(self) -> None:
        STATE.grad = self._grad
        if self._inference is not None:
            STATE.inference = self._inference


class no_grad(_Mode):  # noqa: N801  PyTorch's name
    """Operators inside record no graph; `with no_grad():` or `@no_grad()`."""

    _grad = False


class enable_grad(_Mode):  # noqa: N801  PyTorch's name
    """Operators inside record a graph again."""

    _grad = True


class set_grad_enabled(_Mode):  # noqa: N801  PyTorch's name
    """Switch recording on or off by a flag, at once or for a `with` block."""

    def __init__(self, mode: bool) -> None:
        """Switch at once."""
        super().__init__()
        self._grad = mode
        self._before = STATE.grad, STATE.inference
        STATE.grad = mode

    def __enter__(self) -> None:
        """Keep the switch for a block, then return to what was before it."""
        self._previous.append(self._before)
        STATE.grad = self._grad

    def __call__(self, function: F) -> F:
        """Run the decorated function in this mode."""
        STATE.grad = self._before[0]
        return super().__call__(function)


class inference_mode(_Mode):  # noqa: N801  PyTorch's name
    """Like no_grad, and tensors made inside can never be saved for a backward pass."""

    _grad = False
    _inference = True

    def __init__(self, mode: bool = True) -> None:
        """Switch inference mode on, or off again inside of it."""
        super().__init__()
        if not mode:
            self._grad, self._inference = True, False


def is_grad_enabled() -> bool:
    """Tell whether operators record a graph in this thread."""
    return STATE.grad


def is_inference_mode_enabled() -> bool:
    """Tell whether this thread is inside `inference_mode`."""
    return STATE.inference
