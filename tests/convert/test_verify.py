"""The proof that three engines agree, and that it fails where they do not."""

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from midge.convert import emit, verify_builds
from midge.convert.compile import compile_file
from midge.convert.executor import Executor
from midge.convert.plan import Conv2d
from midge.convert.target import X86_64, host_target
from midge.convert.verify import VerifyReport, verify
from midge.convert.verify_tally import Check
from midge.core.errors import InputError

MODELS = os.environ.get("MIDGE_MODELS")
REAL = ("ic01_resnet8_int8_qdq", "kws01_dscnn_int8_qdq", "vww_mnv1_025_96_int8_qdq")


def network(qdq, dtype="uint8"):
    """Convolutions with a shortcut, a pool, a product and Softmax."""
    graph = qdq(5, dtype)
    x = graph.layer("Conv", graph.input(["N", 3, 8, 8]), (8, 3, 3, 3), 27, relu=True)
    y = graph.layer("Conv", x, (8, 1, 3, 3), 9, group=8, pads=[1] * 4)
    y = graph.quantized(graph.node("Add", [x, y]), graph.wider(x, 1, 2))
    y = graph.quantized(graph.node("GlobalAveragePool", [y]), graph.wider(y, 0.3, 0.8))
    flat = graph.node("Flatten", [y])
    graph.params[flat] = graph.params[y]
    y = graph.layer("Gemm", flat, (8, 5), 8, axis=1)
    y = graph.quantized(graph.node("Softmax", [y], axis=-1), (1 / 256, graph.low))
    return graph.output(y).proto()


@pytest.fixture(scope="module")
def path(qdq, tmp_path_factory):
    file = tmp_path_factory.mktemp("verify") / "net.onnx"
    onnx.save(network(qdq), file)
    return file


def test_onnx_runtime_the_executor_and_c_agree_on_every_tensor(path):
    report = verify(path, count=70)
    assert report.holds
    assert (report.samples, report.mismatches) == (70, 0)
    assert report.level.startswith("ORT_ENABLE_ALL")
    compared = [c for c in report.checks if c.kind != "step"]
    assert len(compared) == 8  # the output, and one tensor for each QuantizeLinear
    assert compared[0].kind == "output"
    for check in compared:
        assert (check.ort_mismatches, check.c_mismatches) == (0, 0), check
        assert check.elements % 70 == 0


def broken(monkeypatch, file, good, bad):
    """Make every folder of C that is written from now on hold a fault."""
    real = emit.runtime_text

    def text(name):
        whole = real(name)
        assert name != file or good in whole
        return whole.replace(good, bad, 1) if name == file else whole

    monkeypatch.setattr(emit, "runtime_text", text)


@pytest.fixture(scope="module")
def wide(qdq, tmp_path_factory):
    """Layers whose middle is wide: it pays to keep a few rows of it only."""
    graph = qdq(5)
    x = graph.input([1, 4, 12, 12])
    y = graph.layer("Conv", x, (24, 4, 1, 1), 4, relu=True)
    y = graph.layer("Conv", y, (24, 1, 3, 3), 9, group=24, pads=[1] * 4)
    y = graph.layer("Conv", y, (4, 24, 1, 1), 24)
    file = tmp_path_factory.mktemp("verify") / "wide.onnx"
    onnx.save(graph.output(y).proto(), file)
    return file


def test_the_c_of_devices_row_by_row_and_of_this_machine_is_compared(wide):
    report = verify(wide, count=2, with_ort=False)
    assert report.holds
    assert report.c_build.startswith("C99, ")
    assert "C99 strip by strip" in report.c_build
    if host_target() == X86_64:
        assert "x86-64 portable" in report.c_build


@pytest.mark.parametrize(
    ("file", "good", "bad"),
    [
        ("midge_depthwise_conv2d_s8.c", "- p->x_zero_point", "- p->x_zero_point - 1"),  # portable
        ("midge_stream.c", "part.last = end;", "part.last = end - 1u;"),  # strips only
        ("midge_conv2d_c4n16_s8.c", "^ 0x80u", "^ 0x81u"),  # panels, portable
        ("midge_conv2d_c4n16_s8_avx2.c", "_mm256_set1_epi16(128)", "_mm256_set1_epi16(127)"),
    ],
)
def test_a_fault_in_any_build_is_noticed(wide, monkeypatch, file, good, bad):
    needs = {"c4n16": X86_64, "avx2": X86_64}
    if any(part in file and host_target() != target for part, target in needs.items()):
        pytest.skip("this machine is no x86-64")
    broken(monkeypatch, file, good, bad)
    report = verify(wide, count=20, with_ort=False)
    if "avx2" in file and "x86-64 avx2" not in report.c_build:
        pytest.skip("this processor has no AVX2")
    assert not report.holds


def test_a_build_may_run_independent_steps_in_another_order(qdq, tmp_path, monkeypatch):
    graph = qdq(5)
    x = graph.input([1, 4, 6, 6])
    graph.output(graph.layer("Conv", x, (4, 4, 1, 1), 4))
    graph.output(graph.layer("Conv", x, (4, 4, 3, 3), 36, pads=[1] * 4))
    onnx.save(graph.proto(), tmp_path / "net.onnx")
    compile_file(tmp_path / "net.onnx", tmp_path / "c", "net", target="c99")
    arrange = verify_builds.arrange

    def reversed_order(plan, target, **options):
        first, second = plan.ops[2:4]  # behind Quantize and the Transpose that both read
        assert [type(op.params) for op in (first, second)] == [Conv2d] * 2
        plan.ops[2:4] = [second, first]
        arrange(plan, target, **options)

    monkeypatch.setattr(verify_builds, "arrange", reversed_order)
    report = verify(tmp_path / "net.onnx", count=3, with_ort=False)
    assert report.holds
    assert {c.kind for c in report.checks if c.c_mismatches == 0} >= {"output", "tensor"}
    main = tmp_path / "c" / "host" / "net_main.c"
    main.write_text(main.read_text().replace("_nhwc */", "_of_another */"))
    with pytest.raises(InputError, match="its steps are others; compile the model again"):
        verify(tmp_path / "net.onnx", count=3, with_ort=False, folder=tmp_path / "c")


def test_a_folder_is_compared_on_every_instruction_set_that_it_holds(wide, path, tmp_path):
    target = "x86-64" if host_target() == X86_64 else "c99"
    compile_file(wide, tmp_path / "c", "net", target=target)
    report = verify(wide, count=3, with_ort=False, folder=tmp_path / "c")
    assert report.holds
    assert ("portable" in report.c_build) == (target == "x86-64")
    with pytest.raises(InputError, match="was written from another model: its inputs"):
        verify(path, count=3, with_ort=False, folder=tmp_path / "c")


def test_a_file_of_int8_activations_runs_as_it_stands(qdq, tmp_path):
    onnx.save(network(qdq, "int8"), tmp_path / "net.onnx")
    report = verify(tmp_path / "net.onnx", count=20, with_c=False)
    assert report.holds
    assert "qdqisint8allowed=1" in report.level
    assert all(c.c_mismatches is None for c in report.checks)


def test_samples_may_be_given_by_name(path):
    rng = np.random.default_rng(0)
    samples = [{"input_1": rng.random((1, 3, 8, 8), np.float32)} for _ in range(5)]
    report = verify(path, samples, count=4, with_c=False, with_ort=False)
    assert (report.samples, report.level) == (4, None)
    with pytest.raises(InputError, match="no array for input 'input_1'"):
        verify(path, [{"x": np.zeros(1)}], with_c=False, with_ort=False)
    with pytest.raises(InputError, match="--samples 0"):
        verify(path, count=0)


def test_one_flipped_weight_in_one_engine_is_found_and_located(path, monkeypatch):
    observe = Executor.observe

    def flipped(self, inputs):
        weight = [op.params.weight for op in self.plan.ops if isinstance(op.params, Conv2d)][1]
        weight[0, 1, 1, 0] ^= 0x40
        seen = observe(self, inputs)
        weight[0, 1, 1, 0] ^= 0x40
        return seen

    monkeypatch.setattr(Executor, "observe", flipped)
    report = verify(path, count=20)
    assert not report.holds
    codes = [c for c in report.checks if c.kind == "tensor"]
    assert [c.holds for c in codes[:2]] == [True, True]  # the input and the first convolution
    assert codes[2].ort_mismatches
    assert codes[2].c_mismatches
    assert codes[2].largest_difference > 0


def test_the_report_is_plain_data(path):
    report = VerifyReport("net.onnx", 3, "level", None, [Check("y", "output", 12, 0, 1, 2)])
    data = json.loads(json.dumps(report.to_json()))
    assert (data["holds"], data["mismatches"], data["elements"]) == (False, 1, 12)
    assert data["checks"][0]["largest_difference"] == 2


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason="MIDGE_MODELS is not set")
@pytest.mark.parametrize("name", REAL)
def test_real_networks_agree_on_every_tensor(name):
    report = verify(Path(MODELS) / "mlperf_tiny" / f"{name}.onnx", count=30)
    assert [c for c in report.checks if not c.holds] == []
    assert report.elements > 1_000_000
