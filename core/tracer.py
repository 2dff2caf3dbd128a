"""The tensors and the recorder of a trace; core/trace.py is the way in."""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from midge.core.autograd.node import Node
from midge.core.backend import Array
from midge.core.device import Device, device_of
from midge.core.dtypes import DType
from midge.core.errors import InputError
from midge.core.opspec import OpSpec, as_array, explain
from midge.core.tensor import Tensor


@dataclass(frozen=True, slots=True)
class TraceValue:
    """A tensor of the graph.

    Args:
        name: unique name.
        shape: sizes in the traced run.
        dtype: name of the dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One operator of the graph.

    Args:
        op: OpSpec name.
        name: module path such as "block1.conv", made unique, or "op_N" outside of any module.
        inputs: names of values or constants, None for an absent optional input.
        outputs: names of values.
        attributes: canonical keyword attributes.
    """

    op: str
    name: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


_slot: Any = Tensor.__dict__["array"]


def user_line() -> str:
    """Return file:line of the innermost frame outside of midge.core."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("midge.core"):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _refuse(what: str) -> NoReturn:
    raise InputError(
        f"{user_line()}: {what} of a traced value would freeze it into the graph; express the "
        "computation in tensor operators, or trace the branches one by one."
    )


class TracedTensor(Tensor):
    """A tensor whose values depend on the inputs of a trace: shape and dtype are known, no more."""

    __slots__ = ()

    @property
    def array(self) -> Array:
        """Refuse: the values are not known."""
        _refuse("reading the array")

    @array.setter
    def array(self, value: Array) -> None:
        _slot.__set__(self, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions in this run."""
        shape: tuple[int, ...] = _slot.__get__(self).shape
        return shape

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        dtype: DType = _slot.__get__(self).dtype
        return dtype

    @property
    def device(self) -> Device:
        """Where the elements lie."""
        return device_of(_slot.__get__(self))

    def is_contiguous(self) -> bool:
        """Say yes: memory order is no part of a graph."""
        return True

    def numel(self) -> int:
        """Return the number of elements."""
        return int(_slot.__get__(self).size)

    def detach(self) -> Tensor:
        """Return itself: a traced graph has no gradients."""
        return self

    def clone(self) -> Tensor:
        """Return itself: values in a graph never change."""
        return self

    def __bool__(self) -> bool:
        """Refuse a Python branch."""
        _refuse("a Python branch on the truth")

    def __int__(self) -> int:
        """Refuse."""
        _refuse("int()")

    def __float__(self) -> float:
        """Refuse."""
        _refuse("float()")

    def __index__(self) -> int:
        """Refuse."""
        _refuse("an index made")

    def __iter__(self) -> Iterator[Tensor]:
        """Refuse: the number of steps would be frozen."""
        _refuse("iteration")

    def item(self) -> Any:
        """Refuse."""
        _refuse("item()")

    def tolist(self) -> Any:
        """Refuse."""
        _refuse("tolist()")

    def numpy(self) -> Array:
        """Refuse."""
        _refuse("numpy()")

    def __repr__(self) -> str:
        """Show shape and dtype."""
        return f"traced({list(self.shape)}, {self.dtype})"


class Tracer:
    """Runs and records the operators of one trace.

    Args:
        tensors: parameters and buffers by their dotted names.
        modules: per id of a module, its dotted name and whether it has children.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], modules: Mapping[int, tuple[str, bool]]
    ) -> None:
        """Start an empty graph."""
        self.modules = modules
        self.names = {id(tensor): name for name, tensor in tensors.items()}
        self.nodes: list[TraceNode] = []
        self.values: dict[str, TraceValue] = {}
        self.constants: dict[str, Tensor] = {}
        self.keep: list[Tensor] = []  # an id stays valid while its tensor lives
        self.scopes: list[tuple[str, bool]] = [("", True)]
        self.used = set(tensors)
        self.count = 0

    def wrap(self, array: Array, name: str) -> TracedTensor:
        """Return a new value of the graph."""
        tensor = TracedTensor(array)
        self.keep.append(tensor)
        self.names[id(tensor)] = name
        self.values[name] = TraceValue(name, tensor.shape, str(tensor.dtype))
        return tensor

    def apply(
        self, spec: OpSpec, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any]
    ) -> Any:
        """Run one operator; record it if an operand depends on the graph's inputs."""
        arrays = [None if t is None else _slot.__get__(t) for t in inputs]
        ctx = Node(spec, attributes, (False,) * len(inputs))
        try:
            result = spec.forward(ctx, *arrays, **attributes)
        except (ValueError, TypeError) as error:
            raise explain(spec, arrays, error) from None
        several = isinstance(result, tuple)
        results = [as_array(r, arrays) for r in (result if several else (result,))]
        if any(isinstance(t, TracedTensor) for t in inputs):
            outputs = self._record(spec, inputs, results, attributes)
        else:
            outputs = tuple(Tensor(r) for r in results)
        return outputs if several else outputs[0]

    def _record(
        self,
        spec: OpSpec,
        inputs: Sequence[Tensor | None],
        results: Sequence[Array],
        attributes: Mapping[str, Any],
    ) -> tuple[Tensor, ...]:
        op = spec.traced_as or spec.name
        path, has_children = self.scopes[-1]
        if not path:
            name, self.count = f"op_{self.count}", self.count + 1
        else:
            name = f"{path}.{op}" if has_children else path
        name = self._unique(name)
        names = [name] + [self._unique(f"{name}.{i}") for i in range(1, len(results))]
        operands = tuple(None if t is None else self.name_of(t) for t in inputs)
        self.nodes.append(TraceNode(op, name, operands, tuple(names), dict(attributes)))
        return tuple(self.wrap(r, n) for r, n in zip(results, names, strict=True))

    def name_of(self, tensor: Tensor) -> str:
        """Return the name of a value, or register a constant."""
        name = self.names.get(id(tensor))
        if name is None:
            if isinstance(tensor, TracedTensor):
                raise InputError("a tensor of another trace is used in this one.")
            name = self._unique(f"constant_{len(self.constants)}")
            self.names[id(tensor)] = name
            self.keep.append(tensor)
        if not isinstance(tensor, TracedTensor):
            self.constants.setdefault(name, tensor.detach())
        return name

    def _unique(self, name: str) -> str:
        """Return `name`, with a number behind it if it is taken."""
        numbered = (f"{name}_{i}" for i in itertools.count(1))
        free = next(c for c in itertools.chain((name,), numbered) if c not in self.used)
        self.used.add(free)
        return free
