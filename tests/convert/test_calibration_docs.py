"""The examples of docs/calibration.md run as they stand there."""

import re
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from midge.convert.calibration_data import open_samples

PAGE = Path(__file__).parents[2] / "docs" / "calibration.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="docs/ is not here")


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A function that writes a module as the page has it, into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(name):
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        (block,) = (b for b in blocks if b.startswith(f"# {name}.py"))
        (tmp_path / f"{name}.py").write_text(block)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return re.search(r"--calib-data (\S+)", block).group(1)

    return write


def test_a_folder_of_wav_files(example, tmp_path, build):
    (tmp_path / "recordings").mkdir()
    for index, length in enumerate((16000, 9000)):
        with wave.open(str(tmp_path / "recordings" / f"{index}.wav"), "wb") as file:
            file.setparams((1, 2, 16000, length, "NONE", ""))
            file.writeframes(np.full(length, 8192 * (index + 1), "<i2").tobytes())
    model = build("(float[N,16000] x) => (float[N,16000] y) { y = Relu(x) }")
    first, second = (s["x"] for s in open_samples(example("wav_data"), model))
    assert first.shape == second.shape == (1, 16000)
    assert np.all(first == 0.25)
    assert (second == 0.5).sum() == 9000


def test_a_folder_of_csv_files(example, tmp_path, build):
    (tmp_path / "motion").mkdir()
    rows = np.arange(3 * 150, dtype=np.float32).reshape(150, 3)
    np.savetxt(tmp_path / "motion" / "a.csv", rows, "%g", ",", header="x,y,z", comments="")
    model = build("(float[N,3,64] motion) => (float[N,3,64] y) { y = Relu(motion) }")
    samples = [s["motion"] for s in open_samples(example("csv_data"), model)]
    np.testing.assert_array_equal(
        np.concatenate(samples), rows[:128].reshape(2, 64, 3).transpose(0, 2, 1)
    )
