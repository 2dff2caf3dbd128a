"""Shows what became of every node."""

from collections.abc import Iterable

from midge.cli.console import Console, short
from midge.convert.coverage import Coverage

REASON_WIDTH = 70


def show_coverage(console: Console, coverage: Iterable[Coverage]) -> None:
    """Write a table of nodes, states and reasons."""
    rows = [(short(c.node), c.op_type, c.state, short(c.reason, REASON_WIDTH)) for c in coverage]
    if rows:
        console.table(("node", "operator", "state", "reason"), rows)
