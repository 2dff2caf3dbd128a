"""Calibration samples: how files fall into samples, and what is told about bad ones."""

import sys

import numpy as np
import pytest

from midge.convert.calibration_data import open_samples
from midge.core.errors import InputError

ONE = "(float[N,4] x) => (float[N,4] y) { y = Relu(x) }"
TWO = "(float[N,4] x, int64[1,2] i) => (float[N,4] y, int64[1,2] j) { y = Relu(x) j = Abs(i) }"
ROWS = np.arange(24, dtype=np.float32).reshape(6, 4)


@pytest.fixture
def model(build):
    return build(ONE)


def shapes(samples):
    return [{k: v.shape for k, v in s.items()} for s in samples]


def fault(spec, model, **options):
    with pytest.raises(InputError) as caught:
        list(open_samples(str(spec), model, **options))
    return str(caught.value)


def test_rows_of_a_npy_are_samples(tmp_path, model):
    np.save(tmp_path / "a.npy", ROWS)
    samples = open_samples(str(tmp_path / "a.npy"), model)
    assert shapes(samples) == [{"x": (1, 4)}] * 6
    np.testing.assert_array_equal(np.concatenate([s["x"] for s in samples]), ROWS)


def test_a_further_axis_counts_samples(tmp_path, model):
    np.save(tmp_path / "a.npy", ROWS.reshape(3, 2, 4))
    assert shapes(open_samples(str(tmp_path / "a.npy"), model)) == [{"x": (2, 4)}] * 3


def test_a_fixed_batch_takes_its_rows_at_once(tmp_path, build):
    model = build("(float[3,4] x) => (float[3,4] y) { y = Relu(x) }")
    np.save(tmp_path / "a.npy", ROWS)
    assert shapes(open_samples(str(tmp_path / "a.npy"), model)) == [{"x": (3, 4)}] * 2
    np.save(tmp_path / "a.npy", ROWS[:5])
    assert "multiple of 3" in fault(tmp_path / "a.npy", model)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_npz_holds_inputs_by_name(tmp_path, build, save):
    save(tmp_path / "a.npz", x=ROWS, i=np.zeros((6, 2), np.int64))
    samples = open_samples(str(tmp_path / "a.npz"), build(TWO))
    assert shapes(samples) == [{"x": (1, 4), "i": (1, 2)}] * 6
    np.testing.assert_array_equal(np.concatenate([s["x"] for s in samples]), ROWS)


def test_a_folder_is_read_in_order_and_any_batching_gives_the_same_samples(tmp_path, model):
    for index, part in enumerate(np.split(ROWS, [1, 3])):
        np.savez(tmp_path / f"{index}.npz", x=part)
    np.save(tmp_path / "3.npy", ROWS[0])  # one sample without a batch axis
    samples = open_samples(str(tmp_path), model)
    assert shapes(samples) == [{"x": (1, 4)}] * 7
    assert list(samples)[6]["x"].tolist() == ROWS[:1].tolist()


def test_the_hash_does_not_depend_on_order_or_batching(tmp_path, model):
    hashes = []
    for rows in (ROWS, ROWS[::-1], np.stack([ROWS])):
        np.save(tmp_path / "a.npy", rows.reshape(-1, 1, 4))
        samples = open_samples(str(tmp_path / "a.npy"), model)
        list(samples)
        hashes.append(samples.sha256())
    assert len(set(hashes)) == 1


def test_a_limit_takes_the_first(tmp_path, model):
    np.save(tmp_path / "a.npy", ROWS)
    samples = open_samples(str(tmp_path / "a.npy"), model, limit=2)
    assert len(list(samples)) == samples.count == 2


def test_a_function_yields_dicts_or_arrays(tmp_path, model, monkeypatch):
    (tmp_path / "my_data.py").write_text(
        "import numpy as np\n"
        "def dicts():\n    yield {'x': np.ones((2, 4), 'float32')}\n"
        "def arrays():\n    return [np.ones(4, 'float32')] * 3\n"
        "def broken():\n    raise KeyError('no file')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert len(list(open_samples("my_data:dicts", model))) == 2
    assert len(list(open_samples("my_data:arrays", model))) == 3
    assert "broken() failed: KeyError" in fault("my_data:broken", model)
    assert "Did you mean 'arrays'" in fault("my_data:array", model)
    assert "cannot be imported" in fault("no_such_module:f", model)
    sys.modules.pop("my_data")


def test_random_samples_repeat_with_their_seed(model):
    first, again, other = (list(open_samples("random", model, seed=s)) for s in (1, 1, 2))
    assert first[0]["x"].tolist() == again[0]["x"].tolist() != other[0]["x"].tolist()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": ROWS[:, :3]}, ["sample 0", "'x'", "[1, 3]"]),
        ({"x": ROWS.astype(np.float64)}, ["float64", "float32", "astype"]),
        ({"z": ROWS}, ["no input 'z'", "'x'"]),
        ({"x": ROWS, "z": ROWS}, ["no input 'z'"]),
        ({}, ["no usable sample"]),
        ({"x": ROWS[:0]}, ["no usable sample"]),
        ({"x": ROWS.reshape(1, 2, 3, 4)}, ["'x'"]),
    ],
)
def test_data_that_do_not_fit_are_told_so(tmp_path, model, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    text = fault(tmp_path / "a.npz", model)
    assert all(word in text for word in words), text


def test_a_missing_input_is_named(tmp_path, build):
    np.savez(tmp_path / "a.npz", x=ROWS)
    assert "input 'i' is missing" in fault(tmp_path / "a.npz", build(TWO))
    np.save(tmp_path / "a.npy", ROWS)
    assert "2 inputs" in fault(tmp_path / "a.npy", build(TWO))


def test_different_counts_are_told(tmp_path, build):
    np.savez(tmp_path / "a.npz", x=ROWS, i=np.zeros((5, 2), np.int64))
    assert "different numbers of samples" in fault(tmp_path / "a.npz", build(TWO))


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "Inf"), (-np.inf, "Inf")])
def test_a_bad_value_names_sample_and_tensor_or_is_skipped(tmp_path, model, value, word):
    rows = ROWS.copy()
    rows[4, 2] = value
    np.save(tmp_path / "a.npy", rows)
    text = fault(tmp_path / "a.npy", model)
    assert "sample 4" in text
    assert "'x'" in text
    assert word in text
    samples = open_samples(str(tmp_path / "a.npy"), model, skip_bad=True)
    assert len(list(samples)) == 5
    assert samples.skipped == [4]


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_damaged_file_is_told(tmp_path, model, name):
    (tmp_path / name).write_bytes(b"no array")
    assert "no readable" in fault(tmp_path / name, model)


def test_pickled_objects_are_never_loaded(tmp_path, model):
    np.save(tmp_path / "a.npy", np.array([{}], object))
    np.savez(tmp_path / "a.npz", x=np.array([{}], object))
    fault(tmp_path / "a.npy", model)
    fault(tmp_path / "a.npz", model)


def test_what_is_not_there_is_told(tmp_path, model):
    np.save(tmp_path / "calib.npy", ROWS)
    assert "Did you mean 'calib.npy'" in fault(tmp_path / "calb.npy", model)
    (tmp_path / "empty").mkdir()
    assert "holds no .npy" in fault(tmp_path / "empty", model)
    (tmp_path / "a.csv").write_text("1,2")
    assert ".npy, .npz or a folder" in fault(tmp_path / "a.csv", model)
