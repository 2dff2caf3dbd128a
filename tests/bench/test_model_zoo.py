"""The models of the shelf go the whole road."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("model_zoo.py")
needs_models = pytest.mark.skipif(
    "MIDGE_MODELS" not in os.environ, reason="MIDGE_MODELS is not set"
)


def results(tmp_path, only):
    found = tmp_path / "zoo.json"
    command = [sys.executable, str(SCRIPT), "--only", only, "--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(found.read_text())


@pytest.mark.slow
@needs_models
def test_every_model_holds_everywhere(tmp_path):
    for r in results(tmp_path, ""):
        assert r["holds"], r["name"]
        assert not r["refused"], r["name"]
        assert r["c_mismatches"] == r["ort_mismatches"] == 0, r["name"]
        assert r["tensors"] > 0
