"""How every command ends: exit status 0, 1, 2 or 130, and one line on stderr for each failure.

    0    success
    1    a check or a gate did not hold, or a tool failed
    2    the user's input is at fault
    130  interrupted

A traceback appears only with --debug.
"""

import errno
import sys
import traceback
from collections.abc import Callable, Sequence

import click

INTERRUPTED = 130
FAILED = 1
USAGE = 2


def run(command: Callable[[], None], arguments: Sequence[str]) -> int:
    """Call `command` and return the exit status that its ending stands for.

    Args:
        command: runs the click group on `arguments` in non-standalone mode.
        arguments: the command line after the program's name; --debug in it allows tracebacks.
    """
    try:
        command()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()  # the usage line, "Try ... --help", and the message
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted; files written earlier are unchanged.", INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return _closed_pipe()
        if "--debug" in arguments:
            traceback.print_exc()
        return _fail(*_describe(error))
    return 0


def _describe(error: Exception) -> tuple[str, int]:
    """Return the one line and the exit status of anything that was raised."""
    from midge.core.errors import MidgeError  # midge.core imports NumPy: too slow for the help

    if isinstance(error, MidgeError):
        return str(error), error.exit_code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}.", USAGE if error.filename else FAILED
    if isinstance(error, MemoryError):
        return "out of memory; use fewer samples or close other programs.", FAILED
    first = str(error).strip().split("\n")[0]
    return (
        f"internal error, {type(error).__name__}: {first} "
        "Run again with --debug and report the traceback.",
        FAILED,
    )


def _fail(message: str, status: int) -> int:
    line = " ".join(message.split())
    click.echo(f"Error: {line}", err=True)
    return status


def _closed_pipe() -> int:
    """Leave quietly when the reader of stdout has gone, as in `midge inspect m.onnx | head`."""
    sys.stdout = None  # Python would flush it at exit and complain
    return FAILED
