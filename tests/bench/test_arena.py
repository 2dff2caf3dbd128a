"""The arenas of real networks stay below their bars."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("arena.py")
needs_models = pytest.mark.skipif(
    "MIDGE_MODELS" not in os.environ, reason="MIDGE_MODELS is not set"
)


def rows(tmp_path, *networks):
    found = tmp_path / "arena.json"
    command = [sys.executable, str(SCRIPT), "--json", str(found), "--networks", *networks]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(found.read_text())


@needs_models
def test_shipped_networks_need_little_more_than_the_lower_bound(tmp_path):
    code, found = rows(tmp_path, "IC", "KWS", "VWW")
    assert code == 0
    for r in found:
        assert r["bound"] <= r["size"] <= min(r["bar"], 1.1 * r["bound"], 0.6 * r["speed"]), r
        assert r["streams"] > 0


@pytest.mark.slow
@needs_models
def test_mobilenets_keep_below_their_bars(tmp_path):
    pytest.importorskip("torch")
    code, found = rows(tmp_path, "MobileNetV2-0.3-80", "MobileNetV2-224")
    assert code == 0
    assert all(r["size"] < 0.4 * r["speed"] for r in found)
