"""From an ONNX file to a module of midge.core that computes the same and can be trained.

A node runs through its row in `to_module_rows.ROWS`. An operator without a row is first replaced by
the operators that ONNX itself defines it by. Shapes and what is computed from them are computed in
each run, so that any input size works that the file allows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.lower_params import fail
from midge.convert.onnx_functions import fill_defaults
from midge.convert.onnx_in import Shapes, read_model
from midge.convert.onnx_values import Values
from midge.convert.ort import one_line
from midge.convert.to_module_call import Call, Row
from midge.convert.to_module_graph import CONTROL, Block, Step
from midge.convert.to_module_rows import ROWS
from midge.core import no_grad
from midge.core.dtypes import as_dtype
from midge.core.errors import InputError, UnsupportedError
from midge.core.nn import Module, Parameter
from midge.core.ops.operands import as_tensor
from midge.core.tensor import Tensor

STATISTICS = {"BatchNormalization": (3, 4)}  # operands that move in train() mode, by no gradient
# Float operands that steer an operator instead of flowing through it.
STEERING = {
    "Clip": (1, 2),
    "DequantizeLinear": (1, 2),
    "Dropout": (1, 2),
    "Pad": (2,),
    "Resize": (1, 2),
}
KEPT = (*ROWS, *CONTROL, "Constant")  # operators that no expansion replaces
CODES = "it rounds to codes, through which no gradient passes"
# Why an operator has no row, and what to do.
REFUSED = dict.fromkeys(
    ("QuantizeLinear", "DynamicQuantizeLinear"),
    (CODES, "load the float file and train it with midge.quant.qat"),
)
NO_ROW = "midge.core has no form of it", "rewrite it with supported operators"


class OnnxModule(Module):
    """The network of an ONNX graph.

    Float constants with an axis are parameters, under their names in the file ("conv.weight" is in
    a sub-module "conv"); batch norm statistics are buffers. Numbers, integers and what steers an
    operator (the bounds of a Clip, the scales of a Resize) are buffers outside of the state.

    It starts in eval() mode, in which it computes what the file does. In train() mode batch norms
    take the statistics of the batch and move their own, and Dropouts drop.

    Attributes:
        input_names: of the graph, in the order of forward's arguments.
        output_names: of the graph, in the order of forward's results.
    """

    def __init__(self, model: ir.Model) -> None:
        """Take over the graph and copies of its constants.

        Raises:
            UnsupportedError: a node's operator has no row, by name.
        """
        super().__init__()
        self._graph = self._block(model.graph)
        self.input_names, self.output_names = self._graph.inputs, self._graph.outputs
        self.eval()

    def _block(self, graph: ir.Graph) -> Block:
        """Take over a graph, or one inside of a node."""
        return Block(
            inputs=tuple(g.name_of(v) for v in graph.inputs),
            outputs=tuple(g.name_of(v) for v in graph.outputs),
            steps=tuple(self._step(n) for n in graph if not g.is_op(n, "Constant")),
            places={g.name_of(v): self._keep(v) for v in _constants(graph)},
        )

    def _step(self, node: ir.Node) -> Step:
        """Take over a node."""
        outputs = [v.name or "" for v in node.outputs]
        while len(outputs) > 1 and not outputs[-1]:
            outputs.pop()
        inner = {
            name: self._block(a.as_graph())
            for name, a in node.attributes.items()
            if a.type == ir.AttributeType.GRAPH
        }
        # Its neighbours would keep the whole file in memory.
        alone = ir.node(node.op_type, [], name=g.label(node), outputs=[ir.val(outputs[0])])
        alone.attributes.update({k: a for k, a in node.attributes.items() if k not in inner})
        return Step(
            call=Call(alone, len(outputs)),
            row=_row(node),
            inputs=tuple("" if v is None else g.name_of(v) for v in node.inputs),
            outputs=tuple(outputs),
            blocks=inner,
        )

    def _keep(self, value: ir.Value) -> tuple[Module, str]:
        """Hold a constant as a parameter or buffer; return where.

        Raises:
            UnsupportedError: its type is none of midge.core's.
        """
        name = g.name_of(value)
        found = g.constant(value)
        if found is None:
            raise UnsupportedError(f"constant {name!r} is no tensor; use a tensor of numbers.")
        try:
            dtype = as_dtype(found.dtype)
        except InputError as error:
            raise UnsupportedError(f"constant {name!r}: {error}") from error
        # A copy in C order: the file's memory may be read-only.
        tensor = Tensor(np.array(found, dtype, order="C"))
        uses = {_role(use.node, use.idx) for use in value.uses()}
        owner, key = _place(self, name)
        if "statistics" in uses:
            owner.register_buffer(key, tensor)
        elif dtype.kind == "f" and found.ndim and "flow" in uses:
            owner.register_parameter(key, Parameter(tensor))
        else:
            owner.register_buffer(key, tensor, persistent=False)
        return owner, key

    def forward(self, *inputs: Any) -> Any:
        """Run the nodes in order.

        Args:
            inputs: tensors or arrays, in the order of `input_names`, in the dtypes of the file.

        Returns:
            The output, or a tuple of them in the order of `output_names`.

        Raises:
            InputError: another number of inputs, or shapes that do not fit, by node.
            UnsupportedError: a form of an operator that midge does not compute, by node.
        """
        if len(inputs) != len(self.input_names):
            names = ", ".join(self.input_names)
            raise InputError(f"the module takes {names}; {len(inputs)} inputs were given.")
        outputs = self._graph.run([_operand(x) for x in inputs], {}, self.training)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def extra_repr(self) -> str:
        """Return what goes in and out."""
        return f"{', '.join(self.input_names)} -> {', '.join(self.output_names)}"


def _operand(value: Any) -> Tensor:
    """Return an input as a tensor."""
    return as_tensor(np.asarray(value) if isinstance(value, np.generic) else value)


def _row(node: ir.Node) -> Row:
    """Return what computes a node.

    Raises:
        UnsupportedError: there is nothing.
    """
    row = {**ROWS, **CONTROL}.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if row is None:
        raise fail(node, *REFUSED.get(node.op_type, NO_ROW))
    return row


def _constants(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the initializers and the results of Constant nodes."""
    yield from graph.initializers.values()
    yield from (n.outputs[0] for n in graph if g.is_op(n, "Constant"))


def _role(node: ir.Node, index: int) -> str:
    """Return what an operator does with a float operand."""
    if index in STATISTICS.get(node.op_type, ()):
        return "statistics"
    return "steering" if index in STEERING.get(node.op_type, ()) else "flow"


def _place(root: Module, name: str) -> tuple[Module, str]:
    """Return the sub-module and the attribute for a dotted name; one that is taken gets a "_"."""
    *path, last = name.split(".") if all(name.split(".")) else [name.replace(".", "_")]
    owner = root
    for part in path:
        while part not in owner._modules and hasattr(owner, part):
            part += "_"
        if part not in owner._modules:
            owner.add_module(part, Module())
        owner = owner._modules[part]
    while hasattr(owner, last):
        last += "_"
    return owner, last


def _expanded(model: ir.Model) -> ir.Model:
    """Replace operators without a row by those that ONNX defines them by.

    Raises:
        UnsupportedError: onnx cannot replace them.
    """
    lacking = sorted({n.op_type for n in model.graph.all_nodes()} - set(KEPT))
    if not lacking:
        return model
    proto = ir.to_proto(model)
    proto.graph.value_info.add()  # onnx asks for a type of operands that are absent, named ""
    opset = model.graph.opset_imports.get("", 13)
    for node in proto.graph.node:
        if node.op_type not in KEPT and node.domain in ("", "ai.onnx"):
            fill_defaults(node, opset)
    try:
        proto = onnx.inliner.inline_selected_functions(
            proto, [("", name) for name in KEPT], exclude=True, inline_schema_functions=True
        )
        return ir.from_proto(proto)
    except Exception as error:  # of onnx, which raises errors of any kind
        raise UnsupportedError(
            f"onnx cannot write {', '.join(lacking)} in other operators: {one_line(error)}; "
            "rewrite it with supported operators."
        ) from error


def _try(module: OnnxModule, model: ir.Model) -> None:
    """Run the module once on ones, so that what it lacks is said now.

    Where inputs are not real, or a Loop counts by them, ones may be nonsense.
    """
    shapes = [g.dims(v) for v in model.graph.inputs]
    known = all(s is not None and None not in s[1:] for s in shapes)
    loops = any(g.is_op(n, "Loop") for n in model.graph.all_nodes())
    if not known or loops or not all(map(g.is_float, model.graph.inputs)):
        return
    with no_grad():
        module(*(np.ones([1 if d is None else d for d in s or ()], np.float32) for s in shapes))


def load_module(
    model: str | Path | ir.Model,
    input_shapes: Shapes | None = None,
    *,
    input_values: Values | None = None,
) -> OnnxModule:
    """Make a trainable module of an ONNX file.

    Args:
        model: path of the file, or a model in memory (opset 13 or newer), which is not changed.
        input_shapes: shapes of inputs with unknown dimensions, by name; for a path only.
        input_values: numbers that inputs hold throughout, by name; for a path only.

    Returns:
        The module, in eval() mode; the file is not needed any more.

    Raises:
        InputError: no ONNX model can be had from the file, or a shape is missing.
        UnsupportedError: an operator, or a form of one, that midge.core does not compute, by node.

    Example:
        net = midge.load_module("model.onnx")
        optimizer = optim.Adam(net.parameters())
    """
    if isinstance(model, ir.Model):
        read = ir.from_proto(ir.to_proto(model))
    else:
        read = read_model(model, input_shapes, input_values=input_values)
    read = _expanded(read)
    module = OnnxModule(read)
    _try(module, read)
    return module
