"""Einsum of one or two operands becomes the MatMul that it is.

1. An index of one operand only that the result lacks is summed: ReduceSum.
2. Two operands: Transpose and Reshape to [batch, rows, depth] and [batch, depth, columns], where
   batch are the indices that both and the result have, depth those that both have and the result
   lacks; MatMul; Reshape and Transpose to the order of the result. An index of both where one
   size is 1, a repeated index (a diagonal) and an ellipsis stay as they are.
3. One operand: Transpose.

Source: ONNX, operator Einsum.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of


@dataclass(frozen=True, slots=True)
class _Equation:
    """An equation without spaces.

    Args:
        terms: the indices of each operand.
        result: those of the result.
        sizes: of every index; None where it is not known.
    """

    terms: tuple[str, ...]
    result: str
    sizes: dict[str, int | None]


class SpellEinsum(Pass):
    """Rewrite every Einsum that is a product of matrices."""

    after = ("Constant",)

    def call(self, model: ir.Model) -> PassResult:
        """Apply rules 1 to 3."""
        result = PassResult()
        for node in nodes_of(model, "Einsum"):
            equation = _read(node)
            if isinstance(equation, str):
                result.kept(node, equation)
                continue
            _Speller(model.graph, node, equation).spell()
            result.folded(node, "a MatMul" if len(equation.terms) == 2 else "a Transpose")
        return result


def _read(node: ir.Node) -> _Equation | str:
    """Return the equation of a node, or why it is left."""
    text = str(g.attribute(node, "equation")).replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = tuple(left.split(","))
    letters = left.replace(",", "")
    if not arrow:  # the indices that occur once, in alphabetical order
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if "." in text:
        return "its equation has an ellipsis"
    if len(terms) > 2 or len(terms) != len(node.inputs):
        return f"it multiplies {len(terms)} operands"
    if any(len(set(term)) != len(term) for term in (*terms, result)):
        return "it takes a diagonal"
    sizes: dict[str, int | None] = {}
    for term, value in zip(terms, node.inputs, strict=True):
        shape = g.dims(value)
        if shape is None or len(shape) != len(term):
            return "the shape of an operand is not known"
        for letter, size in zip(term, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return f"its index {letter} is repeated from 1"
    unknown = [letter for letter, size in sizes.items() if size is None]
    if len(unknown) > 1 or (unknown and any(term[:1] != unknown[0] for term in terms)):
        return "several sizes are not known"
    if unknown and result[:1] != unknown[0]:
        return "several sizes are not known"
    return _Equation(terms, result, sizes)


class _Speller:
    """Writes the nodes for one Einsum before it."""

    def __init__(self, graph: ir.Graph, node: ir.Node, equation: _Equation) -> None:
        self.graph, self.node, self.equation = graph, node, equation
        self.names, self.stem = g.Names(graph), g.label(node)
        self.version = graph.opset_imports.get("", 13)

    def spell(self) -> None:
        """Write them, and take the Einsum out."""
        e = self.equation
        operands = [
            self._reduced(value, term, [t for t in (*e.terms, e.result) if t is not term])
            for value, term in zip(self.node.inputs, e.terms, strict=True)
            if value is not None
        ]
        value, term = operands[0] if len(operands) == 1 else self._product(*operands)
        made = self._ordered(value, term, e.result)
        if made is self.node.inputs[0]:
            made = self._add("Identity", [made], e.result)
        g.take_over(self.node.outputs[0], made)
        g.remove(self.node)

    def _reduced(self, value: ir.Value, term: str, others: list[str]) -> tuple[ir.Value, str]:
        """Sum over the indices that nobody else has."""
        alone = [c for c in term if not any(c in other for other in others)]
        if not alone:
            return value, term
        axes = np.array([term.index(c) for c in alone])
        left = "".join(c for c in term if c not in alone)
        operands = [value, g.add_constant(self.graph, self.names, f"{self.stem}_axes", axes)]
        return self._add("ReduceSum", operands, left, keepdims=0), left

    def _product(self, a: tuple[ir.Value, str], b: tuple[ir.Value, str]) -> tuple[ir.Value, str]:
        (A, left), (B, right) = a, b
        both = [c for c in left if c in right]
        batch = "".join(c for c in both if c in self.equation.result)
        depth = "".join(c for c in both if c not in self.equation.result)
        rows = "".join(c for c in left if c not in right)
        columns = "".join(c for c in right if c not in left)
        A = self._folded(self._ordered(A, left, batch + rows + depth), (batch, rows, depth))
        B = self._folded(self._ordered(B, right, batch + depth + columns), (batch, depth, columns))
        made = self._add("MatMul", [A, B], (batch, rows, columns))
        return self._unfolded(made, (batch, rows, columns)), batch + rows + columns

    def _ordered(self, value: ir.Value, term: str, wanted: str) -> ir.Value:
        if term == wanted:
            return value
        return self._add("Transpose", [value], wanted, perm=[term.index(c) for c in wanted])

    def _folded(self, value: ir.Value, groups: tuple[str, ...]) -> ir.Value:
        """Join the axes of each group into one."""
        if all(len(group) == 1 for group in groups):
            return value
        sizes = [self._size(group) for group in groups]
        return self._reshaped(value, sizes, groups)

    def _unfolded(self, value: ir.Value, groups: tuple[str, ...]) -> ir.Value:
        if all(len(group) == 1 for group in groups):
            return value
        letters = "".join(groups)
        return self._reshaped(value, [self._size(c) for c in letters], letters)

    def _reshaped(
        self, value: ir.Value, sizes: list[int | None], groups: tuple[str, ...] | str
    ) -> ir.Value:
        target = np.array([-1 if size is None else size for size in sizes], np.int64)
        shape = g.add_constant(self.graph, self.names, f"{self.stem}_shape", target)
        return self._add("Reshape", [value, shape], groups)

    def _size(self, group: str) -> int | None:
        sizes = [self.equation.sizes[c] for c in group]
        return None if None in sizes else prod(s for s in sizes if s is not None)

    def _add(
        self,
        op_type: str,
        operands: list[ir.Value],
        groups: tuple[str, ...] | str,
        **attributes: object,
    ) -> ir.Value:
        name = self.names.fresh(f"{self.stem}_{op_type}_Y")
        made = g.new_node(self.names, op_type, [*operands], name, attributes=attributes)
        made.outputs[0].type = self.node.outputs[0].type
        made.outputs[0].shape = ir.Shape([self._size(group) for group in groups])
        g.insert_before(self.node, made)
        return made.outputs[0]
