"""Every operator passes its golden test on emulated boards."""

import subprocess

import pytest

from midge.convert.emit import emit
from midge.convert.target import runtime_folder

BOARDS = [
    ("cortex-m4", "FLOAT"),
    ("cortex-m4", "INT"),
    ("cortex-m55", "FLOAT"),
    ("rv32imc", "INT"),
]


@pytest.fixture(scope="module")
def folder(zoo, tmp_path_factory):
    directory = tmp_path_factory.mktemp("zoo")
    emit(zoo.plan(), directory, "zoo", golden=(zoo.feeds, zoo.wants))
    return directory


@pytest.mark.board
@pytest.mark.parametrize(("board", "form"), BOARDS)
def test_every_operator_passes_on_the_board(folder, run_on_board, board, form):
    assert run_on_board(folder, "zoo", board, form) == (0, "zoo: pass, 2 samples\n")


@pytest.mark.board
def test_a_difference_on_the_board_fails(zoo, run_on_board, tmp_path):
    wants = [want.copy() for want in zoo.wants]
    wants[-1].view("u1").reshape(-1)[-1] ^= 1
    emit(zoo.plan(), tmp_path / "c", "zoo", golden=(zoo.feeds, wants))
    status, output = run_on_board(tmp_path / "c", "zoo", "cortex-m4", "FLOAT")
    assert status == 1
    assert "zoo: FAIL" in output


def test_an_unknown_board_is_refused_by_name():
    script = runtime_folder() / "targets" / "run.sh"
    command = ["sh", script, "z80", "out.elf", "main.c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown board 'z80'; known: cortex-m4 cortex-m55 rv32imc" in done.stderr
