"""Spells what computes with 8-bit codes in other ways than midge's one scale and zero-point.

1. Cast of codes to float32: DequantizeLinear of scale 1 and zero-point 0, as for images of bytes.
2. Cast of float32 to codes: what is behind the point cut off, then QuantizeLinear of scale 1.
3. QuantizeLinear and DequantizeLinear of an activation by many scales (one for each channel or
   block) or by a scale that is computed: x / s, rounded, + z, then codes of scale 1; (q - z) * s.
4. DynamicQuantizeLinear that no layer reads: its definition, with s = 1 where all of x is 0.

Numbers outside of the codes are undefined in rule 2; they saturate here.

Source: ONNX, operators Cast, QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
"""

from typing import Any

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_params import is_dequantize, is_quantize

Whole = type[np.int8] | type[np.uint8]
CODES: dict[ir.DataType, Whole] = {ir.DataType.INT8: np.int8, ir.DataType.UINT8: np.uint8}
LEVELS = np.float32(255)  # steps between the lowest and the highest code


def spell_codes(model: ir.Model) -> None:
    """Apply rules 1 to 4 in place."""
    speller = _Speller(model.graph)
    for node in list(model.graph):
        if g.is_op(node, "Cast"):
            speller.cast(node)
        elif g.is_op(node, "DynamicQuantizeLinear"):
            speller.dynamic(node)
        elif is_quantize(node) and not g.is_constant(node.inputs[0]):
            speller.quantize(node)
        elif is_dequantize(node) and not g.is_constant(node.inputs[0]):
            speller.dequantize(node)


class _Speller:
    """Writes nodes before the one that is spelled."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph, self.names = graph, g.Names(graph)
        self.before: ir.Node

    def cast(self, node: ir.Node) -> None:
        """Apply rules 1 and 2."""
        x, y = node.inputs[0], node.outputs[0]
        if x is None or g.is_constant(x):
            return
        self.before = node
        if x.dtype in CODES and g.is_float(y):
            self._end(y, self._real(x))
        elif g.is_float(x) and y.dtype in CODES:
            whole = self._whole(x, ir.DataType.INT32)
            self._end(y, self._codes(self._whole(whole, ir.DataType.FLOAT), y))

    def quantize(self, node: ir.Node) -> None:
        """Apply rule 3 to a QuantizeLinear."""
        x, y = node.inputs[0], node.outputs[0]
        self.before = node
        found = self._parameters(node) if y.dtype in CODES else None
        if x is None or found is None:
            return
        steps = self._step("Round", self._step("Div", x, found[0]))
        self._end(y, self._codes(self._step("Add", steps, found[1]), y))

    def dequantize(self, node: ir.Node) -> None:
        """Apply rule 3 to a DequantizeLinear."""
        q, y = node.inputs[0], node.outputs[0]
        self.before = node
        found = self._parameters(node) if q is not None and q.dtype in CODES else None
        if q is None or found is None or not g.is_float(y):
            return
        self._end(y, self._step("Mul", self._step("Sub", self._real(q), found[1]), found[0]))

    def dynamic(self, node: ir.Node) -> None:
        """Apply rule 4."""
        x, (y, scale, zero_point) = node.inputs[0], node.outputs
        readers = [use.node for v in node.outputs for use in v.uses()]
        if x is None or any(g.is_op(n, "MatMulInteger", "ConvInteger") for n in readers):
            return
        self.before = node
        zero = self._constant("zero", np.float32(0))
        low = self._step("Min", self._step("ReduceMin", x, shape=(), keepdims=0), zero)
        high = self._step("Max", self._step("ReduceMax", x, shape=(), keepdims=0), zero)
        extent = self._step("Sub", high, low)
        flat = self._step("Equal", extent, zero, dtype=ir.DataType.BOOL)
        levels, one = (self._constant("levels", v) for v in (LEVELS, np.float32(1)))
        s = self._step("Where", flat, one, self._step("Div", extent, levels), shape=())
        z = self._step("Round", self._step("Div", self._step("Sub", zero, low), s))
        steps = self._step("Add", self._step("Round", self._step("Div", x, s)), z)
        codes, place = self._codes(steps, y), self._codes(z, zero_point)
        for old, new in ((y, codes), (scale, s), (zero_point, place)):
            g.replace(old, new)
        g.remove(node)

    def _parameters(self, node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
        """Return scale and zero-point as float32 that broadcast with x.

        None where midge reads them as they are, or knows no way to spread them.
        """
        scale = g.constant(node.inputs[1])
        if scale is not None and scale.size == 1:
            return None
        values = [node.inputs[1], g.operand(node, 2)]
        s, z = (self._spread(node, v) for v in values)
        if s is None or (z is None and values[1] is not None):
            return None
        return s, self._constant("nothing", np.float32(0)) if z is None else z

    def _spread(self, node: ir.Node, value: ir.Value | None) -> ir.Value | None:
        shape, array = g.dims(node.inputs[0]), g.constant(value)
        if value is None or shape is None:
            return None
        if array is None:
            if g.static_dims(value) not in ((), (1,)):
                return None
            return value if g.is_float(value) else self._real(value)
        axis, block = (int(g.attribute(node, *a)) for a in (("axis", 1), ("block_size", 0)))
        if block:
            array = np.repeat(array, block, axis)[tuple(slice(n) for n in shape)]
        elif array.size > 1:
            array = array.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
        return self._constant(f"{g.name_of(value)}_spread", array.astype(np.float32))

    def _constant(self, stem: str, array: Any) -> ir.Value:
        return g.add_constant(self.graph, self.names, stem, np.asarray(array))

    def _step(
        self,
        op_type: str,
        x: ir.Value,
        *others: ir.Value,
        dtype: ir.DataType = ir.DataType.FLOAT,
        shape: tuple[int, ...] | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """Add a node and return its output, shaped like `x` unless a shape is given."""
        stem = self.names.fresh(f"{g.name_of(self.before.outputs[0])}_{op_type.lower()}")
        node = g.new_node(self.names, op_type, [x, *others], stem, attributes=attributes)
        y = node.outputs[0]
        y.shape, y.dtype = x.shape if shape is None else ir.Shape(shape), dtype
        g.insert_before(self.before, node)
        return y

    def _whole(self, x: ir.Value, dtype: ir.DataType) -> ir.Value:
        return self._step("Cast", x, dtype=dtype, to=int(dtype))

    def _real(self, q: ir.Value) -> ir.Value:
        """Return codes as the numbers that they are."""
        assert q.dtype is not None
        return self._step("DequantizeLinear", q, *self._plain(CODES[q.dtype]))

    def _codes(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Return whole numbers as codes of y's type."""
        assert y.dtype is not None
        return self._step("QuantizeLinear", x, *self._plain(CODES[y.dtype]), dtype=y.dtype)

    def _plain(self, dtype: Whole) -> tuple[ir.Value, ir.Value]:
        """Return scale 1 and zero-point 0."""
        return self._constant("one", np.float32(1)), self._constant("nothing", dtype(0))

    def _end(self, y: ir.Value, made: ir.Value) -> None:
        """Let what was made stand for y."""
        g.replace(y, made)
        g.remove(self.before)
