"""Dead code: nodes and initializers that no graph output depends on are removed."""

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, RemoveUnusedOpsetsPass

from midge.convert.passes.base import Pass, PassResult


class RemoveDead(Pass):
    """Remove unused nodes, initializers and opset imports."""

    def call(self, model: ir.Model) -> PassResult:
        """Remove them; unused graph inputs stay, their names are the user's."""
        nodes = RemoveUnusedNodesPass()(model)
        opsets = RemoveUnusedOpsetsPass()(model)
        return PassResult(bool(nodes.modified or opsets.modified))

    def ensures(self, model: ir.Model) -> None:
        """Every node is used."""
        for node in model.graph:
            used = any(v.uses() or v.is_graph_output() for v in node.outputs)
            assert used, f"{node.name} is dead."
