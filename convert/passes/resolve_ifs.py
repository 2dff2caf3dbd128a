"""If with a condition that is known: its branch takes its place."""

import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.passes.base import Pass, PassResult, nodes_of


class ResolveIfs(Pass):
    """Put the nodes of the branch that is always taken into the graph around it."""

    def call(self, model: ir.Model) -> PassResult:
        """Resolve every If of the main graph whose condition is a constant."""
        result = PassResult()
        for node in nodes_of(model, "If"):
            condition = g.constant(node.inputs[0])
            if condition is None or condition.size != 1:
                result.kept(node, "its condition is computed")
                continue
            taken = bool(condition.reshape(-1)[0])
            _inline(model.graph, node, "then_branch" if taken else "else_branch")
            result.folded(node, f"its condition is always {str(taken).lower()}")
        return result


def _inline(graph: ir.Graph, node: ir.Node, branch: str) -> None:
    """Replace an If by the content of one of its branches."""
    inner = node.attributes[branch].as_graph()
    nodes, outputs = list(inner), list(inner.outputs)
    constants = list(inner.initializers.values())
    inner.outputs.clear()
    inner.initializers.clear()
    inner.remove(nodes)
    names = g.Names(graph)  # without those of the branch, which may occur in others too
    for value in (*constants, *(v for n in nodes for v in n.outputs)):
        value.name = names.fresh(value.name or branch)
    for moved in nodes:
        moved.name = names.fresh(g.label(moved))
    for value in constants:
        graph.register_initializer(value)
    graph.insert_before(node, nodes)
    for old, new in zip(node.outputs, outputs, strict=True):
        name = names.fresh(f"{old.name}_{branch}")
        copy = g.new_node(names, "Identity", [new], name, like=new)
        graph.insert_before(node, copy)
        g.replace(old, copy.outputs[0])
    g.remove(node)
