"""What a user sees while a command works: results on stdout, everything else on stderr."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console as RichConsole
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

NAME_WIDTH = 44  # of a node's name in a table; --json gives the whole
PATIENCE_S = 1.0  # anything shorter needs no progress display


def short(name: str, width: int = NAME_WIDTH) -> str:
    """Cut a long name in its middle: exporters put the telling part at either end."""
    if len(name) <= width:
        return name
    head = (width - 3) // 3
    return f"{name[:head]}...{name[head + 3 - width :]}"


class Console:
    """Progress, notices and results of one command.

    Args:
        as_json: the result is one JSON object on stdout and nothing else goes there.
        quiet: neither progress nor notices.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        """Open both streams."""
        self.as_json = as_json
        self.quiet = quiet
        self._out = RichConsole(highlight=False)
        self._err = RichConsole(stderr=True, highlight=False)

    def notice(self, line: str) -> None:
        """Write one line about something the user should know, on stderr."""
        if not self.quiet:
            self._err.print(line, markup=False, soft_wrap=True)

    def text(self, line: str) -> None:
        """Write one line of the result for people."""
        if not self.as_json:
            self._out.print(line, markup=False, soft_wrap=True)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None
    ) -> None:
        """Write a table of the result for people; a column named `>name` is right-aligned."""
        if self.as_json:
            return
        table = Table(
            title=title,
            title_justify="left",
            title_style="bold",
            header_style="bold",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        for name in columns:
            right = name.startswith(">")
            table.add_column(
                name.removeprefix(">"), justify="right" if right else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*map(Text, row))
        if self._out.is_terminal:
            self._out.print(table)
        else:  # a file or a pipe has no width; nothing may be cut
            wide = RichConsole(width=200, highlight=False)
            wide.print(table)

    def result(self, value: dict[str, Any]) -> None:
        """Write the result for machines, when --json asks for it."""
        if self.as_json:
            print(json.dumps(value, indent=2, allow_nan=False))

    @contextmanager
    def working(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show what is going on, and for how long, once the block takes longer than a second.

        Args:
            what: is being done.
            total: number of items, None when unknown.

        Yields:
            A function to call with the number of items done.
        """
        progress = self._progress(total is not None)
        task = progress.add_task(what, total=total)
        terminal = self._err.is_terminal
        announce = progress.start if terminal else lambda: self.notice(f"{what} ...")
        timer = threading.Timer(PATIENCE_S, announce)
        timer.daemon = True
        if not self.quiet:
            timer.start()
        try:
            yield lambda done: progress.update(task, completed=done)
        finally:
            timer.cancel()
            if terminal:
                progress.stop()

    def _progress(self, counted: bool) -> Progress:
        columns = [BarColumn(), MofNCompleteColumn()] if counted else []
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            *columns,
            TimeElapsedColumn(),
            console=self._err,
            transient=True,
        )
