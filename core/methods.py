"""Shape, copies and in-place methods of a Tensor; each method hands over to core/ops."""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midge.core import ops
    from midge.core.tensor import Tensor


def bind(module: ModuleType) -> None:
    """Name the module that holds the operators; core/tensor.py does it once Tensor exists."""
    globals()["ops"] = module


def _listed(values: tuple[Any, ...]) -> Sequence[int]:
    """Accept both f(2, 3) and f((2, 3))."""
    return values[0] if len(values) == 1 and not isinstance(values[0], int) else values


class Methods:
    """Base of Tensor beside operators.Operators."""

    __slots__ = ()

    # -- shape ---------------------------------------------------------------------------------

    def reshape(self, *shape: Any) -> "Tensor":
        """Return self in another shape; one size may be -1."""
        return ops.reshape(self, _listed(shape))

    view = reshape

    def permute(self, *dims: Any) -> "Tensor":
        """Return a view with the dims in another order."""
        return ops.permute(self, _listed(dims))

    def transpose(self, dim0: int, dim1: int) -> "Tensor":
        """Return a view with two dims exchanged."""
        return ops.transpose(self, dim0, dim1)

    def t(self) -> "Tensor":
        """Return the transpose of a matrix."""
        return ops.matrix_transpose(self)

    @property
    def T(self) -> "Tensor":  # noqa: N802  PyTorch's name
        """Return the transpose of a matrix."""
        return ops.matrix_transpose(self)

    def expand(self, *shape: Any) -> "Tensor":
        """Return a view repeated along dims of size 1; -1 keeps a size."""
        return ops.expand(self, _listed(shape))

    def squeeze(self, dim: Any = None) -> "Tensor":
        """Return self without dims of size 1."""
        return ops.squeeze(self, dim)

    def unsqueeze(self, dim: int) -> "Tensor":
        """Return self with a dim of size 1 inserted."""
        return ops.unsqueeze(self, dim)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> "Tensor":
        """Return self with the dims start_dim..end_dim joined."""
        return ops.flatten(self, start_dim, end_dim)

    def narrow(self, dim: int, start: int, length: int) -> "Tensor":
        """Return a view of `length` elements from `start` along dim."""
        return ops.narrow(self, dim, start, length)

    def split(self, size: Any, dim: int = 0) -> "tuple[Tensor, ...]":
        """Return views of `size` elements each along dim."""
        return ops.split(self, size, dim)

    def chunk(self, chunks: int, dim: int = 0) -> "tuple[Tensor, ...]":
        """Return at most `chunks` views along dim."""
        return ops.chunk(self, chunks, dim)

    def unbind(self, dim: int = 0) -> "tuple[Tensor, ...]":
        """Return the views along dim, each without it."""
        return ops.unbind(self, dim)

    def __iter__(self) -> "Iterator[Tensor]":
        """Iterate over the first dim."""
        return iter(ops.unbind(self, 0))

    def __getitem__(self, key: Any) -> "Tensor":
        """Return a view (ints, slices, None, ...) or a copy (integer and bool arrays)."""
        return ops.getitem(self, key)

    def index_select(self, dim: int, index: Any) -> "Tensor":
        """Return the entries `index` along dim."""
        return ops.index_select(self, dim, index)

    def gather(self, dim: int, index: Any) -> "Tensor":
        """Return out[i][j] = self[index[i][j]][j] (for dim 0)."""
        return ops.gather(self, dim, index)

    # -- copies, types, devices ----------------------------------------------------------------

    def clone(self) -> "Tensor":
        """Return a copy, in the graph."""
        return ops.clone(self)

    def contiguous(self) -> "Tensor":
        """Return self, or a copy in C order if it is not."""
        return ops.contiguous(self)

    def to(self, *args: Any, dtype: Any = None, device: Any = None) -> "Tensor":
        """Return self in another dtype and on another device; self if nothing changes."""
        return ops.to(self, *args, dtype=dtype, device=device)

    def cpu(self) -> "Tensor":
        """Return self in host memory."""
        return ops.to(self, device="cpu")

    def cuda(self) -> "Tensor":
        """Return self on the first CUDA device."""
        return ops.to(self, device="cuda")

    # -- in place ------------------------------------------------------------------------------

    def add_(self, other: Any, alpha: float = 1) -> "Tensor":
        """Add alpha * other, in place."""
        return ops.add_(self, other, alpha)

    __iadd__ = add_

    def sub_(self, other: Any, alpha: float = 1) -> "Tensor":
        """Subtract alpha * other, in place."""
        return ops.sub_(self, other, alpha)

    __isub__ = sub_

    def mul_(self, other: Any) -> "Tensor":
        """Multiply by other, in place."""
        return ops.mul_(self, other)

    __imul__ = mul_

    def div_(self, other: Any) -> "Tensor":
        """Divide by other, in place."""
        return ops.div_(self, other)

    __itruediv__ = div_

    def copy_(self, other: Any) -> "Tensor":
        """Overwrite with other, in place."""
        return ops.copy_(self, other)

    def fill_(self, value: float) -> "Tensor":
        """Overwrite with one value, in place."""
        return ops.copy_(self, value)

    def zero_(self) -> "Tensor":
        """Overwrite with zeros, in place."""
        return ops.copy_(self, 0)

    def clip_(self, min: float | None = None, max: float | None = None) -> "Tensor":
        """Limit to [min, max], in place."""
        return ops.clip_(self, min, max)

    def relu_(self) -> "Tensor":
        """Overwrite with max(self, 0), in place."""
        return ops.relu_(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Overwrite the part that `key` names, in place."""
        ops.setitem(self, key, value)

    # -- dtypes, last because their names hide the builtins -----------------------------------

    def float(self) -> "Tensor":
        """Return self as float32."""
        return ops.cast(self, "float32")

    def double(self) -> "Tensor":
        """Return self as float64."""
        return ops.cast(self, "float64")

    def half(self) -> "Tensor":
        """Return self as float16."""
        return ops.cast(self, "float16")

    def int(self) -> "Tensor":
        """Return self as int32."""
        return ops.cast(self, "int32")

    def long(self) -> "Tensor":
        """Return self as int64."""
        return ops.cast(self, "int64")

    def bool(self) -> "Tensor":
        """Return self as bool."""
        return ops.cast(self, "bool")
