"""What became of every node: quantized, float, folded or refused, and why."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

STATES = ("quantized", "float", "folded", "refused")


@dataclass(frozen=True, slots=True)
class Coverage:
    """What became of one node.

    Args:
        node: its name in the file that was read.
        op_type: its operator.
        state: one of STATES.
        reason: why, in a few words.
    """

    node: str
    op_type: str
    state: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Return the record as plain data."""
        return asdict(self)


def counts(coverage: Iterable[Coverage]) -> dict[str, int]:
    """Return how many nodes are in each state, every state named."""
    found = Counter(c.state for c in coverage)
    return {state: found[state] for state in STATES}
