"""Parameter: a tensor that a Module trains."""

from typing import Any

from midge.core.tensor import Tensor


class Parameter(Tensor):
    """A leaf tensor that becomes a parameter of the Module it is assigned to.

    Args:
        data: tensor or array; its memory is shared.
        requires_grad: train it.
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        """Share the memory of `data`."""
        super().__init__(data.array if isinstance(data, Tensor) else data, requires_grad)

    def __repr__(self) -> str:
        """Return the tensor's text with the word in front."""
        return f"Parameter containing:\n{super().__repr__()}"
