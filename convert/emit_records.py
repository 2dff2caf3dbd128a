"""Turns the steps of a Plan into the records that the C runtime carries out.

One function per Plan parameter class, in the table RECORDS.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert import pack
from midge.convert.emit_float import FLOAT_RECORDS
from midge.convert.emit_layers import (
    as_convolution,
    codes_word,
    conv2d_words,
    packed_conv2d,
    packed_product,
)
from midge.convert.emit_moves import (
    concat_records,
    constant_record,
    pad_records,
    slice_records,
    transpose_records,
)
from midge.convert.emit_pairs import add_records, check_multipliers, matmul_records, mul_records
from midge.convert.emit_step import (
    Record,
    Step,
    Words,
    bits,
    count,
    image_rows,
    map_rows,
    record,
    word,
)
from midge.convert.pack import ConstData
from midge.convert.plan import (
    Add,
    Concat,
    Constant,
    Conv2d,
    Dequantize,
    FlipSign,
    FullyConnected,
    MatMul,
    Mul,
    Pad,
    Plan,
    Pool2d,
    Quantize,
    Slice,
    Softmax,
    Table,
    Transpose,
)
from midge.convert.target import C99, Target, is_packed
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]


def records(plan: Plan, data: ConstData, target: Target = C99) -> list[list[Record]]:
    """Return the records of every PlanOp in order; a step may need several.

    Args:
        plan: with offsets.
        data: receives the constants.
        target: selects the kernels.

    Raises:
        UnsupportedError: a step does not fit the record format, named.
    """
    result = []
    streamed = {index for stream in plan.streams for index in stream.steps}
    sizes = plan.scratch_bytes or [0] * len(plan.ops)
    scratch = list(zip(plan.scratch or [0] * len(plan.ops), sizes, strict=True))
    for index, op in enumerate(plan.ops):
        used = (*op.inputs, op.output)
        *x, y = (plan.tensors[i] for i in used)
        *x_at, y_at = (plan.offsets[t.buffer] for t in (*x, y))
        rings = tuple(plan.rings.get(i, 0) for i in used)
        where = index in streamed, rings, scratch[index]
        step = Step(op, tuple(x), y, tuple(x_at), y_at, data, target, *where)
        make = RECORDS.get(type(op.params)) or FLOAT_RECORDS.get(type(op.params))
        if make is None:
            raise step.fail("the C runtime has no kernel for it")
        result.append(make(step))
    return result


def _conv2d(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Conv2d)
    check_multipliers(step, p.requantization.m)
    _, kh, kw, _ = p.weight.shape
    if is_packed(step.target, p):
        return [packed_conv2d(step, p)]
    one_by_one = (kh, kw, *p.stride, p.groups) == (1, 1, 1, 1, 1) and not any(p.pads)
    if one_by_one and not p.weight_zero_point:
        return [_matrix_product(step, p, image_rows(step.y), step.y.shape[2])]
    return [_unpacked(step, p)]


def _unpacked(step: Step, p: Conv2d) -> Record:
    """Return the record of a convolution with any groups, whose weights may have a zero-point."""
    depthwise = p.groups == step.x[0].shape[3]
    words = conv2d_words(step, p, *(pack.depthwise_conv2d(p) if depthwise else pack.conv2d(p)))
    words["MIDGE_CONV_W_ZERO_POINT"] = word(p.weight_zero_point)
    kernel = f"midge_{'depthwise_' * depthwise}conv2d_s8"
    if p.weight_zero_point:
        kernel = "midge_conv2d_asymmetric_s8"
    return record(step, kernel, words, image_rows(step.y))


def _matrix_product(step: Step, p: FullyConnected | Conv2d, rows: int, pixels: int) -> Record:
    packed = pack.fully_connected(p)
    channels, depth = packed[2].shape
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: bias, multipliers, weights", *packed),
        "MIDGE_FC_PIXELS": pixels,
        "MIDGE_FC_DEPTH": depth,
        "MIDGE_FC_CHANNELS": channels,
        "MIDGE_FC_CODES": codes_word(p.x_zero_point, p.requantization),
    }
    return record(step, "midge_fully_connected_s8", words, rows)


def _fully_connected(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, FullyConnected)
    check_multipliers(step, p.requantization.m)
    rows = count(step.x[0]) // p.weight.shape[1]
    if is_packed(step.target, p):
        return [packed_product(step, p, rows)]
    if not p.weight_zero_point:
        return [_matrix_product(step, p, 1, rows)]
    return [_unpacked(*as_convolution(step, p, rows))]


def _constant(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Constant)
    return [constant_record(step, p.value)]


def _pool2d(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Pool2d)
    N, H, W, C = step.x[0].shape
    words: Words = {
        "MIDGE_POOL_X_SIZE": step.pair("input size", H, W),
        "MIDGE_POOL_Y_SIZE": step.pair("output size", *step.y.shape[1:3]),
        "MIDGE_POOL_CHANNELS": step.pair("batch and channels", N, C),
        "MIDGE_POOL_KERNEL": step.pair("kernel", *p.kernel),
        "MIDGE_POOL_STRIDE": step.pair("stride", *p.stride),
        "MIDGE_POOL_PADS": step.pair("pads", *p.pads[:2]),
        "MIDGE_POOL_DILATION": step.pair("dilation", *p.dilation),
    }
    if p.kind == "max":
        return [record(step, "midge_max_pool_s8", words, image_rows(step.y))]
    r = p.requantization
    assert r is not None
    m = np.asarray(r.m, np.float32).reshape(-1)
    counts = any(p.pads) and not p.count_include_pad
    if counts:
        n = np.arange(1, p.kernel[0] * p.kernel[1] + 1)
        m = arithmetic.average_multiplier(p.x_scale, p.y_scale, n)
    check_multipliers(step, m)
    words |= {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: multipliers", m),
        "MIDGE_POOL_COUNTS": int(counts),
        "MIDGE_POOL_CODES": codes_word(p.x_zero_point, r),
    }
    return [record(step, "midge_average_pool_s8", words, image_rows(step.y))]


def _softmax(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Softmax)
    depth = step.x[0].shape[-1]
    entries = np.trim_zeros(p.table, "b")
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: exponentials", entries),
        "MIDGE_SOFTMAX_ENTRIES": len(entries),
        "MIDGE_SOFTMAX_ROWS": count(step.x[0]) // depth,
        "MIDGE_SOFTMAX_DEPTH": depth,
    }
    return [record(step, "midge_softmax_s8", words)]


def _table(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Table)
    table = step.data.append(f"{step.op.name}: table", p.table.astype(np.int8))
    rows, elements = map_rows(step)
    words: Words = {"MIDGE_OP_DATA": table, "MIDGE_MAP_COUNT": elements}
    return [record(step, "midge_table_s8", words, rows)]


def _flip_sign(step: Step) -> list[Record]:
    return [record(step, "midge_flip_sign", {"MIDGE_MAP_COUNT": count(step.y)})]


def _quantize(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Quantize)
    return [_affine(step, "midge_quantize_f32_s8", p.y)]


def _dequantize(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Dequantize)
    return [_affine(step, "midge_dequantize_s8_f32", p.x)]


def _affine(step: Step, kernel: str, params: QuantParams) -> Record:
    words: Words = {
        "MIDGE_MAP_COUNT": count(step.y),
        "MIDGE_MAP_SCALE": bits(params.scale),
        "MIDGE_MAP_ZERO_POINT": word(params.as_dtype("int8").zero_point),
    }
    return record(step, kernel, words)


RECORDS: dict[type, Callable[[Step], list[Record]]] = {
    Add: add_records,
    Concat: concat_records,
    Constant: _constant,
    Conv2d: _conv2d,
    Dequantize: _dequantize,
    FlipSign: _flip_sign,
    FullyConnected: _fully_connected,
    MatMul: matmul_records,
    Mul: mul_records,
    Pad: pad_records,
    Pool2d: _pool2d,
    Quantize: _quantize,
    Slice: slice_records,
    Softmax: _softmax,
    Table: _table,
    Transpose: transpose_records,
}
