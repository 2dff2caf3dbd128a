"""Gradient checkpointing: keep the inputs of a region, compute the rest again for backward."""

from collections.abc import Callable
from typing import Any

from midge.core.autograd.modes import STATE, enable_grad
from midge.core.backend import Array
from midge.core.errors import InputError
from midge.core.random import get_rng_state, set_rng_state
from midge.core.tensor import Tensor

Kept = tuple[Array, list[int]]


def checkpoint(
    function: Callable[..., Any], *args: Any, preserve_rng_state: bool = True, **kwargs: Any
) -> Any:
    """Return function(*args, **kwargs) without keeping what its nodes save.

    The nodes stay, so gradients of any order and of parameters used inside work as usual; the
    function runs once more when the first of them is asked for its saved tensors. It must do the
    same both times.

    Args:
        function: the region.
        args: its arguments; kept until backward.
        preserve_rng_state: draw the same random numbers again.
        kwargs: its keyword arguments.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """
    if not STATE.grad or STATE.tracer is not None:
        return function(*args, **kwargs)
    region = _Region(function, args, kwargs, preserve_rng_state)
    previous = STATE.packing
    STATE.packing = region
    try:
        return function(*args, **kwargs)
    finally:
        STATE.packing = previous


class _Region:
    """Counts what the first run saves and, on demand, collects the same of a second run."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, preserve_rng_state: bool
    ) -> None:
        """Describe the region; nothing runs yet."""
        self.function, self.args, self.kwargs = function, args, kwargs
        self.rng_state = get_rng_state() if preserve_rng_state else None
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        self.versions = [(t, t.array, t._version[0]) for t in tensors]
        self.shapes: list[tuple[int, ...]] = []
        self.again: list[Kept] | None = None
        self.left = 0

    def pack(self, array: Array, version: list[int]) -> int:
        """Number a saved array instead of keeping it."""
        self.shapes.append(array.shape)
        self.left += 1
        return len(self.shapes) - 1

    def unpack(self, handle: int) -> Kept:
        """Return a saved array of the second run."""
        if self.again is None:
            self.again = self._run_again()
        kept = self.again[handle]
        self.left -= 1
        if self.left == 0:  # everything was asked for once: free the arrays
            self.again, self.left = None, len(self.shapes)
        return kept

    def _run_again(self) -> list[Kept]:
        for tensor, array, version in self.versions:
            if tensor.array is not array or tensor._version[0] != version:
                raise InputError(
                    "checkpoint: an argument was modified in place before backward; the region "
                    "cannot be computed again. Use the out-of-place form."
                )
        collector = _Collector()
        previous, state = STATE.packing, get_rng_state()
        if self.rng_state is not None:
            set_rng_state(self.rng_state)
        # Detached inputs, so that the second run hangs on nothing outside of it.
        args = [_detached(a) for a in self.args]
        kwargs = {name: _detached(a) for name, a in self.kwargs.items()}
        STATE.packing = collector
        try:
            with enable_grad():
                self.function(*args, **kwargs)
        finally:
            STATE.packing = previous
            set_rng_state(state)
        shapes = [array.shape for array, _ in collector.kept]
        if shapes != self.shapes:
            raise InputError(
                f"checkpoint: the second run saved {len(shapes)} tensors, the first "
                f"{len(self.shapes)}, or of other shapes; the function must do the same each time."
            )
        return collector.kept


class _Collector:
    """Keeps what a run saves, in order."""

    def __init__(self) -> None:
        """Start empty."""
        self.kept: list[Kept] = []

    def pack(self, array: Array, version: list[int]) -> Kept:
        """Keep an array."""
        self.kept.append((array, version))
        return self.kept[-1]

    def unpack(self, handle: Kept) -> Kept:
        """Return it."""
        return handle


def _detached(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    result = value.detach()
    result._requires_grad = value.requires_grad
    return result
