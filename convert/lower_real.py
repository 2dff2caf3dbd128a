"""Lowers real values that no integer step computes: the float part of a float or mixed graph.

A real value is found like this:

1. dequantized codes, moved or not: a Dequantize of those codes;
2. a float input of the graph: itself; a constant: copied into the arena;
3. Relu or Clip behind a layer that nothing else reads: limits of that layer;
4. DynamicQuantizeLinear, MatMulInteger or ConvInteger, Cast, Mul, Add: one dynamic layer;
5. any operator of FLOAT: a float32 step; one of INTEGER, whose result is an integer or a truth.
   ArgMax and ArgMin of dequantized codes compare the codes.

Anything else is refused by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_dynamic import DynamicLayer, find_dynamic, lower_dynamic
from midge.convert.lower_float_elementwise import ELEMENTWISE_F32
from midge.convert.lower_float_layers import LAYERS_F32, Layer, takes_limits
from midge.convert.lower_float_moves import MOVES_F32
from midge.convert.lower_float_norms import NORMS_F32, Moments
from midge.convert.lower_float_pools import POOLS_F32
from midge.convert.lower_float_values import constant_step
from midge.convert.lower_general import (
    GENERAL_F32,
    INTEGER,
    compared_codes,
    file_dtype,
    is_word,
    operands,
)
from midge.convert.lower_grid import GRID
from midge.convert.lower_params import fail, is_quantize, real_constant
from midge.convert.lower_program import Stored
from midge.convert.lower_recurrent import RECURRENT
from midge.convert.lower_resize import RESIZE
from midge.convert.lower_scatter import SCATTER_F32
from midge.convert.lower_target import limits_of
from midge.convert.plan import Dequantize
from midge.convert.plan_float import UNLIMITED, Limits
from midge.convert.plan_general import ConstantS32
from midge.core.errors import InputError

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

SHOWN = 5  # operators named in a notice
Step = Callable[["Lowering", ir.Node, int], Stored]
FLOAT: dict[str, Step] = {
    **ELEMENTWISE_F32,
    **MOVES_F32,
    **POOLS_F32,
    **NORMS_F32,
    **RECURRENT,
    **GENERAL_F32,
    **RESIZE,
    **GRID,
    **SCATTER_F32,
}


@dataclass(frozen=True, slots=True)
class _Found:
    """How a real value is computed.

    Args:
        node: the operator that computes it.
        limits: of a Relu or Clip behind that operator.
        operands: real values needed first.
        dynamic: the layer of an integer product, where it is one.
    """

    node: ir.Node
    limits: Limits
    operands: list[ir.Value]
    dynamic: DynamicLayer | None = None


class Reals:
    """The real values of one lowering that are in the program.

    Args:
        low: the lowering.
    """

    def __init__(self, low: "Lowering") -> None:
        """Begin with none; remember where each node stands."""
        self._low = low
        self._known: dict[ir.Value, Stored] = {}
        self._found: dict[ir.Value, _Found | None] = {}
        self._position = {node: i for i, node in enumerate(low.model.graph)}
        self.computed: list[ir.Node] = []  # operators that became float steps, in order
        self.recurrent: dict[tuple[ir.Node, int], Stored] = {}  # layer, direction -> its steps
        self.moments: dict[ir.Node, Moments] = {}  # LayerNormalization -> what normalizes
        self.tops: dict[ir.Node, Stored] = {}  # TopK -> its indices
        self.quantized: dict[int, int] = {}  # float tensor -> its codes of a DynamicQuantize

    def of(self, value: ir.Value) -> Stored:
        """Return a real value as float32, adding the steps that compute it.

        Raises:
            UnsupportedError: an operator has no float step, named.
        """
        for needed in self._missing(value):
            self._known[needed] = self._add(needed)
        return self._known[value]

    def _missing(self, value: ir.Value) -> list[ir.Value]:
        """Return what must be computed for a value, itself included, in graph order."""
        needed: dict[ir.Value, None] = {}
        waiting = [value]
        while waiting:
            v = waiting.pop()
            if v not in self._known and v not in needed:
                needed[v] = None
                found = self._find(v)
                waiting += found.operands if found else []
        return sorted(needed, key=self._order)

    def _order(self, value: ir.Value) -> int:
        node = value.producer()
        return -1 if node is None else self._position[node]

    def _find(self, value: ir.Value) -> _Found | None:
        """Return how a value is computed, None where nothing has to be."""
        if value not in self._found:
            self._found[value] = self._search(value)
        return self._found[value]

    def _search(self, value: ir.Value) -> _Found | None:
        node = value.producer()
        known = real_constant(value) is not None or g.is_constant(value)
        if node is None or known or self._low.natural(value) is not None:
            return None
        limits, layer = UNLIMITED, node
        bounds, source = limits_of(node), node.inputs[0] if node.inputs else None
        if bounds is not None and source is not None and g.sole_consumer(source) is node:
            maker = source.producer()
            if maker is not None and self._takes_limits(maker, source):
                limits, layer = Limits(*bounds), maker
        dynamic = find_dynamic(layer)
        if dynamic is not None:
            return _Found(layer, limits, [dynamic.x], dynamic)
        on_codes = compared_codes(self._low, layer) is not None
        return _Found(layer, limits, [] if on_codes else operands(layer))

    def _takes_limits(self, node: ir.Node, value: ir.Value) -> bool:
        """Tell whether a Relu or Clip may join the operator that computes a value."""
        if self._low.natural(value) is not None:
            return False
        return find_dynamic(node) is not None or takes_limits(node)

    def _add(self, value: ir.Value) -> Stored:
        low, found = self._low, self._find(value)
        if found is None:
            return self._given(value)
        name = g.name_of(value)
        if compared_codes(low, found.node) is None:
            self.computed.append(found.node)
        if found.dynamic is not None:
            return lower_dynamic(low, found.dynamic, name, found.limits)
        if g.is_op(found.node, *LAYERS_F32):
            return LAYERS_F32[found.node.op_type](low, Layer(found.node, name, found.limits))
        table = FLOAT if g.is_float(value) else INTEGER
        if not g.is_op(found.node, *table) or not is_word(value):
            raise no_form(value)
        return table[found.node.op_type](low, found.node, found.node.outputs.index(value))

    def _given(self, value: ir.Value) -> Stored:
        """Return an input, a constant, or codes made real."""
        low, name = self._low, g.name_of(value)
        stored = low.natural(value)
        if stored is not None:
            layout = lay.spelt(stored.shape, stored.layout)
            y = low.program.new(name, stored.shape, layout, None)
            step = Dequantize(stored.stored_codes)
            return low.program.op(f"{name}_dequantize", step, [stored.tensor], y)
        array = real_constant(value) if g.is_float(value) else g.constant(value)
        if array is not None:
            return (
                constant_step(low, name, array) if g.is_float(value) else self.constant(name, array)
            )
        if value in low.codes:
            return low.codes[value]
        raise InputError(
            f"tensor {name!r} is an input or a constant that midge cannot compute with."
        )

    def constant(self, name: str, array: g.Array) -> Stored:
        """Copy an integer or truth into the arena.

        Raises:
            InputError: it is outside of int32.
        """
        wide = array.astype(np.int64)
        words = wide.astype(np.int32)
        if np.any(words != wide):
            raise InputError(
                f"constant {name!r} holds integers outside of int32, which C has here."
            )
        y = self._low.program.new(name, array.shape, lay.identity(array.shape), None, dtype="int32")
        return self._low.program.op(f"{name}_constant", ConstantS32(words), [], y)

    def output(self, value: ir.Value) -> Stored:
        """Return a real graph output, in the file's order and under its name."""
        low, name, shape = self._low, g.name_of(value), self._low.shape(value)
        stored = low.program.reorder(self.of(value), lay.identity(shape), "in_order")
        tensor = low.program.tensors[stored.tensor]
        order = tuple(range(len(shape)))
        named = replace(
            tensor,
            name=name,
            file_dtype=file_dtype(value),
            shape=shape,
            layout=order,
            file_shape=shape,
        )
        if named == tensor:
            return stored
        low.program.tensors.append(named)
        return Stored(len(low.program.tensors) - 1, shape, lay.identity(shape))

    def notices(self) -> list[str]:
        """Return a line about what a quantized model still computes in float."""
        quantized = any(is_quantize(node) for node in self._low.model.graph)
        if not quantized or not self.computed:
            return []
        names = [f"{g.label(node)} ({g.operator(node)})" for node in self.computed]
        more = "" if len(names) <= SHOWN else ", ..."
        what = "operator is" if len(names) == 1 else "operators are"
        shown = ", ".join(names[:SHOWN])
        return [f"{len(names)} {what} computed in float32: {shown}{more}."]


def no_form(value: ir.Value) -> InputError:
    """Return the error for a value that midge cannot compute."""
    node = value.producer()
    if node is None:
        return InputError(f"tensor {value.name!r} is {value.dtype}; midge computes float32 values.")
    remedy = "rewrite it with supported operators, or end the compiled part before it"
    if value.dtype not in (None, ir.DataType.FLOAT):
        return fail(node, f"its output {value.name!r} is {value.dtype}", remedy)
    return fail(node, "midge has neither an integer nor a float form of it", remedy)
