"""What midge raises when something is wrong, and nothing else.

    MidgeError                exit status 1
    +-- CheckError            1: a verification or a gate did not hold
    +-- ToolError             1: a compiler or another program failed; its own words are kept
    +-- InputError            2: the user's input is at fault (also a ValueError)
        +-- UnsupportedError  2: a node, operator or feature that midge does not do, by name

A message is one line: what, where (layer, tensor, file, sample index), why, and the remedy.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches


class MidgeError(Exception):
    """Base of everything that midge raises on purpose."""

    exit_code = 1


class CheckError(MidgeError):
    """A verification or a gate did not hold."""


class ToolError(MidgeError):
    """A compiler, an emulator or another program failed."""


class InputError(MidgeError, ValueError):
    """The user's input is at fault.

    Args:
        message: names in it may hold any characters; lines are joined, and what cannot be printed
            is escaped.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        """Make one line of it."""
        line = re.sub(r"\s*[\r\n]\s*", " ", message)
        super().__init__(
            "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        )


class UnsupportedError(InputError):
    """A node, operator or feature that midge does not do, named."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'a' or 'b'?"` for the nearest known names, or an empty string."""
    close = get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
