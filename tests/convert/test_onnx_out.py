"""Writing: checked, run once, complete or not at all, the same bytes every time."""

import os

import pytest

from midge.convert.onnx_out import write_bytes, write_model
from midge.core.errors import InputError, ToolError

TEXT = "(float[N,4] x) => (float[N,4] y) { y = Relu(x) }"


def test_the_same_model_gives_the_same_bytes(build, tmp_path):
    for name in ("a.onnx", "b.onnx"):
        write_model(build(TEXT), tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "b.onnx"]


def test_a_model_that_onnx_refuses_is_not_written(build, tmp_path):
    model = build(TEXT)
    model.graph[0].op_type = "NoSuchOperator"
    with pytest.raises(ToolError, match="onnx refuses"):
        write_model(model, tmp_path / "a.onnx")
    assert not os.listdir(tmp_path)


def test_a_model_that_does_not_run_is_not_written(build, tmp_path):
    model = build(
        "(float[4] x) => (float[A,B] y) { s = Shape(x) y = Reshape(x, t) }",
        t=__import__("numpy").array([3, 3]),
    )
    with pytest.raises(ToolError):
        write_model(model, tmp_path / "a.onnx")
    assert not os.listdir(tmp_path)


def test_folders_are_made_and_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "file"
    write_bytes(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["file"]


def test_a_directory_is_no_file_name(tmp_path):
    with pytest.raises(InputError, match="is a directory"):
        write_bytes(tmp_path, b"x")
