"""What the row of an operator knows of its node, and the questions that rows ask of operands."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.core import ops
from midge.core.backend import Array, to_numpy
from midge.core.device import move
from midge.core.dtypes import DType, as_dtype
from midge.core.errors import InputError, UnsupportedError
from midge.core.tensor import Tensor

Ints: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One node of the imported graph.

    Args:
        node: the operator with its attributes, without its neighbours.
        outputs: how many outputs are wanted, counted up to the last that has a name.
        training: the module is in train() mode.
    """

    node: ir.Node
    outputs: int
    training: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Call":
        """Return itself: nothing in it changes."""
        return self

    @property
    def label(self) -> str:
        """The node's name."""
        return g.label(self.node)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or the default where it is absent."""
        return g.attribute(self.node, name, default)

    def fail(self, why: str, remedy: str) -> UnsupportedError:
        """Return the error that names the node, what is wrong and what to do."""
        return UnsupportedError(f"{self.label} ({g.operator(self.node)}): {why}; {remedy}.")


# From a call and its operands, None for one that is absent, to one output or a tuple of them.
Row: TypeAlias = Callable[..., Any]
Table: TypeAlias = Mapping[str, Row]


def plain(function: Callable[..., Any]) -> Row:
    """Make a row of a function of tensors."""
    return lambda call, *operands: function(*operands)


def array(x: Tensor) -> Array:
    """Return the values of an operand that steers the operator.

    Raises:
        InputError: a trace is running and they depend on its inputs.
    """
    return to_numpy(x.array)


def ints(x: Tensor) -> Ints:
    """Return the values of a shape, of axes or the like."""
    return tuple(int(v) for v in array(x).reshape(-1))


def number(x: Tensor) -> float:
    """Return the value of a one-element operand."""
    return float(array(x).reshape(-1)[0])


def beside(x: Tensor, value: Any, dtype: DType | None = None) -> Tensor:
    """Return a constant on the device of x, in its dtype unless another is given."""
    return Tensor(move(np.asarray(value, x.dtype if dtype is None else dtype), x.device))


def dtype_of(call: Call, kind: int) -> DType:
    """Return the dtype for the number of an ONNX element type.

    Raises:
        UnsupportedError: midge has no such tensors.
    """
    found = ir.DataType(kind)
    try:
        return as_dtype(found.numpy())
    except (InputError, TypeError) as error:
        name = found.name.lower()
        raise call.fail(
            f"it makes {name} tensors", "use float32, an integer type or bool"
        ) from error


@np.errstate(all="ignore")
def exact(function: Callable[..., Any], *operands: Tensor) -> Tensor:
    """Return a function of the arrays of integers or truths, which has no gradient.

    Raises:
        InputError: a trace is running and the operands depend on its inputs.
    """
    return Tensor(np.asarray(function(*(array(x) for x in operands))))


def root(x: Tensor, p: float = 2) -> Tensor:
    """Return x ** (1 / p) for x >= 0, with gradient 0 at 0: infinity would end in NaN."""
    zero = ops.eq(x, 0)
    safe = ops.where(zero, 1, x)
    return ops.where(zero, 0, ops.sqrt(safe) if p == 2 else ops.pow(safe, 1 / p))


def axis_of(call: Call, ndim: int, default: int = 0, name: str = "axis") -> int:
    """Return an attribute that names an axis, not negative."""
    axis = int(call.get(name, default))
    if not -ndim <= axis <= ndim:
        raise InputError(f"{name} {axis} lies outside the {ndim} axes of its input.")
    return axis % ndim if axis < ndim else axis


def axes_of(call: Call, axes: Tensor | None, ndim: int) -> Ints | None:
    """Return the axes that an operand or, in older opsets, an attribute names; None for neither."""
    given: Sequence[int] | None = call.get("axes") if axes is None else ints(axes)
    return None if given is None else tuple(a % max(ndim, 1) for a in given)
