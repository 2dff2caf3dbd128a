"""What one core can multiply at most, for each instruction set: the yardstick of a layer's speed.

The loops keep everything in registers and wait for nothing: twelve accumulators, so that the
latency of an instruction is hidden. Only exact products count, so AVX2 is measured with vpmaddwd
on 16-bit operands and not with vpmaddubsw, whose sums saturate.
"""

import platform
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from midge.core.errors import ToolError
from midge.core.native import Compiler, compile_program, cpu_features

ACCUMULATORS = 12
WINDOWS = 201  # short ones, the best of which nobody interrupted
TIMEOUT_S = 60
INT8, FLOAT32 = "int8", "float32"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of multiply-accumulates.

    Args:
        level: of target.X86_64.
        kind: INT8 or FLOAT32.
        macs: of one body.
        body: assembler of one multiply-accumulate, {a} is the accumulator's number; 12 to 15 are
            free.
        feature: of the processor that it needs, as /proc/cpuinfo has it.
    """

    level: str
    kind: str
    macs: int
    body: tuple[str, ...]
    feature: str


AVX2_INT8 = "vpmaddwd %%ymm14, %%ymm15, %%ymm12", "vpaddd %%ymm12, %%ymm{a}, %%ymm{a}"
LOOPS = (
    Loop(
        "portable",
        INT8,
        8,
        ("movdqa %%xmm14, %%xmm12", "pmaddwd %%xmm15, %%xmm12", "paddd %%xmm12, %%xmm{a}"),
        "sse2",
    ),
    Loop(
        "portable",
        FLOAT32,
        4,
        ("movaps %%xmm14, %%xmm12", "mulps %%xmm15, %%xmm12", "addps %%xmm12, %%xmm{a}"),
        "sse2",
    ),
    Loop("avx2", INT8, 16, AVX2_INT8, "avx2"),
    Loop("avx2", FLOAT32, 8, ("vfmadd231ps %%ymm14, %%ymm15, %%ymm{a}",), "fma"),
    Loop("avxvnni", INT8, 32, ("%{{vex%}} vpdpbusd %%ymm14, %%ymm15, %%ymm{a}",), "avx_vnni"),
    Loop("avxvnni", FLOAT32, 8, ("vfmadd231ps %%ymm14, %%ymm15, %%ymm{a}",), "avx_vnni"),
    Loop("avx512f", INT8, 16, AVX2_INT8, "avx512f"),
    Loop("avx512f", FLOAT32, 16, ("vfmadd231ps %%zmm14, %%zmm15, %%zmm{a}",), "avx512f"),
    Loop("avx512vnni", INT8, 64, ("vpdpbusd %%zmm14, %%zmm15, %%zmm{a}",), "avx512_vnni"),
    Loop("avx512vnni", FLOAT32, 16, ("vfmadd231ps %%zmm14, %%zmm15, %%zmm{a}",), "avx512_vnni"),
)


def peaks(compiler: Compiler | None = None) -> dict[tuple[str, str], float]:
    """Return GMAC/s of this core by (level, kind); empty where there are no loops for it.

    Raises:
        ToolError: the compiler or the program failed.
    """
    loops = [loop for loop in LOOPS if loop.feature in cpu_features()]
    if platform.machine().lower() not in ("x86_64", "amd64") or not loops:
        return {}
    with tempfile.TemporaryDirectory(prefix="midge-peak-") as folder:
        source = Path(folder) / "midge_peak.c"
        source.write_text(peak_program(loops), encoding="utf-8")
        program = compile_program([source], flags=["-O2"], compiler=compiler)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=TIMEOUT_S)
    rates = [float(word) for word in done.stdout.split()]
    if done.returncode or len(rates) != len(loops):
        raise ToolError(f"the peak program ended with status {done.returncode}.")
    return {(loop.level, loop.kind): rate for loop, rate in zip(loops, rates, strict=True)}


def peak_program(loops: list[Loop]) -> str:
    """Return the text of a program that prints GMAC/s of each loop."""
    functions = "\n".join(_function(index, loop) for index, loop in enumerate(loops))
    calls = "\n".join(f"    report(loop_{i}, {loop.macs}.0);" for i, loop in enumerate(loops))
    return f"""#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>

#define TURNS 2000

static double now(void) {{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}}

{functions}
static void report(void (*loop)(void), double macs) {{
    double best = 1e30;
    for (int i = 0; i < {WINDOWS}; ++i) {{
        const double begin = now();
        loop();
        const double spent = now() - begin;
        best = spent < best ? spent : best;
    }}
    printf("%.3f ", macs * {ACCUMULATORS} * TURNS / best);
}}

int main(void) {{
{calls}
    return 0;
}}
"""


def _function(index: int, loop: Loop) -> str:
    lines = [line.format(a=a) for a in range(ACCUMULATORS) for line in loop.body]
    body = "\n".join(f'            "{line}\\n\\t"' for line in lines)
    clobbers = ", ".join(f'"xmm{i}"' for i in range(16))
    # Zeros everywhere: a float product that is denormal or infinite would be slow.
    clear = "\n".join(f'        "pxor %%xmm{i}, %%xmm{i}\\n\\t"' for i in (*range(12), 14, 15))
    return f"""/* {loop.level}, {loop.kind} */
static void loop_{index}(void) {{
    __asm__ volatile(
{clear}
        ::: {clobbers});
    for (int i = 0; i < TURNS; ++i)
        __asm__ volatile(
{body}
            ::: {clobbers});
    {'__asm__ volatile("vzeroupper" ::: "memory");' if loop.level != "portable" else ""}
}}
"""
