"""The public interface, and the rules that the sources keep."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from midge.convert.build import host_program
from midge.convert.emit import emit
from midge.convert.emit_records import RECORDS
from midge.convert.plan import FlipSign, Table
from midge.convert.target import X86_64, runtime_folder
from midge.core.native import compile_program, find_compiler

STRICT = [
    *("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wdouble-promotion"),
    *("-Wshadow", "-Wstrict-prototypes", "-Wundef", "-Wvla", "-Wcast-qual", "-Werror"),
]
SESSION = """
#include <stdio.h>
#include "a.h"
#include "b.h"
#define CHECK(condition) do { if (!(condition)) { puts(#condition); return 1; } } while (0)
static a_network a;
static b_network b;
static MIDGE_ALIGN(16) uint8_t raw[A_ARENA_BYTES + 16];
int main(void) {
    midge_session s, t;
    CHECK(midge_open(NULL, &a_model, raw, sizeof raw) == MIDGE_EARG);
    CHECK(midge_open(&s, NULL, raw, sizeof raw) == MIDGE_EARG);
    CHECK(midge_open(&s, &a_model, NULL, sizeof raw) == MIDGE_EARG);
    CHECK(midge_open(&s, &a_model, raw + 8, A_ARENA_BYTES) == MIDGE_EALIGN);
    CHECK(midge_open(&s, &a_model, raw, A_ARENA_BYTES - 1) == MIDGE_EARENA);
    CHECK(midge_open(&s, &a_model, raw, A_ARENA_BYTES) == MIDGE_OK);
    CHECK(midge_input(&s, A_INPUT_COUNT) == NULL && midge_output(&s, A_OUTPUT_COUNT) == NULL);
    CHECK(midge_info(&a_model, A_INPUT_COUNT + A_OUTPUT_COUNT) == NULL);
    CHECK(midge_run(NULL) == MIDGE_EARG && midge_step(NULL) == MIDGE_EARG);
    const midge_tensor_info *info = midge_info(&a_model, 0);
    CHECK(info->dtype == MIDGE_UINT8 && info->rank == 2 && info->shape[1] == 3);
    CHECK(info->bytes == A_INPUT_0_BYTES && strcmp(info->name, "x_0") == 0);

    /* Two models and two sessions of one of them, interleaved step by step. */
    const uint8_t first[3] = {0, 1, 255}, second[3] = {9, 8, 7};
    CHECK(a_open(&a) == MIDGE_OK && b_open(&b) == MIDGE_OK);
    CHECK(midge_open(&t, &a_model, raw, sizeof raw) == MIDGE_OK);
    memcpy(midge_input(&a.session, 0), first, 3);
    memcpy(midge_input(&t, 0), second, 3);
    CHECK(midge_step(&a.session) == MIDGE_MORE && midge_step(&t) == MIDGE_MORE);
    int8_t y[4];
    const int8_t x[4] = {-128, 0, 127, 5};
    CHECK(b_run(&b, x, y) == MIDGE_OK);
    CHECK(y[0] == 127 && y[1] == -1 && y[2] == -128 && y[3] == -6);
    CHECK(midge_step(&t) == MIDGE_OK && midge_step(&a.session) == MIDGE_OK);
    const int8_t *ya = (const int8_t *)midge_output(&a.session, 0);
    const int8_t *yt = (const int8_t *)midge_output(&t, 0);
    CHECK(ya[0] == -128 && ya[1] == -127 && ya[2] == 127);
    CHECK(yt[0] == -119 && yt[1] == -120 && yt[2] == -121);
    puts("ok");
    return 0;
}
"""

MATHEMATICAL = {
    *("midge_exp_f32", "midge_math_f32", "midge_mod_f32", "midge_pow_f32", "midge_softmax_f32"),
    *("midge_gru_f32", "midge_lstm_f32", "midge_rnn_f32", "midge_trig_f32"),
}
LIBRARY = {  # what they may call
    *("ceilf", "erff", "expf", "expm1f", "floorf", "log1pf", "logf"),
    *("powf", "rintf", "sqrtf", "tanhf", "fmodf", "copysignf"),
    *("sinf", "cosf", "tanf", "atanf", "sinhf", "coshf", "asinhf"),
    *("acosf", "acoshf", "asinf", "atanhf"),
}


def sources():
    return sorted((runtime_folder() / "src").glob("*.c"))


@pytest.fixture(scope="module")
def folders(network, tmp_path_factory):
    """Models a (FlipSign twice, on inputs of its own) and b (a table), each in its own folder."""
    root = tmp_path_factory.mktemp("models")
    a = network()
    x = np.zeros((2, 1, 3), np.uint8)
    a.op(FlipSign(), x)
    a.op(FlipSign(), x)
    emit(a.plan(), root / "a", "a")
    b = network()
    b.op(Table(np.arange(127, -129, -1).astype(np.int8)), b.codes(4))
    emit(b.plan(), root / "b", "b")
    return root


def linked(folders, tmp_path, text, suffix=".c"):
    """Sources of both models, each runtime file once."""
    program = tmp_path / f"application{suffix}"
    program.write_text(text)
    files = {path.name: path for d in "ab" for path in (folders / d).glob("*.c")}
    return [program, *files.values()]


def test_two_models_link_with_one_runtime_and_sessions_do_not_meet(folders, tmp_path):
    files = linked(folders, tmp_path, SESSION)
    flags = ["-O2", "-fsanitize=address,undefined", *STRICT]
    program = compile_program(files, flags=flags, include=[folders / "a", folders / "b"])
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("ok\n", "", 0)


def test_both_copies_of_a_runtime_file_are_the_same(folders):
    for path in (folders / "a").glob("midge*"):
        twin = folders / "b" / path.name
        assert not twin.exists() or path.read_bytes() == twin.read_bytes()


def test_headers_serve_cplusplus(folders, tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    program = tmp_path / "application.cpp"
    program.write_text('#include "a.h"\nint main() { static a_network n; return a_open(&n); }\n')
    for standard in ("c++98", "c++11", "c++20"):
        flags = f"-std={standard} -Wall -Wextra -Wpedantic -Wno-long-long -Werror -fsyntax-only"
        subprocess.run(["g++", *flags.split(), f"-I{folders / 'a'}", program], check=True)


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("form", ["FLOAT", "INT"])
def test_sources_compile_without_a_warning(name, form, tmp_path):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    include = runtime_folder() / "include"
    flags = [*STRICT, f"-I{include}", f"-DMIDGE_REQUANT_{form}", "-O2", "-c"]
    subprocess.run([name, *flags, *sources()], check=True, cwd=tmp_path)


def test_emitted_files_compile_without_a_warning(zoo, tmp_path):
    emit(zoo.plan(), tmp_path, "zoo", golden=(zoo.feeds, zoo.wants))
    for name in ("zoo.c", "host/zoo_main.c", "host/zoo_test.c"):
        flags = [*STRICT, f"-I{tmp_path}", "-fsyntax-only"]
        subprocess.run(["gcc", *flags, tmp_path / name], check=True)


def test_the_runtime_keeps_no_state_and_calls_nothing_but_memory_functions(tmp_path):
    include = runtime_folder() / "include"
    for form in ("FLOAT", "INT"):
        flags = ["-O2", "-c", "-ffreestanding", f"-I{include}", f"-DMIDGE_REQUANT_{form}"]
        subprocess.run(["gcc", *flags, *sources()], check=True, cwd=tmp_path)
        for path in tmp_path.glob("*.o"):
            listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
            symbols = re.findall(r"(\w) (\w+)$", listing.stdout, re.MULTILINE)
            assert not [s for kind, s in symbols if kind in "bBdDC"], path.name
            needed = {s for kind, s in symbols if kind == "U"} - {"_GLOBAL_OFFSET_TABLE_"}
            mathematical = LIBRARY if path.stem in MATHEMATICAL else set()
            assert needed <= {"memcpy", "memset"} | mathematical, path.name


def test_a_model_of_codes_needs_no_float_kernel_and_no_library(zoo, tmp_path):
    emit(zoo.plan(), tmp_path, "zoo")
    assert not any("math.h" in path.read_text() for path in tmp_path.glob("midge_*"))
    assert not any("f32.h" in path.read_text() for path in tmp_path.glob("*.[ch]"))
    assert "-lm" not in (tmp_path / "Makefile").read_text()


def test_every_kernel_is_emitted_by_the_zoo(zoo, tmp_path):
    emit(zoo.plan(), tmp_path, "zoo")
    emit(zoo.plan(), tmp_path, "zoo", target=X86_64)
    emitted = {path.name for path in tmp_path.glob("midge_*.c")}
    declared = (runtime_folder() / "include" / "midge_model.h").read_text()
    kernels = {p.name for p in sources() if f"void {p.stem}(" in declared}
    assert emitted >= kernels - {"midge_stream.c"}  # of plans in strips, in test_stream
    assert {type(op.params) for op in zoo.ops} == set(RECORDS)


def test_each_source_is_named_like_its_function():
    for path in sources():
        if path.stem not in ("midge_session", "midge_parallel"):
            assert f"void {path.stem}(const midge_strip *strip" in path.read_text()


def test_fast_math_is_refused(tmp_path):
    command = ["gcc", "-ffast-math", f"-I{runtime_folder() / 'include'}", "-fsyntax-only"]
    done = subprocess.run([*command, sources()[0]], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "-ffast-math changes results" in done.stderr


def test_no_kernel_writes_outside_its_output(zoo, tmp_path):
    gap = 64
    plan = zoo.plan(gap=gap)
    emit(plan, tmp_path, "zoo")
    ends = sorted(
        o + -(-t.bytes // 16) * 16 for o, t in zip(plan.offsets, plan.tensors, strict=True)
    )
    pads = ", ".join(f"{end}" for end in ends)
    source = tmp_path / "guard.c"
    source.write_text(f"""
#include <stdio.h>
#include <stdlib.h>
#include <sanitizer/asan_interface.h>
#include "zoo.h"
static const uint32_t gaps[] = {{{pads}}};
int main(void) {{
    uint8_t *arena = aligned_alloc(16, ZOO_ARENA_BYTES);
    midge_session s;
    if (!arena || midge_open(&s, &zoo_model, arena, ZOO_ARENA_BYTES) != MIDGE_OK)
        return 1;
    memset(arena, 0xA5, ZOO_ARENA_BYTES);
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; ++i)
        ASAN_POISON_MEMORY_REGION(arena + gaps[i], {gap});
    for (uint32_t i = 0; i < ZOO_INPUT_COUNT; ++i)
        if (fread(midge_input(&s, i), 1, midge_info(&zoo_model, i)->bytes, stdin) == 0)
            return 1;
    const midge_status status = midge_run(&s);
    ASAN_UNPOISON_MEMORY_REGION(arena, ZOO_ARENA_BYTES);
    free(arena);
    return status;
}}
""")
    files = [source, *tmp_path.glob("*zoo.c"), *tmp_path.glob("midge_*.c")]
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    compiler = find_compiler("gcc")
    program = compile_program(files, flags=flags, include=[tmp_path], compiler=compiler)
    done = subprocess.run([program], input=zoo.samples, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")


def test_a_step_at_a_time_shows_every_tensor(zoo, tmp_path):
    emit(zoo.plan(), tmp_path, "zoo")
    assert host_program(tmp_path, "zoo", trace=True).run(zoo.samples) == zoo.results
