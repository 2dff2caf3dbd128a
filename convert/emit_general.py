"""Turns the steps of plan_general.py into the records that the C runtime carries out."""

from collections.abc import Callable

from midge.convert.emit_broadcast import broadcast_words
from midge.convert.emit_moves import constant_record
from midge.convert.emit_step import Record, Step, Words, count, record
from midge.convert.plan_general import (
    Arg,
    BinaryS32,
    Cast,
    Compare,
    ConstantS32,
    Gather,
    GatherElements,
    RecurrentF32,
    ResampleF32,
    TopF32,
    Where,
)


def _recurrent(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, RecurrentF32)
    steps, batch, inputs = step.x[0].shape
    extra = {"lstm": (p.peepholes,), "gru": (p.hidden_bias,), "rnn": ()}[p.kind]
    flags = [
        flag
        for flag, wanted in {
            "HAS_H": p.has_state[0],
            "HAS_C": p.has_state[1],
            "BACKWARD": p.backward,
            "RESET_AFTER": p.reset_after,
            "RELU": p.relu,
        }.items()
        if wanted
    ]
    data = (p.weight, p.recurrence, p.bias, *extra)
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: weights, recurrence, bias", *data),
        "MIDGE_RECURRENT_STEPS": steps,
        "MIDGE_RECURRENT_BATCH": batch,
        "MIDGE_RECURRENT_INPUTS": inputs,
        "MIDGE_RECURRENT_HIDDEN": p.hidden,
        "MIDGE_RECURRENT_FLAGS": " | ".join(f"MIDGE_RECURRENT_{f}" for f in flags) or 0,
    }
    states = iter(step.x_at[1:])
    words |= {
        f"MIDGE_RECURRENT_{name}": next(states)
        for name, has in zip("HC", p.has_state, strict=True)
        if has
    }
    return [record(step, f"midge_{p.kind}_f32", words)]


def _resample(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, ResampleF32)
    outer, size, inner = step.x[0].shape
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: indices, weights", p.index, p.weight),
        "MIDGE_PICK_OUTER": outer,
        "MIDGE_PICK_FROM": size,
        "MIDGE_PICK_COUNT": p.index.shape[0],
        "MIDGE_PICK_INNER": inner,
        "MIDGE_PICK_TAPS": p.index.shape[1],
    }
    return [record(step, "midge_resample_f32", words)]


def _pair(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, (BinaryS32, Compare))
    kind = f"MIDGE_WORD_{p.kind.upper()}"
    kernel = "midge_compare_f32" if isinstance(p, Compare) else "midge_binary_s32"
    return [record(step, kernel, broadcast_words(step, step.x[1].shape, step.x_at[1], kind))]


def _where(step: Step) -> list[Record]:
    words: Words = {
        "MIDGE_MAP_COUNT": count(step.y),
        "MIDGE_WHERE_A": step.x_at[1],
        "MIDGE_WHERE_B": step.x_at[2],
    }
    return [record(step, "midge_where", words)]


def _cast(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Cast)
    words: Words = {
        "MIDGE_MAP_COUNT": count(step.y),
        "MIDGE_CAST_KIND": f"MIDGE_CAST_{p.kind.upper()}",
    }
    return [record(step, "midge_cast", words)]


def _arg(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, Arg)
    outer, size, inner = step.x[0].shape
    words: Words = {
        "MIDGE_REDUCE_OUTER": outer,
        "MIDGE_REDUCE_COUNT": size,
        "MIDGE_REDUCE_INNER": inner,
        "MIDGE_ARG_FLAGS": p.smallest + 2 * p.last,
    }
    kernel = "midge_arg_s8" if step.x[0].dtype == "int8" else "midge_arg_f32"
    return [record(step, kernel, words)]


def _top(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, TopF32)
    outer, size, inner = step.x[0].shape
    words: Words = {
        "MIDGE_REDUCE_OUTER": outer,
        "MIDGE_REDUCE_COUNT": size,
        "MIDGE_REDUCE_INNER": inner,
        "MIDGE_ARG_FLAGS": int(p.smallest),
        "MIDGE_TOP_K": p.k,
    }
    return [record(step, "midge_top_f32", words)]


def _gather(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, (Gather, GatherElements))
    table = p.table if isinstance(p, Gather) else None
    outer, size, inner = step.x[0].shape if table is None else table.shape
    words: Words = {
        "MIDGE_PICK_OUTER": outer,
        "MIDGE_PICK_FROM": size,
        "MIDGE_PICK_COUNT": step.y.shape[1],
        "MIDGE_PICK_INNER": inner,
        "MIDGE_PICK_INDEX": step.x_at[-1],
    }
    if table is not None:
        words["MIDGE_OP_DATA"] = step.data.append(f"{step.op.name}: table", table)
        words["MIDGE_PICK_TABLE"] = 1
    elements = "_elements" * isinstance(p, GatherElements)
    return [record(step, f"midge_gather{elements}", words)]


def _constant(step: Step) -> list[Record]:
    p = step.op.params
    assert isinstance(p, ConstantS32)
    return [constant_record(step, p.value)]


GENERAL_RECORDS: dict[type, Callable[[Step], list[Record]]] = {
    Arg: _arg,
    BinaryS32: _pair,
    Cast: _cast,
    Compare: _pair,
    ConstantS32: _constant,
    Gather: _gather,
    GatherElements: _gather,
    RecurrentF32: _recurrent,
    ResampleF32: _resample,
    TopF32: _top,
    Where: _where,
}
