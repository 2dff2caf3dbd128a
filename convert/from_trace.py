"""From a traced module to ONNX, opset 17: one row of a table per operator.

Values keep the names of the trace, parameters and buffers their dotted names. The batch axis of the
inputs is the symbolic dimension "N".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from midge.convert import graph as g
from midge.convert.onnx_out import to_proto, write_model
from midge.convert.ort import make_session, run
from midge.core import Tensor, no_grad
from midge.core.backend import to_numpy
from midge.core.errors import CheckError, UnsupportedError
from midge.core.opspec import OPS
from midge.core.trace import TraceGraph, trace
from midge.core.tracer import TraceNode, TraceValue

OPSET, IR_VERSION = 17, 8
BATCH = "N"
TOLERANCE = 1e-5  # of an export, relative to the largest output: float32 sums in another order


@dataclass(slots=True)
class Builder:
    """An ONNX graph being written.

    Args:
        trace: the graph it is written from.
        values: ONNX value by trace name.
        nodes: in order.
        constants: initializers in order of first use.
        used: names that are taken.
    """

    trace: TraceGraph
    values: dict[str, ir.Value] = field(default_factory=dict)
    nodes: list[ir.Node] = field(default_factory=list)
    constants: dict[str, ir.Value] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def value(self, name: str | None) -> ir.Value | None:
        """Return the ONNX value of a traced one, or of a constant."""
        if name is None or name in self.values:
            return None if name is None else self.values[name]
        if name not in self.constants:
            self.constants[name] = _constant(name, self.array(name))
        return self.constants[name]

    def is_constant(self, name: str | None) -> bool:
        """Tell whether the name is a parameter, buffer or constant."""
        return name is not None and name not in self.values

    def array(self, name: str) -> g.Array:
        """Return a constant of the trace as a NumPy array."""
        return np.asarray(to_numpy(self.trace.constants[name].array))

    def shape(self, name: str | None) -> tuple[int, ...]:
        """Return the shape of a value or constant in the traced run."""
        assert name is not None
        traced = self.trace.values.get(name)
        return traced.shape if traced is not None else self.array(name).shape

    def fresh(self, stem: str) -> str:
        """Return a name that is not taken."""
        name, count = stem, 1
        while name in self.used or name in self.trace.values or name in self.trace.constants:
            count += 1
            name = f"{stem}_{count}"
        self.used.add(name)
        return name

    def add_constant(self, stem: str, array: Any) -> ir.Value:
        """Add a constant that is in no trace."""
        name = self.fresh(stem)
        self.constants[name] = _constant(name, np.asarray(array))
        return self.constants[name]

    def emit(
        self,
        node: TraceNode,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        suffix: str = "",
    ) -> ir.Value:
        """Add a node; without a suffix it makes the traced node's output."""
        name = self.fresh(f"{node.name}.{suffix}") if suffix else node.name
        value = ir.val(name if suffix else node.outputs[0])
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        made = ir.node(op_type, operands, attributes, outputs=[value], name=name)
        self.nodes.append(made)
        if not suffix:
            self.values[node.outputs[0]] = value
        return value


def _constant(name: str, array: g.Array) -> ir.Value:
    # A copy: the model must not change when the module is trained on.
    return ir.val(name, const_value=ir.tensor(np.array(array, order="C"), name=name))


Row = Callable[[Builder, TraceNode], None]


def _plain(op_type: str, **attributes: str) -> Row:
    """Make a row that hands inputs on and renames attributes: ONNX name = trace name."""

    def row(b: Builder, node: TraceNode) -> None:
        given = {k: node.attributes[v] for k, v in attributes.items()}
        b.emit(node, op_type, [b.value(i) for i in node.inputs], given)

    return row


def _conv2d(b: Builder, node: TraceNode) -> None:
    a = node.attributes
    attributes = {
        "kernel_shape": b.shape(node.inputs[1])[2:],
        "strides": a["stride"],
        "pads": a["padding"],
        "dilations": a["dilation"],
        "group": a["groups"],
    }
    b.emit(node, "Conv", [b.value(i) for i in node.inputs], attributes)


def _linear(b: Builder, node: TraceNode) -> None:
    x, weight, bias = (*node.inputs, None)[:3]
    if len(b.shape(x)) == 2:
        b.emit(node, "Gemm", [b.value(i) for i in (x, weight, bias)], {"transB": 1})
        return
    sizes = np.array([-1, *b.shape(node.outputs[0])[1:]], np.int64)
    flat = b.add_constant(f"{node.name}.rows_shape", np.array([-1, b.shape(x)[-1]], np.int64))
    rows = b.emit(node, "Reshape", [b.value(x), flat], suffix="rows")
    operands = [rows, b.value(weight), b.value(bias)]
    product = b.emit(node, "Gemm", operands, {"transB": 1}, suffix="gemm")
    b.emit(node, "Reshape", [product, b.add_constant(f"{node.name}.shape", sizes)])


def _batch_norm(b: Builder, node: TraceNode) -> None:
    x, weight, bias, mean, var = node.inputs
    channels = b.shape(x)[1]
    scale = b.value(weight) or b.add_constant(f"{node.name}.ones", np.ones(channels, np.float32))
    shift = b.value(bias) or b.add_constant(f"{node.name}.zeros", np.zeros(channels, np.float32))
    operands = [b.value(x), scale, shift, b.value(mean), b.value(var)]
    b.emit(node, "BatchNormalization", operands, {"epsilon": node.attributes["eps"]})


def _pool(op_type: str) -> Row:
    def row(b: Builder, node: TraceNode) -> None:
        a = node.attributes
        attributes = {
            "kernel_shape": a["kernel_size"],
            "strides": a["stride"],
            "pads": a["padding"],
        }
        if op_type == "MaxPool":
            attributes["dilations"] = a.get("dilation", (1, 1))
        else:
            attributes["count_include_pad"] = int(a["count_include_pad"])
        b.emit(node, op_type, [b.value(node.inputs[0])], attributes)

    return row


def _clip(b: Builder, node: TraceNode) -> None:
    limits = [
        None
        if (v := node.attributes[k]) is None
        else b.add_constant(f"{node.name}.{k}", np.float32(v))
        for k in ("min", "max")
    ]
    b.emit(node, "Clip", [b.value(node.inputs[0]), *limits])


def _mean(b: Builder, node: TraceNode) -> None:
    x, dims, keep = node.inputs[0], tuple(node.attributes["dim"]), node.attributes["keepdim"]
    if len(b.shape(x)) == 4 and dims == (2, 3):
        pooled = b.emit(node, "GlobalAveragePool", [b.value(x)], suffix="" if keep else "pool")
        if not keep:
            b.emit(node, "Flatten", [pooled], {"axis": 1})
        return
    b.emit(node, "ReduceMean", [b.value(x)], {"axes": dims, "keepdims": int(keep)})


def _sum(b: Builder, node: TraceNode) -> None:
    dims = np.array(node.attributes["dim"], np.int64)
    operands = [b.value(node.inputs[0]), b.add_constant(f"{node.name}.axes", dims)]
    b.emit(node, "ReduceSum", operands, {"keepdims": int(node.attributes["keepdim"])})


def _reduce(op_type: str) -> Row:
    def row(b: Builder, node: TraceNode) -> None:
        a = node.attributes
        attributes = {"axes": a["dim"], "keepdims": int(a["keepdim"])}
        b.emit(node, op_type, [b.value(node.inputs[0])], attributes)

    return row


def _argument(op_type: str) -> Row:
    def row(b: Builder, node: TraceNode) -> None:
        attributes = {"axis": node.attributes["dim"], "keepdims": int(node.attributes["keepdim"])}
        b.emit(node, op_type, [b.value(node.inputs[0])], attributes)

    return row


def _reshape(b: Builder, node: TraceNode) -> None:
    target = np.array(node.attributes["shape"], np.int64)
    operands = [b.value(node.inputs[0]), b.add_constant(f"{node.name}.shape", target)]
    b.emit(node, "Reshape", operands)


def _expand(b: Builder, node: TraceNode) -> None:
    # ONNX broadcasts, so 1 keeps the batch that is there.
    target = np.array([1 if d < 0 else d for d in node.attributes["shape"]], np.int64)
    operands = [b.value(node.inputs[0]), b.add_constant(f"{node.name}.shape", target)]
    b.emit(node, "Expand", operands)


def _slice(b: Builder, node: TraceNode) -> None:
    a = node.attributes
    axes = np.arange(len(a["starts"]))
    rows = {"starts": a["starts"], "ends": a["stops"], "axes": axes, "steps": a["steps"]}
    operands = [b.add_constant(f"{node.name}.{k}", np.array(v, np.int64)) for k, v in rows.items()]
    b.emit(node, "Slice", [b.value(node.inputs[0]), *operands])


def _pad(b: Builder, node: TraceNode) -> None:
    pairs = np.array(node.attributes["pads"], np.int64)
    pads = b.add_constant(f"{node.name}.pads", pairs.T.reshape(-1))
    value = b.add_constant(f"{node.name}.value", np.float32(node.attributes["value"]))
    b.emit(node, "Pad", [b.value(node.inputs[0]), pads, value])


def _cast(b: Builder, node: TraceNode) -> None:
    to = ir.DataType.from_numpy(np.dtype(str(node.attributes["dtype"])))
    b.emit(node, "Cast", [b.value(node.inputs[0])], {"to": int(to)})


def _fmod(b: Builder, node: TraceNode) -> None:
    b.emit(node, "Mod", [b.value(i) for i in node.inputs], {"fmod": 1})


# An operator without attributes needs no row: its OpSpec names the ONNX operator.
ROWS: dict[str, Row] = {
    "amax": _reduce("ReduceMax"),
    "amin": _reduce("ReduceMin"),
    "argmax": _argument("ArgMax"),
    "argmin": _argument("ArgMin"),
    "avg_pool2d": _pool("AveragePool"),
    "batch_norm": _batch_norm,
    "cast": _cast,
    "clip": _clip,
    "concat": _plain("Concat", axis="dim"),
    "conv2d": _conv2d,
    "expand": _expand,
    "fmod": _fmod,
    "gather": _plain("GatherElements", axis="dim"),
    "index_select": _plain("Gather", axis="dim"),
    "linear": _linear,
    "log_softmax": _plain("LogSoftmax", axis="dim"),
    "max_pool2d": _pool("MaxPool"),
    "mean": _mean,
    "pad": _pad,
    "permute": _plain("Transpose", perm="dims"),
    "reshape": _reshape,
    "slice": _slice,
    "softmax": _plain("Softmax", axis="dim"),
    "sum": _sum,
}


def _row(node: TraceNode) -> Row:
    """Return how the node is written.

    Raises:
        UnsupportedError: it cannot be.
    """
    spec = OPS.get(node.op)
    if node.op in ROWS:
        return ROWS[node.op]
    if spec is not None and spec.onnx and not node.attributes:
        return _plain(spec.onnx)
    raise UnsupportedError(
        f"{node.name} ({node.op}): this operator has no ONNX form; replace it by others."
    )


def trace_to_onnx(graph: TraceGraph, name: str) -> ir.Model:
    """Write a traced graph as ONNX.

    Args:
        graph: from core.trace.trace.
        name: of the ONNX graph.

    Raises:
        UnsupportedError: an operator has no row, by node.
    """
    b = Builder(graph)
    for traced in graph.inputs:
        b.values[traced.name] = _input(traced, graph.batch_axis)
    inputs = list(b.values.values())
    for node in graph.nodes:
        _row(node)(b, node)
    outputs = [b.values[v.name] for v in graph.outputs]
    onnx_graph = ir.Graph(
        inputs,
        outputs,
        nodes=b.nodes,
        initializers=list(b.constants.values()),
        opset_imports={"": OPSET},
        name=name,
    )
    model = ir.Model(onnx_graph, ir_version=IR_VERSION)
    ShapeInferencePass(check_type=True, strict_mode=True, data_prop=True)(model)
    for value, traced in zip(outputs, graph.outputs, strict=True):
        _complete_shape(value, traced)
    return model


def _input(traced: TraceValue, batch_axis: int | None) -> ir.Value:
    shape = [BATCH if axis == batch_axis else d for axis, d in enumerate(traced.shape)]
    return ir.val(traced.name, ir.DataType.from_numpy(np.dtype(traced.dtype)), shape)


def _complete_shape(value: ir.Value, traced: TraceValue) -> None:
    """Fill in what inference could not tell: behind the leading dimension, the traced sizes."""
    found = g.dims(value) or (None,) * len(traced.shape)
    value.shape = ir.Shape(
        [
            size if size is not None else (BATCH if axis == 0 else traced.shape[axis])
            for axis, size in enumerate(found)
        ]
    )


def export_onnx(module: Callable[..., Any], path: str | Path, *inputs: Tensor) -> ir.Model:
    """Trace a module, check the export against it and write it as ONNX.

    Args:
        module: in eval mode.
        path: of the file.
        inputs: example inputs; the batch axis is 0.

    Raises:
        UnsupportedError: an operator has no ONNX form.
        CheckError: ONNX Runtime and the module disagree.
    """
    model = trace_to_onnx(trace(module, *inputs), Path(path).stem)
    verify_export(model, module, *inputs)
    write_model(model, path)
    return model


def verify_export(model: ir.Model, module: Callable[..., Any], *inputs: Tensor) -> float:
    """Compare ONNX Runtime with the module it was exported from.

    Returns:
        The largest difference, relative to the largest value of that output.

    Raises:
        CheckError: it exceeds TOLERANCE.
    """
    names = [g.name_of(v) for v in model.graph.inputs]
    feeds = {n: np.asarray(to_numpy(x.array)) for n, x in zip(names, inputs, strict=True)}
    with no_grad():
        result = module(*inputs)
    wanted = list(result) if isinstance(result, tuple | list) else [result]
    worst = 0.0
    for want, got in zip(wanted, run(make_session(to_proto(model)), feeds), strict=True):
        reference = np.asarray(to_numpy(want.array), np.float64)
        size = float(np.abs(reference).max(initial=0)) or 1.0
        worst = max(worst, float(np.abs(reference - got).max(initial=0)) / size)
    if not worst <= TOLERANCE:
        raise CheckError(f"the ONNX export differs from the module by {worst:.1e} of its output.")
    return worst
