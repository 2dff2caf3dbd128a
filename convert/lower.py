"""From an ONNX graph to a Plan: quantized (QuantizeLinear/DequantizeLinear), float, or both.

Every QuantizeLinear asks for the codes of a real value. Those are found by looking back from it:

1. a value that is dequantized codes, moved or not: the codes themselves, or a table that rescales;
2. Relu and Clip: saturation limits of what stands before them;
3. an operator that only moves elements: its operands are quantized first, then the codes move;
4. a function of one such value: a table of 256 codes;
5. a layer of dequantized operands: one integer step (COMPUTE);
6. anything else is a real value (lower_real.py), which a Quantize step turns into codes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.canonical import canonicalize
from midge.convert.lower_bind import bind_batch
from midge.convert.lower_dynamic import PRODUCTS
from midge.convert.lower_general import file_dtype, is_word
from midge.convert.lower_layers import LAYERS
from midge.convert.lower_moves import MOVES, carriers, move, moves_codes
from midge.convert.lower_pairs import PAIRS
from midge.convert.lower_params import (
    activation_params,
    dequantizes_constant,
    fail,
    is_dequantize,
    is_quantize,
    real_constant,
)
from midge.convert.lower_pools import POOLS, float_softmax
from midge.convert.lower_prelu import PRELU
from midge.convert.lower_program import Program, Stored
from midge.convert.lower_real import Reals, no_form
from midge.convert.lower_reductions import REDUCTIONS
from midge.convert.lower_seams import in_codes
from midge.convert.lower_tables import table_of, unary
from midge.convert.lower_target import Target, limits_of
from midge.convert.plan import Constant, Dequantize, FlipSign, Plan, Quantize, Table
from midge.convert.spell_codes import spell_codes
from midge.core.errors import InputError
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

CODE_TYPES = (ir.DataType.INT8, ir.DataType.UINT8)
COMPUTE: dict[str, Callable[["Lowering", ir.Node, Target], Stored]] = {
    **LAYERS,
    **PAIRS,
    **POOLS,
    **PRELU,
    **REDUCTIONS,
}


def lower(model: ir.Model, *, name: str, batch: int = 1) -> Plan:
    """Lower a model; the model itself is not changed.

    Args:
        model: as read: quantized (QDQ or dynamic), float, or partly both.
        name: of the Plan.
        batch: what an unknown leading dimension is bound to.

    Returns:
        The Plan, not placed in an arena yet.

    Raises:
        UnsupportedError: a node has no form that midge computes, named.
    """
    bound, notices = bind_batch(model, batch)
    if not any(is_quantized(node) for node in bound.graph):
        canonicalize(bound)
    spell_codes(bound)
    return Lowering(bound, notices).run(name)


@dataclass(slots=True)
class Lowering:
    """One run over one model."""

    model: ir.Model
    notices: list[str]
    program: Program
    codes: dict[ir.Value, Stored]
    reals: Reals
    _natural: dict[ir.Value, Stored | None]
    _quantized: dict[tuple[ir.Value, QuantParams], Stored]

    def __init__(self, model: ir.Model, notices: list[str]) -> None:
        """Begin with an empty program."""
        self.model, self.notices = model, notices
        self.program, self.codes, self._natural, self._quantized = Program(), {}, {}, {}
        self.reals = Reals(self)

    def run(self, name: str) -> Plan:
        """Lower every node, in order."""
        graph = self.model.graph
        inputs = [self._input(value).tensor for value in graph.inputs]
        for node in graph:
            if is_quantize(node) and dequantizes_constant_of(node) is None:
                self._quantize_node(node)
            elif makes_codes(node):
                self._move_codes(node)
        outputs = [self._output(value).tensor for value in graph.outputs]
        self.notices += self.reals.notices()
        return self.program.plan(name, inputs, outputs, self.notices)

    def shape(self, value: ir.Value) -> tuple[int, ...]:
        """Return a value's shape.

        Raises:
            UnsupportedError: it is not known or empty.
        """
        shape, node = g.static_dims(value), value.producer()
        if shape is None or (0 in shape and value.uses() and not g.is_constant(value)):
            raise InputError(
                f"tensor {value.name!r} of {g.label(node) if node else 'the inputs'} has shape "
                f"{value.shape}; midge needs known sizes above 0: give --input-shape."
            )
        return shape

    def _input(self, value: ir.Value) -> Stored:
        """Add a graph input; codes are made int8."""
        shape, name = self.shape(value), g.name_of(value)
        layout = lay.identity(shape)
        if value.dtype == ir.DataType.FLOAT:
            stored = self.program.new(name, shape, layout, None)
            self.codes[value] = stored
            return stored
        if is_word(value):
            return self._words(value, name, shape)
        if value.dtype not in CODE_TYPES:
            raise InputError(
                f"input {name!r} is {value.dtype}; midge compiles float32, int8, uint8, int32, "
                "int64 and bool inputs."
            )
        params = self.params_of_codes(value)
        if params is None:
            raise InputError(f"input {name!r}: no DequantizeLinear says what its codes mean.")
        stored = self.program.new(name, shape, layout, params, dtype=params.dtype)
        self.program.named.add(stored.tensor)
        self.codes[value] = stored
        if params.dtype == "uint8":
            signed = self.program.new(f"{name}_s8", shape, layout, params)
            self.codes[value] = self.program.op(f"{name}_flip", FlipSign(), [stored.tensor], signed)
        return stored

    def _words(self, value: ir.Value, name: str, shape: tuple[int, ...]) -> Stored:
        """Add an input of integers or truths, int32 in C."""
        stored = self.program.new(name, shape, lay.identity(shape), None, dtype="int32")
        dtype = file_dtype(value)
        if dtype:
            tensor = replace(self.program.tensors[stored.tensor], file_dtype=dtype)
            self.program.tensors[stored.tensor] = tensor
            self.notices.append(f"input {name!r} is {dtype} in the file and int32 in the C.")
        self.codes[value] = stored
        return stored

    def params_of_codes(self, value: ir.Value) -> QuantParams | None:
        """Return what the codes of an int8 or uint8 tensor mean, from whoever reads them."""
        for use in value.uses():
            if is_dequantize(use.node):
                return activation_params(use.node)
            if use.node.op_type in MOVES and use.node.outputs:
                found = self.params_of_codes(use.node.outputs[0])
                if found is not None:
                    return found
        return None

    def _output(self, value: ir.Value) -> Stored:
        """Return a graph output as the file has it."""
        name, shape = g.name_of(value), self.shape(value)
        if value.dtype == ir.DataType.FLOAT:
            stored = self.natural(value)
            if stored is None:
                return self.reals.output(value)
            stored = self.program.reorder(stored, lay.identity(shape), "in_order")
            real = self.program.new(name, shape, lay.identity(shape), None)
            inputs = [stored.tensor]
            return self.program.op(name, Dequantize(stored.stored_codes), inputs, real)
        if is_word(value):
            return self.reals.output(value)
        if value not in self.codes:
            raise no_form(value)
        stored = self.codes[value]
        stored = self.program.reorder(stored, lay.identity(shape), "in_order")
        if stored.codes.dtype == "uint8":
            file = self.program.new(name, shape, lay.identity(shape), stored.params, dtype="uint8")
            return self.program.op(f"{name}_flip", FlipSign(), [stored.tensor], file)
        return self.program.claim(stored, name, stored.codes)

    def _quantize_node(self, node: ir.Node) -> None:
        source = node.inputs[0]
        assert source is not None
        params = activation_params(node)
        target = Target(g.name_of(node.outputs[0]), params, params.qmin, params.qmax)
        # Exporters give each reader a Q of its own; the layer is still computed once.
        stored = self._quantized.get((source, params)) or self.quantize(source, target)
        self._quantized[source, params] = stored
        self.codes[node.outputs[0]] = self.program.claim(stored, target.name, params)

    def _move_codes(self, node: ir.Node) -> None:
        """Lower an operator that moves codes between Q and DQ."""
        if node.op_type not in MOVES:
            raise fail(node, "it computes on bare codes", "put DequantizeLinear before it")
        sources = [self.codes[v] for v in carriers(node)]
        for index, value in enumerate(node.outputs):
            params = self.params_of_codes(value) or sources[0].codes
            target = Target(g.name_of(value), params, params.qmin, params.qmax, bare=True)
            stored = move(self, node, index, sources, target)
            self.codes[value] = replace(stored, params=params)

    def natural(self, value: ir.Value) -> Stored | None:
        """Return the codes that a real value is the dequantized form of, or None."""
        if value not in self._natural:
            self._natural[value] = self._find_natural(value)
        return self._natural[value]

    def _find_natural(self, value: ir.Value) -> Stored | None:
        node = value.producer()
        if node is None or value.dtype != ir.DataType.FLOAT:
            return None
        if is_dequantize(node):
            if dequantizes_constant(value) is not None or node.inputs[0] not in self.codes:
                return None
            return replace(self.codes[node.inputs[0]], params=activation_params(node))
        if not (moves_codes(node) or g.is_op(node, "Relu")):
            return None
        sources = [self.natural(v) for v in carriers(node)]
        if not sources or any(s is None or s.params != sources[0].params for s in sources):  # type: ignore[union-attr]
            return None
        known = [s for s in sources if s is not None]
        target = Target.of(g.name_of(value), known[0].codes)
        if node.op_type == "Relu":
            return self.limit(known[0], replace(target, low=known[0].codes.zero_point))
        return move(self, node, node.outputs.index(value), known, target)

    def quantize(self, value: ir.Value, target: Target) -> Stored:
        """Return the codes of a real value; see the module's rules."""
        known = real_constant(value)
        if known is not None:
            return self._constant(known, target)
        node = value.producer()
        bounds = None if node is None else limits_of(node)
        if bounds is not None and node is not None and node.inputs[0] is not None:
            inner = self.natural(node.inputs[0])
            if inner is not None:  # one table, not one for the bound and one for the parameters
                return self.map(inner, lambda x: x, target.clipped(bounds))
        stored = self.natural(value)
        if stored is not None:
            return self.map(stored, lambda x: x, target)
        if node is None:
            if value not in self.codes:
                raise InputError(f"tensor {value.name!r} is a constant that nothing computes with.")
            return self._quantize_real(value, target)
        if not in_codes(self, value):
            return self._quantize_real(value, target)
        if why := float_softmax(node, target.params):
            self.notices.append(why)
            return self._quantize_real(value, target)
        bounds = limits_of(node)
        if bounds is not None and node.inputs[0] is not None:
            return self.quantize(node.inputs[0], target.clipped(bounds))
        function = unary(self, value)
        if function is not None:
            return self.map(function[0], function[1], target)
        if moves_codes(node):
            sources = [self.quantize(v, replace(target, name=g.name_of(v))) for v in carriers(node)]
            return move(self, node, node.outputs.index(value), sources, target)
        return self.limit_after(COMPUTE[node.op_type](self, node, target), node, target)

    def _constant(self, array: g.Array, target: Target) -> Stored:
        """Copy a constant among codes, as codes with their parameters."""
        codes = np.clip(arithmetic.quantize(array, target.params), target.low, target.high)
        y = self.program.new(target.name, array.shape, lay.identity(array.shape), target.params)
        step = Constant(table_of(codes, target.params))
        return self.program.op(f"{target.name}_constant", step, [], y)

    def _quantize_real(self, value: ir.Value, target: Target) -> Stored:
        """Quantize a value that is computed in float, or an input."""
        source = self.reals.of(value)
        codes = self.program.new(target.name, source.shape, source.layout, target.params)
        step = Quantize(target.params.as_dtype("int8"))
        return self.limit(self.program.op(target.name, step, [source.tensor], codes), target)

    def operand(self, node: ir.Node, index: int) -> Stored:
        """Return the codes of a layer's operand.

        Raises:
            UnsupportedError: it is a float value that was never quantized.
        """
        value = node.inputs[index]
        assert value is not None
        stored = self.natural(value)
        if stored is None:
            raise fail(
                node,
                f"its input {value.name!r} is a float value, not dequantized codes",
                "quantize that tensor with QuantizeLinear and DequantizeLinear",
            )
        return stored

    def map(self, stored: Stored, function: Callable[[g.Array], g.Array], target: Target) -> Stored:
        """Apply a function of real values to codes, element by element, by a table."""
        codes = arithmetic.table(function, stored.codes, target.params)
        return self.look_up(stored, codes, target)

    def look_up(self, stored: Stored, codes: g.Array, target: Target) -> Stored:
        """Apply a table of output codes (in the file's dtype); the identity costs nothing."""
        limited = np.clip(codes, target.low, target.high)
        table = table_of(limited, target.params)
        if np.array_equal(table, np.arange(-128, 128)):
            return replace(stored, params=target.params)
        layout = lay.spelt(stored.shape, stored.layout)
        output = self.program.new(target.name, stored.shape, layout, target.params)
        return self.program.op(target.name, Table(table), [stored.tensor], output)

    def limit(self, stored: Stored, target: Target) -> Stored:
        """Saturate codes at the target's limits."""
        return self.map(stored, lambda x: x, target)

    def limit_after(self, stored: Stored, node: ir.Node, target: Target) -> Stored:
        """Saturate after a step that has no limits of its own (an Add)."""
        unlimited = node.op_type in ("Add", "PRelu", "Softmax", "Sub")
        return self.limit(stored, target) if unlimited else stored


def is_quantized(node: ir.Node) -> bool:
    """Tell whether a node makes a graph more than a float one."""
    return is_quantize(node) or is_dequantize(node) or g.is_op(node, *PRODUCTS)


def makes_codes(node: ir.Node) -> bool:
    """Tell whether a node computes codes of codes; dynamic layers are found as a whole."""
    if is_quantize(node) or g.is_op(node, "DynamicQuantizeLinear") or not node.outputs:
        return False
    return node.outputs[0].dtype in CODE_TYPES


def dequantizes_constant_of(quantize: ir.Node) -> ir.Value | None:
    """Return the float constant that a QuantizeLinear reads, or None."""
    return quantize.inputs[0] if g.is_constant(quantize.inputs[0]) else None
