"""The emitted folder: what it holds, how it is written, what is refused."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from midge.convert import emit_c
from midge.convert.build import host_program
from midge.convert.emit import emit
from midge.convert.emit_moves import merge_axes
from midge.convert.pack import ConstData
from midge.convert.plan import (
    Conv2d,
    Dequantize,
    FlipSign,
    Plan,
    PlanOp,
    PlanTensor,
    Quantize,
    Requantization,
    Softmax,
    Transpose,
)
from midge.convert.size import measure
from midge.core.errors import InputError, ToolError, UnsupportedError
from midge.quant.arithmetic import softmax_table
from midge.quant.scheme import QuantParams

QUANTIZED = QuantParams(np.float32(0.1), 131)


def plan_of(*steps, name="net"):
    """A chain: the first step's input, then (params, shape, dtype) one after another."""
    (shape, dtype), *ops = steps
    file_shape = (1, *shape)
    tensors = [PlanTensor("in/put", shape, dtype, 0, None, (), None, file_shape)]
    for i, (_, shape, dtype) in enumerate(ops):
        params = QUANTIZED if dtype in ("int8", "uint8") else None
        tensors.append(PlanTensor(f"t{i}", shape, dtype, i + 1, params, (), params))
    plan_ops = [PlanOp(f"op{i}", op[0], (i,), i + 1, 7) for i, op in enumerate(ops)]
    sizes = [t.bytes for t in tensors]
    offsets = [int(n) for n in np.cumsum([0] + [-(-size // 16) * 16 for size in sizes])]
    last = len(tensors) - 1
    return Plan(name, tensors, plan_ops, (0,), (last,), sizes, offsets[:-1], offsets[-1])


def small_plan():
    quantize = Quantize(QUANTIZED)
    return plan_of(((3,), "float32"), (quantize, (3,), "int8"), (FlipSign(), (3,), "uint8"))


def seven_axes():
    """A plan that the C records cannot hold."""
    transpose = Transpose((6, 4, 2, 0, 3, 1, 5))
    twos = (2,) * 6
    return plan_of(((*twos, 1025), "int8"), (transpose, (1025, *twos), "int8"))


def golden(count=3):
    x = np.linspace(-20, 20, 3 * count, dtype=np.float32).reshape(count, 1, 3)
    return [x], [np.clip(np.rint(x / np.float32(0.1)) + 131, 0, 255).astype(np.uint8)]


def test_the_folder_builds_and_its_golden_test_passes(tmp_path):
    report = emit(small_plan(), tmp_path / "c", "net", golden=golden())
    assert (report.arena_bytes, report.macs, report.record_bytes) == (48, 14, 128)
    for name in report.files:
        assert (tmp_path / "c" / name).is_file()
    done = subprocess.run(
        ["make", "-s", "-C", tmp_path / "c", "test"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "net: pass, 3 samples\n"


def test_cmake_builds_the_folder(tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    emit(small_plan(), tmp_path / "c", "net", golden=golden())
    subprocess.run(["cmake", "-S", tmp_path / "c", "-B", tmp_path / "b"], check=True)
    subprocess.run(["cmake", "--build", tmp_path / "b"], check=True)
    subprocess.run([tmp_path / "b" / "net_test"], check=True)


def test_plain_cc_compiles_it_and_only_the_used_kernels_are_there(tmp_path):
    emit(small_plan(), tmp_path, "net")
    kernels = {p.name for p in tmp_path.glob("midge_*.c")}
    assert kernels == {"midge_session.c", "midge_quantize_f32_s8.c", "midge_flip_sign.c"}
    subprocess.run(["cc", "-O2", "-c", *tmp_path.glob("*.c")], check=True, cwd=tmp_path)
    assert not (tmp_path / "host" / "net_test.c").exists()


def test_golden_test_fails_when_one_bit_differs(tmp_path):
    inputs, outputs = golden()
    outputs[0][2, 0, 1] ^= 1
    emit(small_plan(), tmp_path, "net", golden=(inputs, outputs))
    done = subprocess.run(
        ["make", "-s", "-C", tmp_path, "test"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "FAIL, an output differs" in done.stdout
    assert "\n0000002\n" in done.stdout


def test_the_filter_takes_any_number_of_samples_and_reports_a_cut_one(tmp_path):
    emit(small_plan(), tmp_path, "net")
    inputs, outputs = golden(50)
    program = host_program(tmp_path, "net")
    assert program.run(inputs[0].tobytes()) == outputs[0].tobytes()
    assert program.run(b"") == b""
    with pytest.raises(ToolError, match="ends inside a sample"):
        program.run(b"12345")


def test_header_names_bytes_scale_and_zero_point(tmp_path):
    emit(small_plan(), tmp_path, "Net")
    text = (tmp_path / "Net.h").read_text()
    assert '/* Input 0: "in/put", float32 [1, 3]. */' in text
    for line in (
        "NET_ARENA_BYTES 48u",
        "NET_INPUT_0_BYTES 12u",
        "NET_OUTPUT_0_BYTES 3u",
        "NET_OUTPUT_0_SCALE 0.1f",
        "NET_OUTPUT_0_ZERO_POINT (131)",
    ):
        assert f"#define {line}\n" in text
    assert "NET_INPUT_0_SCALE" not in text
    assert 'extern "C"' in text


@pytest.mark.parametrize("name", ["", "1st", "my-net", "größe", "int", "class", "a b", "x/y"])
def test_a_name_that_is_no_identifier_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="is no C identifier; try"):
        emit(small_plan(), tmp_path / "c", name)
    assert not (tmp_path / "c").exists()


def test_a_name_of_the_runtime_is_refused(tmp_path):
    with pytest.raises(InputError, match="begins with 'midge'"):
        emit(small_plan(), tmp_path, "midge_run")


def test_a_failure_leaves_the_previous_folder_as_it_was(tmp_path):
    folder = tmp_path / "c"
    emit(small_plan(), folder, "net")
    (folder / "mine.txt").write_text("keep")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(UnsupportedError):
        emit(seven_axes(), folder, "net")
    with pytest.raises(InputError):
        emit(small_plan(), folder, "net", golden=([np.zeros((1, 4), np.float32)], golden(1)[1]))
    assert before == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    emit(small_plan(), folder, "net", golden=golden())
    assert (folder / "mine.txt").read_text() == "keep"
    assert (folder / "host" / "net_test.c").is_file()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "c").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        emit(small_plan(), tmp_path / "c", "net")


def test_two_models_may_share_a_folder(tmp_path):
    table = Softmax(softmax_table(np.float32(0.1), 4))
    emit(plan_of(((4,), "int8"), (table, (4,), "int8")), tmp_path, "first")
    emit(small_plan(), tmp_path, "second")
    subprocess.run(["cc", "-O2", "-c", *tmp_path.glob("*.c")], check=True, cwd=tmp_path)
    assert (tmp_path / "midge_softmax_s8.c").is_file()


def test_what_does_not_fit_a_record_is_refused_by_name(tmp_path):
    weight = np.ones((1, 3, 1, 1), np.int8)
    r = Requantization(np.ones(1, np.float32), 0)
    conv = Conv2d(weight, np.zeros(1, np.int32), (1, 1), (0, 0, 0, 0), (1, 1), 1, 0, r)
    plan = plan_of(((1, 70_002, 1, 1), "int8"), (conv, (1, 70_000, 1, 1), "int8"))
    with pytest.raises(UnsupportedError, match=r"op0 \(Conv2d\): input size \(70002, 1\)"):
        emit(plan, tmp_path, "net")
    plan = seven_axes()
    with pytest.raises(UnsupportedError, match=r"op0 \(Transpose\): needs 7 axes"):
        emit(plan, tmp_path, "net")
    plan = small_plan()
    plan.arena_bytes = 2**31
    with pytest.raises(UnsupportedError, match="net: an arena of 2147483648 bytes"):
        emit(plan, tmp_path, "net")


def test_a_step_without_a_kernel_is_refused_by_name(tmp_path):
    class Strange:
        pass

    with pytest.raises(UnsupportedError, match=r"op0 \(Strange\): the C runtime has no kernel"):
        emit(plan_of(((4,), "int8"), (Strange(), (4,), "int8")), tmp_path / "c", "net")
    assert not (tmp_path / "c").exists()


def test_odd_tensor_names_do_not_break_the_c(tmp_path):
    plan = small_plan()
    odd = 'a "b" \\ */ ??/ \n é %s'
    plan.tensors[0] = PlanTensor(odd, (3,), "float32", 0)
    plan.ops[0] = PlanOp(odd, plan.ops[0].params, (0,), 1)
    plan.name = odd
    emit(plan, tmp_path, "net", golden=golden())
    source = tmp_path / "name.c"
    source.write_text(
        '#include <stdio.h>\n#include "net.h"\n'
        "int main(void) { fputs(midge_info(&net_model, 0)->name, stdout); return 0; }\n"
    )
    files = [source, *tmp_path.glob("net.c"), *tmp_path.glob("midge_*.c")]
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", *files]
    subprocess.run([*command, "-o", tmp_path / "name"], check=True)
    assert subprocess.run([tmp_path / "name"], capture_output=True, check=True).stdout == (
        odd.encode()
    )


def test_equal_constants_are_stored_once():
    data = ConstData()
    table = np.arange(256, dtype=np.uint32)
    assert data.append("a", table) == 0
    assert data.append("b", np.int8([1, -2, 3])) == 256
    assert data.append("c", table) == 0
    assert [title for title, _ in data.blocks] == ["a", "b"]
    assert data.blocks[1][1].tolist() == [0x0003FE01]


def test_axes_merge_where_the_elements_stay_in_order():
    assert merge_axes((2, 3, 4), (12, 4, 1)) == [(24, 1)]
    assert merge_axes((2, 3, 4), (1, 8, 2)) == [(2, 1), (12, 2)]
    assert merge_axes((1, 5, 1), (99, 3, 7)) == [(5, 3)]


@pytest.mark.parametrize("value", [1, 0.1, 1e-30, 3e38, 2**-149, 1 / 3, 123456.789])
def test_float_literals_are_exact(value):
    literal = emit_c.float_literal(value)
    assert re.fullmatch(r"\d\.?\d*(e[-+]\d+)?f|\d+\.\d+f", literal), literal
    assert np.float32(literal[:-1]) == np.float32(value)


def test_sizes_are_measured(tmp_path):
    table = Softmax(softmax_table(np.float32(0.1), 4))
    emit(plan_of(((4,), "int8"), (table, (4,), "int8")), tmp_path, "net")
    report = measure(tmp_path, "net")
    assert report.weights == 4 * len(np.trim_zeros(table.table, "b"))
    assert 100 < report.text < 4000
    assert 64 < report.rodata < 1000
    assert report.arena == 32
    assert report.stack is None or 0 < report.stack < 1000
    assert report.flash == report.text + report.rodata + report.weights
    assert report.label.startswith("host (")


def test_a_float_model_without_operators_passes_its_input_through(tmp_path):
    plan = Plan("pass", [PlanTensor("x", (2,), "int8", 0)], [], (0,), (0,), [2], [0], 16)
    emit(plan, tmp_path, "net")
    assert host_program(tmp_path, "net").run(b"abcd") == b"abcd"
    assert host_program(tmp_path, "net", trace=True).run(b"abcd") == b""


def test_real_outputs_keep_their_bits(tmp_path):
    plan = plan_of(((4,), "int8"), (Dequantize(QUANTIZED), (4,), "float32"))
    emit(plan, tmp_path, "net")
    got = np.frombuffer(host_program(tmp_path, "net").run(bytes([128, 0, 3, 127])), np.float32)
    want = (np.array([-128, 0, 3, 127]) - 3).astype(np.float32) * np.float32(0.1)
    assert got.tolist() == want.tolist()
