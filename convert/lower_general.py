"""Lowers integers and truths, and what computes or reads them: int32 words in the C.

int32, int64 and bool of the file are all int32; a truth is 0 or 1. An int64 constant outside int32
is refused by name.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import layout as lay
from midge.convert.lower_axes import by_axes, expand, take
from midge.convert.lower_float_moves import MOVES_F32
from midge.convert.lower_float_values import of_rank
from midge.convert.lower_params import fail, real_constant
from midge.convert.lower_program import Stored
from midge.convert.lower_reductions import reduction_of
from midge.convert.lower_scatter import SCATTER
from midge.convert.plan_general import (
    Arg,
    BinaryS32,
    Cast,
    Compare,
    Gather,
    GatherElements,
    TopF32,
    Where,
)
from midge.quant.rules import COMPARED

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

WORDS = (ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)
COMPARISONS = {  # kind, operands exchanged
    "Equal": ("equal", False),
    "Greater": ("less", True),
    "GreaterOrEqual": ("less_equal", True),
    "Less": ("less", False),
    "LessOrEqual": ("less_equal", False),
}
INTEGER_KINDS = {
    "Add": "add",
    "And": "and",
    "Div": "div",
    "Max": "max",
    "Min": "min",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}


def is_word(value: ir.Value | None) -> bool:
    """Tell whether midge computes with a value's type outside of codes."""
    return value is not None and value.dtype in WORDS


def file_dtype(value: ir.Value) -> str:
    """Return "int64" or "bool" for a value that is int32 in C though the file says otherwise."""
    return {ir.DataType.INT64: "int64", ir.DataType.BOOL: "bool"}.get(
        value.dtype or ir.DataType.UNDEFINED, ""
    )


def _operand(low: "Lowering", node: ir.Node, index: int) -> Stored:
    value = node.inputs[index]
    assert value is not None
    if not is_word(value):
        raise fail(node, f"its operand {value.name!r} is {value.dtype}", "cast it to int32")
    return low.reals.of(value)


def _pair(low: "Lowering", name: str, params: BinaryS32 | Compare, a: Stored, b: Stored) -> Stored:
    """Combine two tensors element by element into int32."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    (a, b), order = by_axes(low, [of_rank(x, len(shape)) for x in (a, b)])
    y = low.program.new(name, shape, lay.permuted(shape, order), None, dtype="int32")
    inputs = [low.program.view(x, [x.shape[k] for k in order]) for x in (a, b)]
    return low.program.op(name, params, inputs, y)


def _compare(low: "Lowering", node: ir.Node, index: int) -> Stored:
    kind, exchanged = COMPARISONS[node.op_type]
    a, b = (_operand(low, node, i) for i in ((1, 0) if exchanged else (0, 1)))
    real = g.is_float(node.inputs[0])
    params = Compare(kind) if real else BinaryS32(kind)
    return _pair(low, g.name_of(node.outputs[0]), params, a, b)


def _integer(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower arithmetic of integers, and logic of truths."""
    name, kind = g.name_of(node.outputs[0]), INTEGER_KINDS[node.op_type]
    y = _operand(low, node, 0)
    for i in range(1, len(node.inputs)):
        made = name if i == len(node.inputs) - 1 else f"{name}_{i}"
        y = _pair(low, made, BinaryS32(kind), y, _operand(low, node, i))
    return y


def _mod(low: "Lowering", node: ir.Node, index: int) -> Stored:
    kind = "fmod" if g.attribute(node, "fmod", 0) else "mod"
    a, b = (_operand(low, node, i) for i in (0, 1))
    return _pair(low, g.name_of(node.outputs[0]), BinaryS32(kind), a, b)


def _with_number(kind: str, number: int, *, first: bool) -> Callable[..., Stored]:
    """Return a lowering that combines the operand with a number."""

    def lower(low: "Lowering", node: ir.Node, index: int) -> Stored:
        name, x = g.name_of(node.outputs[0]), _operand(low, node, 0)
        one = low.reals.constant(f"{name}_{number}", np.array([number], np.int32))
        one = replace(one, shape=(1,) * len(x.shape), layout=lay.identity((1,) * len(x.shape)))
        return _pair(low, name, BinaryS32(kind), *((one, x) if first else (x, one)))

    return lower


def _cast(low: "Lowering", node: ir.Node, index: int) -> Stored:
    source, result = node.inputs[0], node.outputs[0]
    x = _operand(low, node, 0)
    assert source is not None
    if not is_word(result):
        raise fail(node, f"it casts to {result.dtype}", "cast to float, int32, int64 or bool")
    from_real, to_real = g.is_float(source), g.is_float(result)
    if result.dtype == ir.DataType.BOOL and source.dtype != ir.DataType.BOOL:
        kind = "truth_f32" if from_real else "truth_s32"
    elif from_real == to_real:
        return x
    else:
        kind = "to_f32" if to_real else "to_s32"
    return _cast_step(low, g.name_of(result), kind, x)


def _cast_step(low: "Lowering", name: str, kind: str, x: Stored) -> Stored:
    dtype = "float32" if kind == "to_f32" else "int32"
    y = low.program.new(name, x.shape, lay.spelt(x.shape, x.layout), None, dtype=dtype)
    return low.program.op(name, Cast(kind), [x.tensor], y)


def _where(low: "Lowering", node: ir.Node, index: int) -> Stored:
    return _chosen(low, node, [_operand(low, node, i) for i in range(3)])


def _chosen(low: "Lowering", node: ir.Node, xs: list[Stored]) -> Stored:
    """Return elements of the second tensor where the first is not 0, else of the third."""
    shape = low.shape(node.outputs[0])
    xs = [expand(low, g.label(node), x, shape) for x in xs]
    xs, order = by_axes(low, xs)
    dtype = low.program.tensors[xs[1].tensor].dtype
    layout = lay.permuted(shape, order)
    y = low.program.new(g.name_of(node.outputs[0]), shape, layout, None, dtype=dtype)
    inputs = [low.program.view(x, layout.storage_shape) for x in xs]
    return low.program.op(g.label(node), Where(), inputs, y)


def _one_hot(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower OneHot: an index k or k - depth puts `on` at k; one outside puts it nowhere."""
    name, source, depth = g.name_of(node.outputs[0]), node.inputs[0], g.scalar(node.inputs[1])
    values = node.inputs[2]
    if depth is None or not is_word(values):
        raise fail(node, "its depth is computed", "make it a constant")
    assert values is not None
    x, count = _operand(low, node, 0), int(depth)
    if g.is_float(source):
        x = _cast_step(low, f"{name}_whole", "to_s32", x)
    axis = g.attribute(node, "axis", -1) % (len(x.shape) + 1)
    x = replace(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))
    shape = tuple(count if a == axis else 1 for a in range(len(x.shape)))
    found = []
    for k, first in enumerate((0, -count)):
        places = np.arange(first, first + count).reshape(shape)
        wanted = low.reals.constant(f"{name}_places_{k}", places)
        found.append(_pair(low, f"{name}_is_{k}", BinaryS32("equal"), x, wanted))
    hot = _pair(low, f"{name}_hot", BinaryS32("or"), *found)
    pair = _operand(low, node, 2)
    off, on = (take(low, (name, f"{name}_{i}"), pair, [i], [1], (1,)) for i in (0, 1))
    return _chosen(low, node, [hot, on, off])


def _sign(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Return (0 < x) - (x < 0); 0 for NaN."""
    x, name = _operand(low, node, 0), g.name_of(node.outputs[0])
    shape = (1,) * len(x.shape)
    zero = low.reals.constant(f"{name}_0", np.zeros(shape, np.int32))  # +0.0 in float32 too
    kind: BinaryS32 | Compare = Compare("less") if g.is_float(node.inputs[0]) else BinaryS32("less")
    parts = [_pair(low, f"{name}_{i}", kind, *p) for i, p in enumerate([(zero, x), (x, zero)])]
    y = _pair(low, f"{name}_s32", BinaryS32("sub"), *parts)
    if not g.is_float(node.inputs[0]):
        return y
    return _cast_step(low, name, "to_f32", y)


def compared_codes(low: "Lowering", node: ir.Node) -> Stored | None:
    """Return the codes in which an ArgMax or ArgMin finds its place, None where there are none.

    A scale is positive, so that codes have the order of the real values, ties included.
    """
    value = node.inputs[0] if g.is_op(node, *COMPARED) else None
    return None if value is None else low.natural(value)


def _arg(low: "Lowering", node: ir.Node, index: int) -> Stored:
    x = compared_codes(low, node) or _operand(low, node, 0)
    if not g.is_float(node.inputs[0]):
        kind = node.inputs[0].dtype if node.inputs[0] is not None else None
        raise fail(node, f"it compares {kind}", "cast its input to float")
    axis = g.attribute(node, "axis", 0) % len(x.shape)
    params = Arg(node.op_type == "ArgMin", bool(g.attribute(node, "select_last_index", 0)))
    name, shape = g.name_of(node.outputs[0]), low.shape(node.outputs[0])
    return _arg_step(low, name, params, x, axis, shape)


def _arg_step(
    low: "Lowering", name: str, params: Arg, x: Stored, axis: int, shape: tuple[int, ...]
) -> Stored:
    """Return where the best value of an axis stands, in this shape."""
    r = reduction_of(low, _counted(low, x, axis), [axis])
    outer, _, inner = r.storage
    source = low.program.view(r.x, r.storage)
    storage = (outer, 1, inner)
    y = low.program.new(name, shape, r.layout, None, dtype="int32", storage=storage)
    return low.program.op(name, params, [source], y)


def _hardmax(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Return 1 where the first of the largest values of an axis stands, else 0."""
    x, name = _operand(low, node, 0), g.name_of(node.outputs[0])
    rank = len(x.shape)
    axis = g.attribute(node, "axis", -1) % rank
    kept = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    best = _arg_step(low, f"{name}_arg", Arg(), x, axis, kept)
    places = np.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(rank)])
    every = low.reals.constant(f"{name}_places", places)
    truth = _pair(low, f"{name}_truth", BinaryS32("equal"), every, best)
    return _cast_step(low, name, "to_f32", truth)


def _top_k(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower TopK: where the elements stand, and those elements."""
    x, count, name = (
        _operand(low, node, 0),
        g.scalar(node.inputs[1]),
        g.name_of(node.outputs[index]),
    )
    axis = g.attribute(node, "axis", -1) % len(x.shape)
    if count is None or not g.is_float(node.inputs[0]):
        raise fail(node, "its k is computed or its input is no float", "make them so")
    if not g.attribute(node, "sorted", 1):
        raise fail(node, "it leaves the order open", "set sorted to 1")
    outer, inner, n, k = prod(x.shape[:axis]), prod(x.shape[axis + 1 :]), x.shape[axis], int(count)
    if not 0 < k <= n:
        raise fail(node, f"it takes {k} of {n} elements", "export a sound model")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    source, storage = _flat(low, x, (outer, n, inner)), (outer, k, inner)
    if node not in low.reals.tops:
        made, params = g.name_of(node.outputs[1]), TopF32(k, not g.attribute(node, "largest", 1))
        y = low.program.new(made, shape, lay.identity(shape), None, dtype="int32", storage=storage)
        low.reals.tops[node] = low.program.op(g.label(node), params, [source], y)
    places = low.reals.tops[node]
    if index == 1:
        return places
    y = low.program.new(name, shape, lay.identity(shape), None, storage=storage)
    return low.program.op(name, GatherElements(), [source, places.tensor], y)


def _counted(low: "Lowering", x: Stored, axis: int) -> Stored:
    """Return x with an axis stored in the file's order: a Reshape of NHWC mixes its digits."""
    cut = x.layout.axes(x.shape)
    if cut is not None:
        places = [cut[0].order.index(k) for k in cut[1][axis]]
        if places == sorted(places):
            return x
    rest = [a for a in range(len(x.shape)) if a != axis]
    return low.program.reorder(x, lay.permuted(x.shape, (*rest, axis)), "axis_in_order")


def _flat(low: "Lowering", x: Stored, shape: tuple[int, ...]) -> int:
    """Return a view of x in the file's order, with this shape."""
    return low.program.view(low.program.reorder(x, lay.identity(x.shape), "in_order"), shape)


def _gather(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower a Gather: a move where the indices are known and evenly spaced."""
    source, places = node.inputs[0], g.constant(node.inputs[1])
    assert source is not None
    shape = low.shape(source)
    axis = g.attribute(node, "axis", 0) % len(shape)
    if places is not None and len(set(np.diff(places.reshape(-1) % shape[axis]).tolist())) <= 1:
        return MOVES_F32["Gather"](low, node, index)
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    table = real_constant(source) if g.is_float(source) else g.constant(source)
    indices = _operand(low, node, 1)
    count = prod(indices.shape)
    inputs = [_flat(low, indices, (count,))]
    dtype = "float32" if g.is_float(source) else "int32"
    if table is None:
        inputs = [_flat(low, _operand(low, node, 0), (outer, shape[axis], inner)), *inputs]
    else:
        table = np.ascontiguousarray(table.reshape(outer, shape[axis], inner), dtype)
    result = low.shape(node.outputs[0])
    y = low.program.new(
        g.name_of(node.outputs[0]),
        result,
        lay.identity(result),
        None,
        dtype=dtype,
        storage=(outer, count, inner),
    )
    return low.program.op(g.label(node), Gather(table), inputs, y)


def _gather_elements(low: "Lowering", node: ir.Node, index: int) -> Stored:
    x, places = (_operand(low, node, i) for i in (0, 1))
    axis = g.attribute(node, "axis", 0) % len(x.shape)
    around = [n for a, n in enumerate(x.shape) if a != axis]
    if around != [n for a, n in enumerate(places.shape) if a != axis]:
        raise fail(node, "its indices leave elements of other axes out", "cut them with Slice")
    outer, inner, m = prod(x.shape[:axis]), prod(x.shape[axis + 1 :]), places.shape[axis]
    inputs = [_flat(low, x, (outer, x.shape[axis], inner)), _flat(low, places, (outer, m, inner))]
    y = low.program.new(
        g.name_of(node.outputs[0]),
        places.shape,
        lay.identity(places.shape),
        None,
        dtype=low.program.tensors[x.tensor].dtype,
        storage=(outer, m, inner),
    )
    return low.program.op(g.label(node), GatherElements(), inputs, y)


Step = Callable[["Lowering", ir.Node, int], Stored]
# Of real values that come from integers or truths.
GENERAL_F32: dict[str, Step] = {
    "Cast": _cast,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Hardmax": _hardmax,
    "OneHot": _one_hot,
    "Sign": _sign,
    "TopK": _top_k,
    "Where": _where,
}
# Whose result is an integer or a truth.
INTEGER: dict[str, Step] = {
    **{name: step for name, step in MOVES_F32.items() if name not in ("Dropout", "Pad", "Resize")},
    **dict.fromkeys(INTEGER_KINDS, _integer),
    **dict.fromkeys(COMPARISONS, _compare),
    **GENERAL_F32,
    **SCATTER,
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Mod": _mod,
    "Neg": _with_number("sub", 0, first=True),
    "Not": _with_number("xor", 1, first=False),
}


def operands(node: ir.Node) -> list[ir.Value]:
    """Return the operands of a node that have to be computed: real ones, and integers it reads."""
    whole = node.inputs
    if node.op_type in MOVES_F32 and not g.is_op(node, "Concat", "Gather"):
        whole = node.inputs[:1]
    reads_integers = node.op_type in INTEGER
    return [
        v
        for v in whole
        if v is not None
        and (g.is_float(v) or (reads_integers and is_word(v)))
        and real_constant(v) is None
        and not g.is_constant(v)
    ]
