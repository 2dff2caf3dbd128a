"""The command line as a user meets it: help, versions, exit codes, one line per failure."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from midge import __version__
from midge.cli import errors
from midge.cli.main import COMMANDS, run
from midge.core.errors import CheckError, InputError

HELP_LIMIT_S = 0.3
HELP_TRIES = 3  # processor time, which other programs hardly change; the best one counts
SCREEN = (24, 80)
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "rich", "yaml", "midge.core.tensor")


def test_help_fits_one_screen_and_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= SCREEN[0]
    assert max(map(len, lines)) <= SCREEN[1]
    assert all(any(line.split()[:1] == [name] for line in lines) for name in COMMANDS)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from midge.cli.main import run; run(['--help']); "
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_help_is_fast() -> None:
    program = Path(sys.executable).with_name("midge")
    best = float("inf")
    for _ in range(HELP_TRIES):
        before = os.times()
        subprocess.run([program, "--help"], stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        spent = after.children_user + after.children_system
        best = min(best, spent - before.children_user - before.children_system)
    assert best < HELP_LIMIT_S


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_the_common_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert all(option in out for option in ("--json", "--quiet", "--debug", "--help"))


def test_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"midge {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["verfy"], "Did you mean 'verify'?"),
        (["inspect", "--jsonn", "m.onnx"], "Did you mean '--json'?"),
        (["inspect"], "Missing argument 'MODEL'"),
        (["inspect", "m.onnx", "--input-shape", "x:1,3"], "NAME=1,3,224,224"),
        (["inspect", "m.onnx", "--input-shape", "x=1,-3"], "NAME=1,3,224,224"),
    ],
)
def test_wrong_usage_exits_2_and_names_the_remedy(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == errors.USAGE
    captured = capsys.readouterr()
    assert hint in captured.err
    assert "--help' for help" in captured.err
    assert captured.out == ""


def test_a_missing_file_is_one_line_without_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "nowhere.onnx"]) == errors.USAGE
    err = capsys.readouterr().err
    assert err.startswith("Error: nowhere.onnx")
    assert err.count("\n") == 1


def raising(error: BaseException) -> int:
    """Return the exit status of a command that raises."""

    def command() -> None:
        raise error

    return errors.run(command, [])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CheckError("two elements differ"), 1),
        (InputError("no such layer"), 2),
        (click.UsageError("no"), 2),
        (FileNotFoundError(2, "No such file", "x"), 2),
        (MemoryError(), 1),
        (RuntimeError("boom"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_failure_has_its_exit_status(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == status
    assert "Error: " in capsys.readouterr().err


def test_a_message_of_several_lines_is_joined(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(InputError("first\n  second")) == 2
    assert capsys.readouterr().err == "Error: first second\n"


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "nowhere.onnx", "--debug"]) == errors.USAGE
    assert "Traceback" in capsys.readouterr().err
