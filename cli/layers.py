"""The layers of a quantized model for a report: shape, MACs, weights, and noise against float."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.cli.report import Layer
from midge.convert import graph as g
from midge.convert import ort
from midge.convert.calibrate import expose
from midge.convert.executor import Executor
from midge.convert.plan import Conv2d, FullyConnected, Plan, PlanOp, Quantize
from midge.quant.analysis import sqnr_db
from midge.quant.arithmetic import dequantize

Array = npt.NDArray[Any]


def layer_rows(
    plan: Plan, quantized: ir.Model, floating: ir.Model | None, inputs: Sequence[Array]
) -> tuple[Layer, ...]:
    """Return one row for every integer step.

    Args:
        plan: lowered from `quantized`.
        quantized: the QDQ graph.
        floating: canonical float graph with the same names; without it there is no SQNR.
        inputs: [samples, *shape without the batch] for every input, in graph order.
    """
    steps = [op for op in plan.ops if plan.tensors[op.output].file_params is not None]
    names = [plan.tensors[op.output].name for op in steps]
    noise = _noise(plan, quantized, floating, inputs) if floating is not None else {}
    kinds = {g.label(node): g.operator(node) for node in quantized.graph}
    return tuple(
        Layer(
            op.name,
            "Quantize" if isinstance(op.params, Quantize) else kinds.get(op.name, _kind(op)),
            plan.tensors[op.output].file_shape,
            op.macs,
            _weight_bytes(op),
            noise.get(name),
        )
        for op, name in zip(steps, names, strict=True)
    )


def _noise(
    plan: Plan, quantized: ir.Model, floating: ir.Model, inputs: Sequence[Array]
) -> dict[str, float]:
    """Return SQNR in dB by name of the quantized tensor, where the float graph has its original."""
    origin = {
        g.name_of(node.outputs[0]): g.name_of(node.inputs[0])
        for node in quantized.graph
        if g.is_op(node, "QuantizeLinear") and node.inputs[0] is not None
    }
    known = {g.name_of(v) for node in floating.graph for v in node.outputs}
    params = {t.name: t.file_params for t in plan.tensors if t.file_params is not None}
    shared = {q: x for q, x in origin.items() if q in params and x in known}
    wanted = sorted(set(shared.values()))
    feeds = {g.name_of(v): x for v, x in zip(floating.graph.inputs, inputs, strict=True)}
    values = ort.run(ort.make_session(expose(floating, wanted)), feeds, wanted)
    reference = dict(zip(wanted, values, strict=True))
    codes = Executor(plan).tensors([x[:, None] for x in inputs])
    noise = {}
    for name, source in shared.items():
        real = dequantize(codes[name], params[name])
        decibels = sqnr_db(reference[source], np.reshape(real, reference[source].shape))
        if np.isfinite(decibels):
            noise[name] = float(decibels)
    return noise


def _kind(op: PlanOp) -> str:
    return type(op.params).__name__


def _weight_bytes(op: PlanOp) -> int:
    """Return the bytes of weight and bias codes."""
    if isinstance(op.params, Conv2d | FullyConnected):
        return op.params.weight.nbytes + op.params.bias.nbytes
    return 0
