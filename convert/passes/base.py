"""What a pass is: ONNX graph in, the same function in fewer or simpler nodes out.

A pass changes the model in place, says whether it did, and records each node that it folded or that
it had a reason to keep. It never changes the name, type or shape of a graph input or output.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from midge.convert import graph as g


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What a pass did with one node.

    Args:
        node: its name.
        op_type: its operator.
        state: "folded" (the node is gone) or "kept" (with a reason).
        reason: where it went, or why it stays.
    """

    node: str
    op_type: str
    state: str
    reason: str


@dataclass(slots=True)
class PassResult:
    """What a pass did.

    Args:
        modified: the graph is another one now.
        records: one per node folded, or kept with a reason.
    """

    modified: bool = False
    records: list[PassRecord] = field(default_factory=list)

    def folded(self, node: ir.Node, reason: str) -> None:
        """Record that a node is gone."""
        self.modified = True
        self.records.append(PassRecord(g.label(node), g.operator(node), "folded", reason))

    def kept(self, node: ir.Node, reason: str) -> None:
        """Record why a node stays."""
        self.records.append(PassRecord(g.label(node), g.operator(node), "kept", reason))


class Pass(ABC):
    """One rewriting of a graph.

    `after` names operators that must be gone before the pass runs, `removes` those that are gone
    when it is done.
    """

    after: ClassVar[tuple[str, ...]] = ()
    removes: ClassVar[tuple[str, ...]] = ()

    def __call__(self, model: ir.Model) -> PassResult:
        """Run the pass, its precondition before and its postcondition after it."""
        self.requires(model)
        result = self.call(model)
        self.ensures(model)
        return result

    def requires(self, model: ir.Model) -> None:
        """Raise where the graph is none that this pass may see."""
        _must_not_contain(model, self.after)

    @abstractmethod
    def call(self, model: ir.Model) -> PassResult:
        """Rewrite the model in place."""

    def ensures(self, model: ir.Model) -> None:
        """Raise where the pass has not done what it promises."""
        _must_not_contain(model, self.removes)


def nodes_of(model: ir.Model, *op_types: str) -> list[ir.Node]:
    """Return the main graph's nodes of these standard operators, in order."""
    return [n for n in model.graph if g.is_op(n, *op_types)]


def _must_not_contain(model: ir.Model, op_types: tuple[str, ...]) -> None:
    for node in nodes_of(model, *op_types):
        if any(v.is_graph_output() for v in node.outputs):
            continue  # what makes an output may have to stay, as names are the user's
        raise AssertionError(f"{g.label(node)} ({node.op_type}) should be gone by now.")
