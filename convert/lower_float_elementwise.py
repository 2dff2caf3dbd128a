"""Lowers elementwise float operators, and batch normalization as two of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_float_values import apply, combine
from midge.convert.lower_params import fail, real_constant
from midge.convert.lower_program import Stored
from midge.convert.lower_target import limits_of

if TYPE_CHECKING:
    from midge.convert.lower import Lowering

Array = g.Array
Form = tuple[str, float, float]  # kind, alpha and beta of a UnaryF32


def operand(low: "Lowering", node: ir.Node, index: int) -> Stored | Array:
    """Return an operand: a constant as an array, anything else as a tensor."""
    value = node.inputs[index]
    assert value is not None
    array = real_constant(value)
    return low.reals.of(value) if array is None else array


def _unary(low: "Lowering", node: ir.Node, index: int) -> Stored:
    kind, alpha, beta = UNARY_FORMS[node.op_type](node)
    assert node.inputs[0] is not None
    x = low.reals.of(node.inputs[0])
    return apply(low, g.name_of(node.outputs[0]), kind, x, alpha, beta)


def _binary(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Lower Add, Sub, Mul, Div, Pow and PRelu, and Max, Min, Sum and Mean of any number."""
    name, kind = g.name_of(node.outputs[0]), BINARY_KINDS[node.op_type]
    values = [operand(low, node, i) for i in range(len(node.inputs))]
    y = values[0]
    for i, value in enumerate(values[1:], 2):
        last = i == len(values) and node.op_type != "Mean"
        y = combine(low, name if last else f"{name}_{i}", kind, y, value)
    if node.op_type == "Mean":
        y = combine(low, name, "div", y, np.array([len(values)], np.float32))
    if not isinstance(y, Stored):
        raise fail(node, "it depends on constants only", "fold it with `midge convert`")
    return y


def _pow(low: "Lowering", node: ir.Node, index: int) -> Stored:
    name, constant = g.name_of(node.outputs[0]), g.constant(node.inputs[1])
    # ONNX allows integers beside a float base.
    exponent = operand(low, node, 1) if constant is None else constant.astype(np.float32)
    kinds = {2.0: "square", 0.5: "sqrt"}
    if not isinstance(exponent, Stored) and exponent.size == 1:
        x, kind = operand(low, node, 0), kinds.get(float(exponent.reshape(-1)[0]))
        if kind is not None and isinstance(x, Stored) and exponent.ndim <= len(x.shape):
            return apply(low, name, kind, x)
    return combine(low, name, "pow", operand(low, node, 0), exponent)


def _mod(low: "Lowering", node: ir.Node, index: int) -> Stored:
    kind = "fmod" if g.attribute(node, "fmod", 0) else "mod"
    a, b = (operand(low, node, i) for i in (0, 1))
    return combine(low, g.name_of(node.outputs[0]), kind, a, b)


def _prelu(low: "Lowering", node: ir.Node, index: int) -> Stored:
    return combine(
        low, g.name_of(node.outputs[0]), "prelu", operand(low, node, 0), operand(low, node, 1)
    )


def _batch_norm(low: "Lowering", node: ir.Node, index: int) -> Stored:
    """Y = x * a + c with a = scale / sqrt(var + eps), c = B - mean * a, made in float64."""
    if g.attribute(node, "training_mode", 0) or len(node.outputs) > 1:
        raise fail(node, "it is in training mode", "export the model for inference")
    given = [g.constant(v) for v in node.inputs[1:]]
    if any(v is None for v in given):
        raise fail(node, "its parameters are no constants", "make them initializers")
    scale, B, mean, variance = (np.asarray(v, np.float64) for v in given)
    spread = variance + g.attribute(node, "epsilon", 1e-5)
    if (spread <= 0).any():
        raise fail(node, "its variance is negative", "export a sound model")
    a = scale / np.sqrt(spread)
    assert node.inputs[0] is not None
    x, name = low.reals.of(node.inputs[0]), g.name_of(node.outputs[0])
    shape = (-1,) + (1,) * (len(x.shape) - 2)
    rows = [v.astype(np.float32).reshape(shape) for v in (a, B - mean * a)]
    return combine(low, name, "add", combine(low, f"{name}_scaled", "mul", x, rows[0]), rows[1])


def _form(kind: str, alpha: float | None = None, beta: float | None = None) -> Callable[..., Form]:
    """Return a reader of the attributes alpha and beta, which have these defaults."""

    def read(node: ir.Node) -> Form:
        values = [
            0.0 if default is None else float(g.attribute(node, name, default))
            for name, default in (("alpha", alpha), ("beta", beta))
        ]
        return kind, values[0], values[1]

    return read


def _bounds(node: ir.Node) -> Form:
    bounds = limits_of(node)
    if bounds is None:
        raise fail(node, "its limits are computed", "make them constants")
    return "clip", *bounds


def _gelu(node: ir.Node) -> Form:
    tanh = g.attribute(node, "approximate", "none") == "tanh"
    return "gelu_tanh" if tanh else "gelu", 0.0, 0.0


def _shrink(node: ir.Node) -> Form:
    return "shrink", g.attribute(node, "lambd", 0.5), g.attribute(node, "bias", 0.0)


def _selu(node: ir.Node) -> Form:
    alpha, gamma = 1.67326319217681884765625, 1.05070102214813232421875
    return "selu", g.attribute(node, "alpha", alpha), g.attribute(node, "gamma", gamma)


UNARY_FORMS: dict[str, Callable[[ir.Node], Form]] = {
    "Abs": _form("abs"),
    "Acos": _form("acos"),
    "Acosh": _form("acosh"),
    "Asin": _form("asin"),
    "Asinh": _form("asinh"),
    "Atan": _form("atan"),
    "Atanh": _form("atanh"),
    "Ceil": _form("ceil"),
    "Celu": _form("celu", 1.0),
    "Clip": _bounds,
    "Cos": _form("cos"),
    "Cosh": _form("cosh"),
    "Elu": _form("elu", 1.0),
    "Erf": _form("erf"),
    "Exp": _form("exp"),
    "Floor": _form("floor"),
    "Gelu": _gelu,
    "HardSigmoid": _form("hard_sigmoid", 0.2, 0.5),
    "HardSwish": _form("hard_swish"),
    "LeakyRelu": _form("leaky_relu", 0.01),
    "Log": _form("log"),
    "Mish": _form("mish"),
    "Neg": _form("neg"),
    "Reciprocal": _form("reciprocal"),
    "Relu": _bounds,
    "Round": _form("round"),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _form("sigmoid"),
    "Sin": _form("sin"),
    "Sinh": _form("sinh"),
    "Softplus": _form("softplus"),
    "Softsign": _form("softsign"),
    "Sqrt": _form("sqrt"),
    "Swish": _form("swish", 1.0),
    "Tan": _form("tan"),
    "Tanh": _form("tanh"),
    "ThresholdedRelu": _form("thresholded_relu", 1.0),
}

BINARY_KINDS = {
    "Add": "add",
    "Div": "div",
    "Max": "max",
    "Mean": "add",
    "Min": "min",
    "Mul": "mul",
    "Sub": "sub",
    "Sum": "add",
}

ELEMENTWISE_F32: dict[str, Callable[["Lowering", ir.Node, int], Stored]] = {
    **dict.fromkeys(UNARY_FORMS, _unary),
    **dict.fromkeys(BINARY_KINDS, _binary),
    "BatchNormalization": _batch_norm,
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
}
