"""onnx's own node tests through midge.core, the executor and compiled C under sanitizers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("backend_nodes.py")
LEAST = {"compiled C": 1165, "core": 1450}  # cases that pass: it may only grow
TIMEOUT_S = 900


@pytest.fixture(scope="module", params=LEAST)
def engine(request):
    """Each engine in turn."""
    return request.param


@pytest.fixture(scope="module")
def tally(engine):
    """What became of every case, by name."""
    command = [sys.executable, str(SCRIPT), "--json", "--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)[engine]


def test_every_case_that_is_not_refused_gives_the_expected_outputs(tally):
    assert tally["failed"] == {}


def test_the_cases_that_pass_grow_in_number(engine, tally):
    assert len(tally["passed"]) >= LEAST[engine]


def test_a_network_in_training_mode_is_refused_and_never_run_as_if_it_were_not(tally):
    assert not [name for name in tally["passed"] if name.startswith("test_training_dropout")]
