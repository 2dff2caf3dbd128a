"""The layers of a quantized model for a report: shape, MACs, weights, and noise against float."""

from collections.abc import Mapping, Sequence
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
from midge.quant.analysis import layer_quality

Array = npt.NDArray[Any]
NOISE_SAMPLES = 64  # enough for a ratio; every tensor of each is held at once


def layer_rows(
    plan: Plan, quantized: ir.Model, floating: ir.Model | None, inputs: Sequence[Array]
) -> tuple[Layer, ...]:
    """Return one row for every integer step.

    Args:
        plan: lowered from `quantized`.
        quantized: the QDQ graph.
        floating: canonical float graph with the same names; without it there is no SQNR.
        inputs: [samples, *shape of the file] for every input, in graph order.
    """
    few = [x[:NOISE_SAMPLES] for x in inputs]
    noise = _noise(plan, quantized, floating, few) if floating is not None else {}
    kinds = {g.label(node): g.operator(node) for node in quantized.graph}
    rows = []
    for op in plan.ops:
        tensor = plan.tensors[op.output]
        if tensor.file_params is None:
            continue
        kind = "Quantize" if isinstance(op.params, Quantize) else kinds.get(op.name, "")
        rows.append(
            Layer(
                op.name,
                kind or type(op.params).__name__,
                tensor.file_shape,
                op.macs,
                _weight_bytes(op),
                noise.get(tensor.name),
            )
        )
    return tuple(rows)


def _noise(
    plan: Plan, quantized: ir.Model, floating: ir.Model, inputs: Sequence[Array]
) -> dict[str, float]:
    """Return SQNR in dB of every quantized tensor whose original the float graph has."""
    known = {g.name_of(v) for node in floating.graph for v in node.outputs}
    known |= {g.name_of(v) for v in floating.graph.inputs}
    origin = {code: real for code, real in _origins(quantized).items() if real in known}
    codes = {k: v for k, v in Executor(plan).tensors(inputs).items() if k in origin}
    values = _float_values(floating, sorted({origin[name] for name in codes}), inputs)
    params = {t.name: t.file_params for t in plan.tensors if t.file_params is not None}
    by_code = {name: np.reshape(values[origin[name]], q.shape) for name, q in codes.items()}
    found = {q.name: q.sqnr_db for q in layer_quality(by_code, codes, params)}
    return {name: ratio for name, ratio in found.items() if np.isfinite(ratio)}  # not if equal


def _origins(quantized: ir.Model) -> dict[str, str]:
    """Return, by quantized tensor, the float tensor that it stands for.

    That is what QuantizeLinear reads; of a graph output, whose float name moved behind its
    DequantizeLinear, what that one writes.
    """
    origin = {}
    for node in quantized.graph:
        if not g.is_op(node, "QuantizeLinear") or node.inputs[0] is None:
            continue
        codes = node.outputs[0]
        origin[g.name_of(codes)] = g.name_of(node.inputs[0])
        for use in codes.uses():
            if use.node.outputs[0].is_graph_output():
                origin[g.name_of(codes)] = g.name_of(use.node.outputs[0])
    return origin


def _float_values(
    floating: ir.Model, wanted: list[str], inputs: Sequence[Array]
) -> Mapping[str, Array]:
    """Return [samples, *shape] of float tensors, graph inputs among them."""
    names = [g.name_of(v) for v in floating.graph.inputs]
    computed = [name for name in wanted if name not in names]
    session = ort.make_session(expose(floating, computed), threads=1)
    runs = [
        ort.run(session, dict(zip(names, sample, strict=True)), computed)
        for sample in zip(*inputs, strict=True)
    ]
    columns = zip(*runs, strict=True)
    values = {name: np.stack(parts) for name, parts in zip(computed, columns, strict=True)}
    return {**dict(zip(names, inputs, strict=True)), **values}


def _weight_bytes(op: PlanOp) -> int:
    """Return the bytes of weight and bias codes."""
    if isinstance(op.params, Conv2d | FullyConnected):
        return op.params.weight.nbytes + op.params.bias.nbytes
    return 0
