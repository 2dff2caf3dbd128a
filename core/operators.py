"""Arithmetic, comparison and reduction of a Tensor; each method hands over to core/ops."""

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midge.core import ops
    from midge.core.tensor import Tensor


def bind(module: ModuleType) -> None:
    """Name the module that holds the operators; core/tensor.py does it once Tensor exists."""
    globals()["ops"] = module


class Operators:
    """Base of Tensor. Operands may be Tensors, NumPy or CuPy arrays, or Python numbers."""

    __slots__ = ()
    __hash__ = object.__hash__
    __array_ufunc__ = None  # an array on the left leaves the work to the Tensor on the right

    # -- arithmetic -------------------------------------------------------------------------

    def add(self, other: Any) -> "Tensor":
        """Return self + other."""
        return ops.add(self, other)

    __add__ = __radd__ = add

    def sub(self, other: Any) -> "Tensor":
        """Return self - other."""
        return ops.sub(self, other)

    __sub__ = sub

    def __rsub__(self, other: Any) -> "Tensor":
        """Return other - self."""
        return ops.sub(other, self)

    def mul(self, other: Any) -> "Tensor":
        """Return self * other."""
        return ops.mul(self, other)

    __mul__ = __rmul__ = mul

    def div(self, other: Any) -> "Tensor":
        """Return self / other; integers are divided in float32."""
        return ops.div(self, other)

    __truediv__ = div

    def __rtruediv__(self, other: Any) -> "Tensor":
        """Return other / self."""
        return ops.div(other, self)

    def pow(self, other: Any) -> "Tensor":
        """Return self ** other."""
        return ops.pow(self, other)

    __pow__ = pow

    def __rpow__(self, other: Any) -> "Tensor":
        """Return other ** self."""
        return ops.pow(other, self)

    def matmul(self, other: Any) -> "Tensor":
        """Return the matrix product self @ other."""
        return ops.matmul(self, other)

    __matmul__ = matmul

    def __rmatmul__(self, other: Any) -> "Tensor":
        """Return the matrix product other @ self."""
        return ops.matmul(other, self)

    def neg(self) -> "Tensor":
        """Return -self."""
        return ops.neg(self)

    __neg__ = neg

    def abs(self) -> "Tensor":
        """Return the absolute value."""
        return ops.abs(self)

    __abs__ = abs

    # -- comparison: bool tensors --------------------------------------------------------------

    def eq(self, other: Any) -> Any:
        """Return where self == other; False for None."""
        return NotImplemented if other is None else ops.eq(self, other)

    def ne(self, other: Any) -> Any:
        """Return where self != other; True for None."""
        return NotImplemented if other is None else ops.ne(self, other)

    def lt(self, other: Any) -> "Tensor":
        """Return where self < other."""
        return ops.lt(self, other)

    def le(self, other: Any) -> "Tensor":
        """Return where self <= other."""
        return ops.le(self, other)

    def gt(self, other: Any) -> "Tensor":
        """Return where self > other."""
        return ops.gt(self, other)

    def ge(self, other: Any) -> "Tensor":
        """Return where self >= other."""
        return ops.ge(self, other)

    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = eq, ne, lt, le, gt, ge

    def logical_not(self) -> "Tensor":
        """Return where self is zero."""
        return ops.logical_not(self)

    __invert__ = logical_not

    def logical_and(self, other: Any) -> "Tensor":
        """Return where both are nonzero."""
        return ops.logical_and(self, other)

    __and__ = logical_and

    def logical_or(self, other: Any) -> "Tensor":
        """Return where one is nonzero."""
        return ops.logical_or(self, other)

    __or__ = logical_or

    # -- functions of one element --------------------------------------------------------------

    def exp(self) -> "Tensor":
        """Return e ** self."""
        return ops.exp(self)

    def log(self) -> "Tensor":
        """Return the natural logarithm."""
        return ops.log(self)

    def sqrt(self) -> "Tensor":
        """Return the square root."""
        return ops.sqrt(self)

    def tanh(self) -> "Tensor":
        """Return the hyperbolic tangent."""
        return ops.tanh(self)

    def sigmoid(self) -> "Tensor":
        """Return 1 / (1 + exp(-self))."""
        return ops.sigmoid(self)

    def relu(self) -> "Tensor":
        """Return max(self, 0); the gradient at 0 is 0."""
        return ops.relu(self)

    def sign(self) -> "Tensor":
        """Return -1, 0 or 1."""
        return ops.sign(self)

    def clip(self, min: float | None = None, max: float | None = None) -> "Tensor":
        """Return self limited to [min, max]; the gradient passes at the bounds."""
        return ops.clip(self, min, max)

    clamp = clip

    def maximum(self, other: Any) -> "Tensor":
        """Return the larger of each pair."""
        return ops.maximum(self, other)

    def minimum(self, other: Any) -> "Tensor":
        """Return the smaller of each pair."""
        return ops.minimum(self, other)

    def softmax(self, dim: int) -> "Tensor":
        """Return exp(self) / sum(exp(self)) along dim."""
        return ops.softmax(self, dim)

    def log_softmax(self, dim: int) -> "Tensor":
        """Return log(softmax(self)) along dim."""
        return ops.log_softmax(self, dim)

    # -- reductions; dim None means all --------------------------------------------------------

    def sum(self, dim: Any = None, keepdim: bool = False) -> "Tensor":
        """Return the sum."""
        return ops.sum(self, dim, keepdim)

    def mean(self, dim: Any = None, keepdim: bool = False) -> "Tensor":
        """Return the mean."""
        return ops.mean(self, dim, keepdim)

    def amax(self, dim: Any = None, keepdim: bool = False) -> "Tensor":
        """Return the largest elements; ties share the gradient."""
        return ops.amax(self, dim, keepdim)

    def amin(self, dim: Any = None, keepdim: bool = False) -> "Tensor":
        """Return the smallest elements; ties share the gradient."""
        return ops.amin(self, dim, keepdim)

    def any(self, dim: Any = None, keepdim: bool = False) -> "Tensor":
        """Return whether an element is nonzero."""
        return ops.any(self, dim, keepdim)

    def all(self, dim: Any = None, keepdim: bool = False) -> "Tensor":
        """Return whether every element is nonzero."""
        return ops.all(self, dim, keepdim)

    def max(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Return the largest element, or with dim a pair (values, indices)."""
        return ops.max(self, dim, keepdim)

    def min(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Return the smallest element, or with dim a pair (values, indices)."""
        return ops.min(self, dim, keepdim)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> "Tensor":
        """Return the index of the first largest element."""
        return ops.argmax(self, dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> "Tensor":
        """Return the index of the first smallest element."""
        return ops.argmin(self, dim, keepdim)

    def var(self, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> "Tensor":
        """Return the variance."""
        return ops.var(self, dim, unbiased, keepdim)

    def std(self, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> "Tensor":
        """Return the standard deviation."""
        return ops.std(self, dim, unbiased, keepdim)
