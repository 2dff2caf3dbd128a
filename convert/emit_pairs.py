"""Records of Add, Sub, Mul and MatMul, whose two operands have scales of their own."""

from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.emit_add import code_offset, find_form
from midge.convert.emit_broadcast import BINARY_AXES, broadcast_axes
from midge.convert.emit_step import Record, Step, Words, bits, map_rows, record, word
from midge.convert.plan import Add, MatMul, Mul, Requantization
from midge.quant import arithmetic

Array = npt.NDArray[Any]
_SMALLEST_NORMAL = np.float32(2.0**-126)


def check_multipliers(step: Step, m: Array) -> None:
    """Refuse multipliers that R1 is not defined for."""
    if not np.all(np.isfinite(m) & (m >= 0)):
        raise step.fail("a requantization multiplier is negative, infinite or not a number")


def add_records(step: Step) -> list[Record]:
    """Return the record of an Add or Sub: an integer form where one has the definition's bits."""
    p = step.op.params
    assert isinstance(p, Add)
    offset = code_offset(p.y)
    coefficients = arithmetic.add_coefficients(p.a, p.b, p.y, subtract=p.subtract)
    rows, elements = map_rows(step)
    words: Words = {
        "MIDGE_ADD_B": step.x_at[1],
        "MIDGE_ADD_COUNT": elements,
        "MIDGE_ADD_B_RING": step.rings[1] if step.rings else 0,
        "MIDGE_ADD_RA": bits(coefficients[0]),
        "MIDGE_ADD_RB": bits(coefficients[1]),
        "MIDGE_ADD_C": bits(coefficients[2]),
        "MIDGE_ADD_OFFSET": offset,
    }
    form = None if step.target.packed else find_form(p)  # vector units have the definition
    if form is None:
        if not all(v == 0 or abs(v) >= _SMALLEST_NORMAL for v in coefficients):
            raise step.fail("the scales of its inputs and output lie too far apart")
        return [record(step, "midge_add_exact_s8", words, rows)]
    words |= {
        "MIDGE_ADD_SHIFT": form.shift,
        "MIDGE_ADD_MA": word(form.ma),
        "MIDGE_ADD_MB": word(form.mb),
        "MIDGE_ADD_K": word(form.k & 0xFFFFFFFF),
        "MIDGE_ADD_K + 1": word(form.k >> 32 & 0xFFFFFFFF),
    }
    kernel = "midge_add_s8" if form.bits == 32 else "midge_add_wide_s8"
    return [record(step, kernel, words, rows)]


def mul_records(step: Step) -> list[Record]:
    """Return the record of a Mul."""
    p = step.op.params
    assert isinstance(p, Mul)
    check_multipliers(step, p.requantization.m)
    b = step.x[1].shape if p.constant is None else p.constant.shape
    axes = broadcast_axes(step.y.shape, step.x[0].shape, b)
    if len(axes) > BINARY_AXES:
        raise step.fail(f"needs {len(axes)} axes; the C kernel has {BINARY_AXES}")
    axes = [(1, 0, 0)] * (BINARY_AXES - len(axes)) + axes
    header = np.zeros(4, np.uint32)
    header[0] = np.float32(p.requantization.m[0]).view(np.uint32)
    header[1] = _packed(p.a_zero_point, p.requantization)
    header[2] = p.b_zero_point & 0xFFFFFFFF
    header[3] = p.constant is not None
    constant = [] if p.constant is None else [p.constant.astype(np.int8)]
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: product", header, *constant),
        "MIDGE_MUL_B": step.x_at[1] if p.constant is None else 0,
        "MIDGE_MUL_STEP": step.pair("steps", *axes[-1][1:]),
    }
    words |= {f"MIDGE_MUL_SHAPE + {i}": size for i, (size, _, _) in enumerate(axes)}
    words |= {f"MIDGE_MUL_A_PITCH + {i}": pitch for i, (_, pitch, _) in enumerate(axes[:-1])}
    words |= {f"MIDGE_MUL_B_PITCH + {i}": pitch for i, (_, _, pitch) in enumerate(axes[:-1])}
    return [record(step, "midge_mul_s8", words)]


def matmul_records(step: Step) -> list[Record]:
    """Return the record of a product of two activations."""
    p = step.op.params
    assert isinstance(p, MatMul)
    check_multipliers(step, p.requantization.m)
    batch, rows, columns = p.sizes
    stored = tuple(p.sizes[p.y_order.index(axis)] for axis in range(3))
    a, b = _pitches(step.x[0].shape, p.a_order), _pitches(step.x[1].shape, p.b_order)
    y = _pitches(stored, p.y_order)
    header = np.zeros(11, np.uint32)
    header[0] = np.float32(p.requantization.m[0]).view(np.uint32)
    header[1] = _packed(p.a_zero_point, p.requantization)
    header[2] = p.b_zero_point & 0xFFFFFFFF
    header[3:] = [*a, *b, *y[:2]]
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: product", header),
        "MIDGE_MATMUL_S8_B": step.x_at[1],
        "MIDGE_MATMUL_S8_ROWS": rows,
        "MIDGE_MATMUL_S8_DEPTH": step.x[0].shape[p.a_order[2]],
        "MIDGE_MATMUL_S8_COLUMNS": columns,
    }
    return [record(step, "midge_matmul_s8", words, batch)]


def _pitches(shape: tuple[int, ...], order: tuple[int, int, int]) -> list[int]:
    """Return the bytes between neighbours along each of three axes, 0 for a batch of 1."""
    pitches = [int(np.prod(shape[axis + 1 :])) for axis in order]
    return [0 if shape[order[0]] == 1 else pitches[0], *pitches[1:]]


def _packed(x_zero_point: int, r: Requantization) -> int:
    """Return the value of a MIDGE_CODES word."""
    codes = (x_zero_point, r.zero_point, r.low, r.high)
    return sum((code & 255) << 8 * i for i, code in enumerate(codes))
