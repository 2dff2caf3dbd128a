"""Writes NAME.c and NAME.h: the records, the constants and the typed interface of one model."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import midge
from midge.convert.emit_program import Program
from midge.convert.emit_step import Record
from midge.convert.pack import ConstData
from midge.convert.plan import Plan, PlanTensor
from midge.convert.target import Target, runtime_folder
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]
C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t", "float32": "float"}
_C_DTYPES = {d: f"MIDGE_{d.upper()}" for d in C_TYPES}
WORDS_PER_LINE = 8
MODEL_HEADERS = ("midge_model.h", "midge_model_f32.h", "midge_model_general.h")  # narrowest first
CACHE_LINE = 64  # bytes


def comment_text(text: str) -> str:
    """Return text that may stand inside a C comment."""
    shown = re.sub(r"[^\x20-\x7e]", "_", text.replace("\\", "/"))
    return shown.replace("*/", "* /").replace("/*", "/ *")


def string_literal(text: str) -> str:
    """Return a C string literal with the UTF-8 bytes of `text`."""
    plain = [
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    ]
    return '"' + "".join(plain) + '"'


def float_literal(value: Any) -> str:
    """Return the shortest C literal that is exactly this float32."""
    return f"{np.float32(value)!s}f" if "." in str(np.float32(value)) else _exponent_literal(value)


def _exponent_literal(value: Any) -> str:
    return np.format_float_scientific(np.float32(value), unique=True, trim="0") + "f"


def hex_words(words: Array) -> str:
    """Return 32-bit words as lines of C hex constants."""
    digits = np.asarray(words, ">u4").tobytes().hex()
    items = [f"0x{digits[i : i + 8]}," for i in range(0, len(digits), 8)]
    lines = (items[i : i + WORDS_PER_LINE] for i in range(0, len(items), WORDS_PER_LINE))
    return "\n".join("    " + " ".join(line) for line in lines)


def io_tensors(plan: Plan) -> list[tuple[str, int, PlanTensor]]:
    """Return ("INPUT" or "OUTPUT", its index, tensor) of the inputs, then of the outputs."""
    inputs = [("INPUT", i, plan.tensors[t]) for i, t in enumerate(plan.inputs)]
    return inputs + [("OUTPUT", i, plan.tensors[t]) for i, t in enumerate(plan.outputs)]


def io_params(tensor: PlanTensor) -> QuantParams | None:
    """Return the parameters of the codes that the application sees, None for real values."""
    if tensor.dtype not in ("int8", "uint8"):
        return None
    params = tensor.file_params or tensor.params
    return params.as_dtype(tensor.dtype) if params else None


def file_shape(tensor: PlanTensor) -> tuple[int, ...]:
    """Return the shape of an input or output as the ONNX file has it."""
    return tensor.file_shape or tensor.shape


def source(plan: Plan, name: str, program: Program, data: ConstData, target: Target) -> str:
    """Return the text of NAME.c."""
    kernels = program.kernels
    blocks = [
        f"    /* {comment_text(title)} */\n{hex_words(words)}" for title, words in data.blocks
    ]
    records = [
        f"    /* {comment_text(title)} */\n{_record(record, kernels)}"
        for title, record in program.records
    ]
    infos = [_info(plan, tensor) for _, _, tensor in io_tensors(plan)]
    newline = "\n"
    return f"""/* {name}.c - {_origin(plan)} */
#include "{name}.h"

#include "{_model_header(kernels)}"
{_x86_header(target)}
static const MIDGE_ALIGN(64) uint32_t {name}_data[] = {{
{newline.join(blocks) or "    0,"}
}};

static const midge_kernel {name}_kernels[] = {{
{_kernel_tables(kernels, target) or "    NULL,"}
}};

static const midge_op {name}_ops[] = {{
{newline.join(records) or "    {{0}},"}
}};

static const midge_tensor_info {name}_tensors[] = {{
{newline.join(infos)}
}};

const midge_model {name}_model = {{
    {runtime_abi()},
    {name.upper()}_ARENA_BYTES,
    {name.upper()}_SCRATCH_BYTES,
    {program.steps},
    {len(plan.inputs)},
    {len(plan.outputs)},
    {len(kernels)},
    {name}_ops,
    {name}_kernels,
    {target.probe or "NULL"},
    {name}_data,
    {name}_tensors,
}};
"""


def _kernel_tables(kernels: Sequence[str], target: Target) -> str:
    """Return the names of one table of kernels for each level."""
    tables = [[target.kernel(k, level) for k in kernels] for level in target.levels]
    if len(tables) == 1:
        return "\n".join(f"    {kernel}," for kernel in tables[0])
    return "\n".join(
        "\n".join([f"    /* {level} */", *(f"    {kernel}," for kernel in table)])
        for level, table in zip(target.levels, tables, strict=True)
    )


def _x86_header(target: Target) -> str:
    return '#include "midge_x86.h"\n' if target.probe else ""


def _model_header(kernels: Sequence[str]) -> str:
    """Return the runtime's narrowest header that declares these kernels; wider ones include it."""
    folder = runtime_folder() / "include"
    for header in MODEL_HEADERS[:-1]:
        text = (folder / header).read_text(encoding="utf-8")
        kernels = [kernel for kernel in kernels if f"void {kernel}(" not in text]
        if not kernels:
            return header
    return MODEL_HEADERS[-1]


def runtime_abi() -> str:
    """Return MIDGE_ABI of the runtime that is copied beside the model, as C."""
    text = (runtime_folder() / "include" / "midge.h").read_text(encoding="utf-8")
    found = re.search(r"#define MIDGE_ABI (\w+)", text)
    assert found is not None
    return found[1]


def _origin(plan: Plan) -> str:
    return f'written by midge {midge.__version__} from the network "{comment_text(plan.name)}"'


def _record(record: Record, kernels: Sequence[str]) -> str:
    """Return one midge_op as designated initializers; words that are 0 are left out."""
    kernel = f"{kernels.index(record.kernel)}{' | MIDGE_SPLIT' if record.split else ''}"
    words = {"MIDGE_OP_KERNEL": f"MIDGE_PAIR({kernel}, {record.rows})", **record.words}
    shown = [f"[{k}] = {v}" for k, v in words.items() if v != "0" or k == "MIDGE_OP_KERNEL"]
    lines, line = [], ""
    for item in shown:
        if len(line) + len(item) > 88:
            lines.append(line)
            line = ""
        line += f"{item}, "
    lines.append(line)
    body = "\n".join(f"      {text.rstrip()}" for text in lines)
    return f"    {{{{ /* {record.kernel} */\n{body}\n    }}}},"


def _info(plan: Plan, tensor: PlanTensor) -> str:
    params, shape = io_params(tensor), file_shape(tensor)
    scale = float_literal(params.scale if params else 1)
    dims = ", ".join(map(str, shape)) or "0"
    return (
        f"    {{{string_literal(tensor.name)}, {plan.offsets[tensor.buffer]}, {tensor.bytes},\n"
        f"     {_C_DTYPES[tensor.dtype]}, {len(shape)}, {{{dims}}}, {scale}, "
        f"{params.zero_point if params else 0}}},"
    )


def header(plan: Plan, name: str) -> str:
    """Return the text of NAME.h."""
    upper = name.upper()
    macros = "\n".join(_macros(upper, *entry) for entry in io_tensors(plan))
    return f"""/* {name}.h - {_origin(plan)} */
#ifndef {upper}_H
#define {upper}_H

#include <string.h>

#include "midge.h"

#ifdef __cplusplus
extern "C" {{
#endif

/* RAM of one session in bytes, aligned to MIDGE_ARENA_ALIGNMENT: exact, a run needs no more. */
#define {upper}_ARENA_BYTES {max(plan.arena_bytes, 1)}u

/* What each further thread of midge_run_parallel needs, see midge_parallel.h. */
#define {upper}_SCRATCH_BYTES {thread_scratch(plan)}u

#define {upper}_INPUT_COUNT {len(plan.inputs)}
#define {upper}_OUTPUT_COUNT {len(plan.outputs)}

{macros}
/* The network, for midge_open. */
extern const midge_model {name}_model;

{_wrapper(plan, name)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def thread_scratch(plan: Plan) -> int:
    """Return the bytes that a thread needs beside the arena, in whole cache lines."""
    return -(-max(plan.scratch_bytes, default=0) // CACHE_LINE) * CACHE_LINE


def _macros(upper: str, kind: str, index: int, tensor: PlanTensor) -> str:
    params, shape = io_params(tensor), file_shape(tensor)
    title = comment_text(tensor.name)
    prefix = f"#define {upper}_{kind}_{index}"
    lines = [f'/* {kind.capitalize()} {index}: "{title}", {tensor.dtype} {list(shape)}. */']
    lines += [f"{prefix}_BYTES {tensor.bytes}u"]
    lines += [f"{prefix}_ELEMENTS {int(np.prod(tensor.shape, dtype=np.int64))}u"]
    if params:
        lines += [f"{prefix}_SCALE {float_literal(params.scale)}"]
        lines += [f"{prefix}_ZERO_POINT ({params.zero_point})"]
    return "\n".join(lines) + "\n"


def _wrapper(plan: Plan, name: str) -> str:
    """Return the typed struct and its two functions."""
    upper = name.upper()
    arguments, before, after = [], [], []
    for kind, index, tensor in io_tensors(plan):
        word = f"{kind.lower()}_{index}"
        size = f"{upper}_{kind}_{index}_BYTES"
        if kind == "INPUT":
            arguments.append(f"const {C_TYPES[tensor.dtype]} *{word}")
            before.append(f"    memcpy(midge_input(&net->session, {index}), {word}, {size});")
        else:
            arguments.append(f"{C_TYPES[tensor.dtype]} *{word}")
            after.append(f"    memcpy({word}, midge_output(&net->session, {index}), {size});")
    newline = "\n"
    signature = ",\n    ".join([f"{name}_network *net", *arguments])
    return f"""/* One instance of the network: its session and its memory. */
typedef struct {name}_network {{
    midge_session session;
    MIDGE_ALIGN(16) uint8_t arena[{upper}_ARENA_BYTES];
}} {name}_network;

/* Prepares an instance; call it once. */
static inline midge_status {name}_open({name}_network *net) {{
    return midge_open(&net->session, &{name}_model, net->arena, sizeof net->arena);
}}

/* Copies the inputs in, runs the network and copies the outputs out. */
static inline midge_status {name}_run(
    {signature}) {{
{newline.join(before)}
    const midge_status status = midge_run(&net->session);
{newline.join(after)}
    return status;
}}
"""
