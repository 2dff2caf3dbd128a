"""The demo in its quick form, and the examples of the README on what it wrote."""

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import midge
from midge.cli.demo import QUICK
from midge.cli.demo_report import check
from midge.cli.report import Report, Variant, from_json
from midge.convert.target import host_target
from midge.core.errors import CheckError
from midge.core.native import find_compiler

README = Path(midge.__file__).with_name("README.md")

readme = pytest.mark.skipif(
    not README.exists(), reason="midge is installed from a wheel: there is no README beside it"
)


def example(language: str) -> str:
    """Return the first code block of a language in the README."""
    found = re.search(rf"^```{language}\n(.*?)^```", README.read_text("utf-8"), re.S | re.M)
    assert found is not None
    return found.group(1)


def test_the_demo_writes_every_file_of_the_road(demo_folder: Path) -> None:
    for name in (
        "model.onnx",
        "model.int8.onnx",
        "model.quant.json",
        "c/digits.c",
        "c/digits.h",
        "c/host/digits_main.c",
        "c/host/digits_test.c",
        "report/index.html",
        "report/report.json",
        "static/model.int8.onnx",
    ):
        assert (demo_folder / name).is_file(), name


def test_every_engine_of_the_demo_gives_the_executors_bits(demo_folder: Path) -> None:
    report = from_json(json.loads((demo_folder / "report" / "report.json").read_text("utf-8")))
    compared = [v for v in report.variants if v.elements is not None]
    assert len(compared) == (7 if host_target().probe else 5)
    assert all(v.elements == 10 * v.samples and v.mismatches == 0 for v in compared)


def test_the_demo_quantizes_every_node(demo_folder: Path) -> None:
    report = from_json(json.loads((demo_folder / "report" / "report.json").read_text("utf-8")))
    assert {node.state for node in report.coverage} == {"quantized", "folded"}
    assert all(node.reason for node in report.coverage)


def test_the_demos_files_keep_the_input_free_in_its_batch(demo_folder: Path) -> None:
    for name in ("model.onnx", "model.int8.onnx"):
        (x,) = onnx.load(demo_folder / name).graph.input
        dims = x.type.tensor_type.shape.dim
        assert dims[0].dim_param
        assert [d.dim_value for d in dims[1:]] == [1, 8, 8]


def gated(*variants: Variant) -> None:
    """Hold variants to the quick demo's gates."""
    check(Report("t", "m", variants), QUICK)


def test_a_single_differing_element_fails_the_demo() -> None:
    good = Variant("float32", "midge core", 99, 100), Variant("QAT int8", "C", 99, 100, None, 10, 0)
    gated(*good)
    with pytest.raises(CheckError, match="1 of 10 output elements differ"):
        gated(good[0], Variant("QAT int8", "C", 99, 100, None, 10, 1))


@pytest.mark.parametrize(("floating", "integer"), [(80, 80), (99, 90)])
def test_a_missed_accuracy_fails_the_demo(floating: int, integer: int) -> None:
    with pytest.raises(CheckError, match="accuracy"):
        gated(
            Variant("float32", "midge core", floating, 100),
            Variant("QAT int8", "C", integer, 100, None, 10, 0),
        )


@readme
def test_the_readmes_python_example_runs(demo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "midge-demo").symlink_to(demo_folder)
    done = subprocess.run(
        [sys.executable, "-c", example("python")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().isdigit()


@readme
def test_the_readmes_c_example_builds_and_runs(demo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(example("c"), encoding="utf-8")
    folder = demo_folder / "c"
    sources = [str(f) for f in sorted(folder.glob("*.c"))]
    command = [*find_compiler().argv, "-O2", f"-I{folder}", "main.c", *sources, "-o", "digits"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "digits"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in {str(digit) for digit in range(10)}
