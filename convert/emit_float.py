"""Turns float32 and dynamic steps of a Plan into the records that the C runtime carries out."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.emit_broadcast import broadcast_words
from midge.convert.emit_general import GENERAL_RECORDS
from midge.convert.emit_moves import constant_record, pad_words
from midge.convert.emit_step import Record, Step, Words, bits, count, image_rows, record
from midge.convert.pack_float import conv2d_panels, panels
from midge.convert.plan_float import (
    BinaryF32,
    ConstantF32,
    Conv2dDynamic,
    Conv2dF32,
    DynamicQuantize,
    FullyConnectedDynamic,
    FullyConnectedF32,
    Limits,
    MatMulF32,
    PadF32,
    Pool2dF32,
    ReduceF32,
    SoftmaxF32,
    UnaryF32,
)

Array = npt.NDArray[Any]
SIMPLE = (
    "abs",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "neg",
    "reciprocal",
    "shrink",
    "softsign",
    "square",
    "thresholded_relu",
)
TRIG = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan")
MATH = ("ceil", "erf", "floor", "gelu", "log", "round", "sqrt")


def _limits(limits: Limits) -> Words:
    return {"MIDGE_LIMIT_LOW": bits(limits.low), "MIDGE_LIMIT_HIGH": bits(limits.high)}


def _image_words(step: Step, p: Conv2dF32 | Conv2dDynamic, x: Sequence[int]) -> Words:
    _, kh, kw, _ = p.weight.shape
    return {
        "MIDGE_CONV_X_SIZE": step.pair("input size", x[1], x[2]),
        "MIDGE_CONV_Y_SIZE": step.pair("output size", *step.y.shape[1:3]),
        "MIDGE_CONV_CHANNELS": step.pair("channels", x[3], step.y.shape[3]),
        "MIDGE_CONV_KERNEL": step.pair("kernel", kh, kw),
        "MIDGE_CONV_STRIDE": step.pair("stride", *p.stride),
        "MIDGE_CONV_DILATION": step.pair("dilation", *p.dilation),
        "MIDGE_CONV_PADS": step.pair("pads", *p.pads[:2]),
        "MIDGE_CONV_GROUPS": step.pair("batch and groups", x[0], p.groups),
        **_limits(p.limits),
    }


def _is_product(p: Conv2dF32 | Conv2dDynamic) -> bool:
    """Tell whether a convolution is a matrix product of pixels."""
    _, kh, kw, _ = p.weight.shape
    return (kh, kw, *p.stride, p.groups) == (1, 1, 1, 1, 1) and not any(p.pads)


def _conv2d(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Conv2dF32)
    if _is_product(p):
        return [_product(step, p, image_rows(step.y), step.y.shape[2])]
    title = f"{step.op.name}: bias, weights"
    if p.groups == step.x[0].shape[3] > 1 and p.scale is None:
        weight = np.moveaxis(p.weight[..., 0], 0, -1)
        data: tuple[Array, ...] = (p.bias, weight)
        kernel = "midge_depthwise_conv2d_f32"
    else:
        data = _layer_data(p, conv2d_panels(p.weight, p.groups))
        kernel = f"midge_conv2d_f32{'_s8' * (p.scale is not None)}"
    words: Words = {"MIDGE_OP_DATA": step.data.append(title, *data)}
    words |= _image_words(step, p, step.x[0].shape)
    return [record(step, kernel, words, image_rows(step.y))]


def _layer_data(p: Conv2dF32 | FullyConnectedF32, weight: Array) -> tuple[Array, ...]:
    """Return bias, scales where there are some, and packed weights."""
    return (p.bias, weight) if p.scale is None else (p.bias, p.scale, weight)


def _product(step: Step, p: Conv2dF32 | FullyConnectedF32, rows: int, pixels: int) -> Record:
    weight = p.weight.reshape(len(p.weight), -1)
    data = _layer_data(p, panels(weight))
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: bias, weights", *data),
        "MIDGE_FC_PIXELS": pixels,
        "MIDGE_FC_DEPTH": weight.shape[1],
        "MIDGE_FC_CHANNELS": len(weight),
        **_limits(p.limits),
    }
    return record(step, f"midge_fully_connected_f32{'_s8' * (p.scale is not None)}", words, rows)


def _fully_connected(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, FullyConnectedF32)
    return [_product(step, p, 1, count(step.x[0]) // p.weight.shape[1])]


def _matmul(step: Step) -> list[Record]:
    (batch_a, rows, depth), (batch_b, _, columns) = step.x[0].shape, step.x[1].shape
    words: Words = {
        "MIDGE_MATMUL_B": step.x_at[1],
        "MIDGE_MATMUL_BATCH": step.y.shape[0],
        "MIDGE_MATMUL_ROWS": rows,
        "MIDGE_MATMUL_DEPTH": depth,
        "MIDGE_MATMUL_COLUMNS": columns,
        "MIDGE_MATMUL_A_PITCH": 0 if batch_a == 1 else rows * depth,
        "MIDGE_MATMUL_B_PITCH": 0 if batch_b == 1 else depth * columns,
    }
    return [record(step, "midge_matmul_f32", words)]


def _binary(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, BinaryF32)
    b = step.x[1].shape if p.constant is None else p.constant.shape
    flags = "0"
    at = step.x_at[1] if p.constant is None else step.data.append(step.op.name, p.constant)
    if p.constant is not None:
        flags = "MIDGE_BINARY_CONSTANT" + " | MIDGE_BINARY_SWAPPED" * p.swapped
    kind = f"MIDGE_PAIR(MIDGE_BINARY_{p.kind.upper()}, {flags})"
    words = broadcast_words(step, b, at, kind)
    kernels = {"pow": "midge_pow_f32", **dict.fromkeys(("fmod", "mod"), "midge_mod_f32")}
    return [record(step, kernels.get(p.kind, "midge_binary_f32"), words)]


def _unary(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, UnaryF32)
    words: Words = {"MIDGE_MAP_COUNT": count(step.y)}
    if p.kind == "clip":
        return [record(step, "midge_clip_f32", {**words, **_limits(Limits(p.alpha, p.beta))})]
    words |= {
        "MIDGE_UNARY_KIND": f"MIDGE_UNARY_{p.kind.upper()}",
        "MIDGE_UNARY_ALPHA": bits(p.alpha),
        "MIDGE_UNARY_BETA": bits(p.beta),
    }
    families = {"simple": SIMPLE, "math": MATH, "trig": TRIG}
    family = next((name for name, kinds in families.items() if p.kind in kinds), "exp")
    return [record(step, f"midge_{family}_f32", words)]


def _pool2d(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Pool2dF32)
    N, H, W, C = step.x[0].shape
    words: Words = {
        "MIDGE_POOL_X_SIZE": step.pair("input size", H, W),
        "MIDGE_POOL_Y_SIZE": step.pair("output size", *step.y.shape[1:3]),
        "MIDGE_POOL_CHANNELS": step.pair("batch and channels", N, C),
        "MIDGE_POOL_KERNEL": step.pair("kernel", *p.kernel),
        "MIDGE_POOL_STRIDE": step.pair("stride", *p.stride),
        "MIDGE_POOL_PADS": step.pair("pads", *p.pads[:2]),
        "MIDGE_POOL_DILATION": step.pair("dilation", *p.dilation),
        "MIDGE_POOL_COUNTS": int(p.kind == "average" and not p.count_include_pad),
    }
    return [record(step, f"midge_{p.kind}_pool_f32", words, image_rows(step.y))]


def _softmax(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, SoftmaxF32)
    depth = step.x[0].shape[-1]
    words: Words = {
        "MIDGE_SOFTMAX_ROWS": count(step.x[0]) // depth,
        "MIDGE_SOFTMAX_DEPTH": depth,
        "MIDGE_SOFTMAX_LOG": int(p.log),
    }
    return [record(step, "midge_softmax_f32", words)]


def _reduce(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, ReduceF32)
    outer, size, inner = step.x[0].shape
    words: Words = {
        "MIDGE_REDUCE_OUTER": outer,
        "MIDGE_REDUCE_COUNT": size,
        "MIDGE_REDUCE_INNER": inner,
        "MIDGE_REDUCE_KIND": f"MIDGE_REDUCE_{p.kind.upper()}",
    }
    return [record(step, "midge_reduce_f32", words)]


def _pad(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, PadF32)
    words = {**pad_words(step, p.before), "MIDGE_PAD_VALUE": bits(p.value)}
    return [record(step, "midge_pad_f32", words)]


def _constant(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, ConstantF32)
    return [constant_record(step, p.value)]


def _dynamic_quantize(step: Step) -> list[Record]:
    return [record(step, "midge_dynamic_quantize", {"MIDGE_MAP_COUNT": count(step.x[0])})]


def _fully_connected_dynamic(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, FullyConnectedDynamic)
    return [_dynamic_product(step, p, 1, count(step.y) // len(p.weight))]


def _dynamic_product(
    step: Step, p: FullyConnectedDynamic | Conv2dDynamic, rows: int, pixels: int
) -> Record:
    weight = p.weight.reshape(len(p.weight), -1)
    words: Words = {
        "MIDGE_OP_DATA": _dynamic_data(step, p),
        "MIDGE_FC_PIXELS": pixels,
        "MIDGE_FC_DEPTH": weight.shape[1],
        "MIDGE_FC_CHANNELS": len(weight),
        **_limits(p.limits),
    }
    return record(step, "midge_fully_connected_dynamic", words, rows)


def _dynamic_data(step: Step, p: FullyConnectedDynamic | Conv2dDynamic) -> int:
    return step.data.append(f"{step.op.name}: bias, scales, weights", p.bias, p.scale, p.weight)


def _conv2d_dynamic(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Conv2dDynamic)
    if _is_product(p):
        return [_dynamic_product(step, p, image_rows(step.y), step.y.shape[2])]
    words = {"MIDGE_OP_DATA": _dynamic_data(step, p), **_image_words(step, p, p.x_shape)}
    return [record(step, "midge_conv2d_dynamic", words, image_rows(step.y))]


FLOAT_RECORDS: dict[type, Callable[[Step], list[Record]]] = {
    BinaryF32: _binary,
    ConstantF32: _constant,
    Conv2dDynamic: _conv2d_dynamic,
    Conv2dF32: _conv2d,
    DynamicQuantize: _dynamic_quantize,
    FullyConnectedDynamic: _fully_connected_dynamic,
    FullyConnectedF32: _fully_connected,
    MatMulF32: _matmul,
    PadF32: _pad,
    Pool2dF32: _pool2d,
    ReduceF32: _reduce,
    SoftmaxF32: _softmax,
    UnaryF32: _unary,
    **GENERAL_RECORDS,
}
