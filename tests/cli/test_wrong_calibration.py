"""Wrong calibration data of every kind: one line with sample and tensor, and no file touched."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Refused = Callable[..., str]
Run = Callable[..., tuple[int, str, str]]
ROWS = np.random.default_rng(1).standard_normal((16, 2, 6, 6)).astype(np.float32)
QUANTIZE = ("quantize", "small.onnx", "-o", "small.int8.onnx", "--calib-data")


def with_value(index: int, value: float) -> Any:
    rows = ROWS.copy()
    rows[index, 1, 2, 3] = value
    return rows


ARRAYS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "another shape": (ROWS[:, :, :5], ("sample 0", "'x'", "[1, 2, 5, 6]", "[N,2,6,6]")),
    "another layout": (ROWS.transpose(0, 2, 3, 1), ("'x'", "[1, 6, 6, 2]", "[N,2,6,6]")),
    "another rank": (ROWS.reshape(16, -1), ("'x'", "[N,2,6,6]")),
    "no dimension": (np.float32(1), ("'x'", "[N,2,6,6]")),
    "doubles": (ROWS.astype(np.float64), ("float64", "float32", ".astype('float32')")),
    "halves": (ROWS.astype(np.float16), ("float16", "float32")),
    "bytes": (np.zeros(ROWS.shape, np.uint8), ("uint8", "float32")),
    "complex numbers": (ROWS.astype(np.complex64), ("complex64", "float32")),
    "words": (np.array(["a", "b"]), ("'x'", "float32")),
    "dates": (np.zeros(ROWS.shape, "M8[s]"), ("datetime64[s]", "float32")),
    "no sample": (ROWS[:0], ("no usable sample",)),
    "one NaN": (with_value(5, np.nan), ("sample 5", "'x'", "NaN", "--skip-bad-samples")),
    "one Inf": (with_value(15, np.inf), ("sample 15", "'x'", "Inf", "--skip-bad-samples")),
    "one -Inf": (with_value(0, -np.inf), ("sample 0", "'x'", "Inf", "--skip-bad-samples")),
    "a value that overflows": (with_value(3, 3e38), ("sample 3", "overflows")),
    "objects": (np.array([{"a": 1}], object), ("data.npy", "objects")),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_is_refused_that_holds(kind: str, refused: Refused, here: Path) -> None:
    array, words = ARRAYS[kind]
    np.save("data.npy", array)
    refused(*QUANTIZE, "data.npy", words=words)
    np.savez("data.npz", x=array)
    refused(*QUANTIZE, "data.npz", words=words if kind != "objects" else ("data.npz", "objects"))


ARCHIVES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "another name": ({"X": ROWS}, ("no input 'X'", "'x'")),
    "too many arrays": ({"x": ROWS, "label": np.zeros(16)}, ("no input 'label'",)),
    "no array": ({}, ("no usable sample",)),
    "arrays of different lengths": ({"x": ROWS, "z": ROWS[:3]}, ("different numbers of samples",)),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_is_refused_with(kind: str, refused: Refused, here: Path) -> None:
    arrays, words = ARCHIVES[kind]
    np.savez("data.npz", **arrays)
    refused(*QUANTIZE, "data.npz", words=words)


def damage(name: str) -> None:
    """Flip bits in the middle of a compressed archive."""
    raw = bytearray(Path(name).read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 64] = bytes(64)
    Path(name).write_bytes(raw)


def huge_header(name: str) -> None:
    """Write a header that promises far more than the file holds."""
    with zipfile.ZipFile(name, "w") as archive:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 40, 2, 6, 6), }"
        header = header.replace(b"1 << 40", b"1099511627776")
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def test_a_damaged_archive_is_told(refused: Refused, here: Path) -> None:
    np.savez_compressed("data.npz", x=ROWS)
    damage("data.npz")
    refused(*QUANTIZE, "data.npz", words=("data.npz", "x"))


def test_a_header_that_lies_is_told(refused: Refused, here: Path) -> None:
    huge_header("data.npz")
    refused(*QUANTIZE, "data.npz", words=("data.npz", "needs"))


@pytest.mark.parametrize("part", [0, 10, 100, 1000])
def test_an_array_cut_short_is_told(part: int, refused: Refused, here: Path) -> None:
    np.save("data.npy", ROWS)
    Path("data.npy").write_bytes(Path("data.npy").read_bytes()[:part])
    refused(*QUANTIZE, "data.npy", words=("data.npy is no readable .npy file",))


def test_data_that_are_not_there_are_told(refused: Refused, here: Path) -> None:
    refused(*QUANTIZE, "calibratio.npy", words=("no such calibration data", "'calibration.npy'"))
    refused(*QUANTIZE, "small.onnx", words=("small.onnx", ".npy, .npz or a folder"))
    Path("empty").mkdir()
    refused(*QUANTIZE, "empty", words=("empty", "no .npy or .npz file"))


FUNCTIONS = """
import numpy as np
ROWS = np.random.default_rng(1).standard_normal((4, 2, 6, 6)).astype("float32")
number = 3
def raises():
    yield {"x": ROWS}
    raise OSError("the disk is gone")
def nothing():
    return []
def none():
    pass
def one_number():
    return 5
def numbers():
    return [1, 2]
def words():
    yield "x"
def wrong_name():
    yield {"image": ROWS}
def wrong_shape():
    yield {"x": ROWS[:, :1]}
def ragged():
    yield {"x": [[1.0], [1.0, 2.0]]}
def pairs():
    yield ROWS, [0, 1, 2, 3]
def takes(folder):
    yield ROWS
def leaves():
    raise SystemExit(3)
"""
CALLS = {
    "raises": ("raises() failed", "OSError", "the disk is gone"),
    "nothing": ("no usable sample",),
    "none": ("none() failed", "NoneType"),
    "one_number": ("one_number() failed", "int"),
    "numbers": ("'x'", "int64", "float32"),
    "words": ("'x'", "float32"),
    "wrong_name": ("no input 'image'", "'x'"),
    "wrong_shape": ("'x'", "[1, 1, 6, 6]"),
    "ragged": ("ragged() failed",),
    "pairs": ("pairs() failed",),
    "takes": ("takes() failed", "folder"),
    "leaves": ("leaves() failed", "SystemExit"),
    "number": ("has no number()",),
    "raisse": ("has no raisse()", "'raises'"),
    "": ("function",),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_refused_that(name: str, refused: Refused, here: Path) -> None:
    Path("wrong_functions.py").write_text(FUNCTIONS)
    refused(*QUANTIZE, f"wrong_functions:{name}", words=CALLS[name])


MODULES = {
    "syntax": ("def broken(:", "invalid syntax"),
    "imports": ("import no_such_package_at_all", "no_such_package_at_all"),
    "raises": ("raise RuntimeError('no licence')", "no licence"),
    "leaves": ("import sys; sys.exit(0)", "SystemExit"),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_is_refused_that(kind: str, refused: Refused, here: Path) -> None:
    text, words = MODULES[kind]
    Path(f"module_that_{kind}.py").write_text(text)
    refused(*QUANTIZE, f"module_that_{kind}:f", words=("cannot be imported", words))
    refused(*QUANTIZE, "module_that_is_not:f", words=("cannot be imported", "module_that_is_not"))


def test_bad_samples_are_skipped_on_request(here: Path, midge: Run) -> None:
    np.save("data.npy", np.concatenate([with_value(2, np.nan), with_value(1, np.inf)]))
    status, _, err = midge(*QUANTIZE, "data.npy", "--skip-bad-samples")
    assert status == 0, err
    assert "2 bad calibration samples skipped (NaN or Inf): 2, 17." in err


def test_only_bad_samples_are_none(refused: Refused, here: Path) -> None:
    np.save("data.npy", with_value(0, np.nan)[:1])
    refused(*QUANTIZE, "data.npy", "--skip-bad-samples", words=("no usable sample",))


def test_zeros_throughout_are_told_and_refused_in_strict(
    refused: Refused, here: Path, midge: Run
) -> None:
    np.save("data.npy", np.zeros_like(ROWS))
    refused(*QUANTIZE, "data.npy", "--strict", status=1, words=("'x' is 0 throughout",))
    status, _, err = midge(*QUANTIZE, "data.npy")
    assert status == 0
    assert "the range collapsed: 'x'" in err


def test_images_are_refused_without_their_preprocessing(refused: Refused, here: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    Path("images").mkdir()
    images.fromarray(np.zeros((6, 6, 3), np.uint8)).save("images/a.png")
    refused(*QUANTIZE, "images", words=("images", "--mean, --std, --scale, --layout"))
    given = ("--mean", "0.5", "--std", "1", "--scale", "1/255", "--layout")
    refused(*QUANTIZE, "images", *given, "nchw", words=("2 channels", "--layout"))
    refused(*QUANTIZE, "images", *given, "chw", words=("--layout", "'chw'"))
    refused(*QUANTIZE, "images", "--scale", "1/0", words=("--scale", "'1/0'"))
    refused(*QUANTIZE, "images", "--mean", "a,b", words=("--mean", "'a,b'"))
    refused(*QUANTIZE, "calibration.npy", *given, "nchw", words=("--mean, --std", "arrays"))
