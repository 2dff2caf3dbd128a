"""The five real networks hold everywhere, with few samples."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from midge.core.errors import InputError
from midge.core.native import find_compiler

SCRIPT = Path(__file__).with_name("five_networks.py")
FOLDERS = ("MIDGE_MODELS", "MIDGE_DATA")


def missing() -> str:
    """Return why the networks cannot run here, or nothing."""
    for folder in FOLDERS:
        if not os.environ.get(folder):
            return f"{folder} is not set"
    try:
        for compiler in ("gcc", "clang"):
            find_compiler(compiler)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_five_real_networks_give_the_same_bits_everywhere_and_keep_their_accuracy(tmp_path):
    found = tmp_path / "five.json"
    command = [sys.executable, str(SCRIPT), "--samples", "50", "--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = {r["name"]: r for r in json.loads(found.read_text())}
    assert len(results) == 5
    for r in results.values():
        assert r["samples"] == 50
        assert r["builds"] == 8
        assert r["output_mismatches"] == r["step_mismatches"] == r["ort_mismatches"] == 0
        assert r["ort_elements"] > 0
    assert results["ResNet-8"]["value"] >= 0.866
    assert results["ResNet-20"]["value"] >= 0.913
    assert results["VWW"]["value"] >= 0.97
