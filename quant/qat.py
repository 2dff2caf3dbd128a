"""Quantization-aware training: a module's twin that computes the very integer graph that ships.

`prepare_qat` traces a module and returns its `QATModel`, whose parameters are the module's own.
Training updates weights, gamma and beta; ranges follow by an exponential moving average. After
`finalize()` the parameters are frozen as codes, and in `eval()` the outputs equal the integer
executor's, bit for bit.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from midge.core import Tensor, nn, no_grad
from midge.core.backend import to_numpy
from midge.core.errors import InputError
from midge.core.trace import TraceGraph, trace
from midge.quant import qat_ops
from midge.quant.arithmetic import portable_sum_params, portable_table_params
from midge.quant.fake_quant import QTensor, QuantizeInput
from midge.quant.functions import Function
from midge.quant.qat_graph import QATGraph, Step, build
from midge.quant.scheme import SOFTMAX_PARAMS, QuantParams, WeightCodes, activation_params

Array = Any


@dataclass(frozen=True, slots=True)
class QATExport:
    """What the converter needs to write the trained network.

    Args:
        graph: the float graph, batch norms included.
        params: activation parameters by value name.
        layers: integer weights by the name of the value that the layer's codes end in; those that
            are left out follow from the float weights in `graph`.
        tables: names of the nodes of every function of one tensor, in order.
    """

    graph: TraceGraph
    params: dict[str, QuantParams]
    layers: dict[str, WeightCodes]
    tables: tuple[tuple[str, ...], ...] = ()


class QATModel(nn.Module):
    """The quantized twin of a module; call it as the module itself.

    Inputs and outputs are real float32 tensors, as the module's own. In train() mode every forward
    moves the observed ranges; in eval() they stand still.

    Args:
        model: the module; its parameters are shared, not copied.
        graph: from qat_graph.build.
        per_channel: one weight scale per output channel, or one per tensor.
        momentum: weight of a new batch in the moving average of ranges, 0..1.
    """

    def __init__(
        self, model: nn.Module, graph: QATGraph, per_channel: bool = True, momentum: float = 0.05
    ) -> None:
        """Hold the module and start with no range observed (NaN)."""
        super().__init__()
        self.model = model
        self.graph = graph
        self.per_channel = per_channel
        self.momentum = momentum
        self.observing = True
        self.frozen: dict[str, WeightCodes] = {}
        self._portable: dict[tuple[int, ...], QuantParams] = {}
        # The trace holds the values of that moment; training moves the module's own tensors.
        self._own = graph.trace.constants | dict(model.named_buffers())
        self._own |= dict(model.named_parameters())
        self._still: dict[str, Tensor] | None = None
        empty = np.full((len(graph.slot_names), 2), np.nan, np.float64)
        self.register_buffer("ranges", Tensor(empty))

    # -- ranges -----------------------------------------------------------------------------------

    def observe(self, slot: int, low: float, high: float) -> None:
        """Move a slot's range towards [low, high]; the first observation sets it."""
        if not (self.training and self.observing and self._still is None):
            return
        ranges = self.ranges.array
        new = np.array([low, high])
        if not np.isfinite(new).all():
            name = self.graph.slot_names[slot]
            raise InputError(f"{name}: training produced {low}..{high}; lower the learning rate.")
        old = ranges[slot]
        ranges[slot] = new if np.isnan(old).any() else old + self.momentum * (new - old)

    def params_of(self, value: str) -> QuantParams:
        """Parameters of a value: the union of its group's ranges, widened to hold 0.

        Those of a constant are from its own values.
        """
        if value not in self.graph.slots:
            array = to_numpy(self.constants()[value].array)
            return activation_params(float(array.min()), float(array.max()))
        slots = self.graph.slots[value]
        if not slots:
            return SOFTMAX_PARAMS
        if slots in self._portable:
            return self._portable[slots]
        ranges = self.ranges.array[list(slots)]
        if self.training:  # the others of its group come later in the first batch
            ranges = ranges[~np.isnan(ranges[:, 0])]
        if not len(ranges) or np.isnan(ranges).any():
            raise InputError(
                f"{value}: no range observed yet; run at least one batch in train() mode."
            )
        return activation_params(float(ranges[:, 0].min()), float(ranges[:, 1].max()))

    def freeze_ranges(self) -> None:
        """Keep the ranges as they are from now on, also in train() mode."""
        self.observing = False

    # -- forward ----------------------------------------------------------------------------------

    def forward(self, *inputs: Tensor) -> Any:
        """Run the quantized graph; returns one tensor, or a tuple where the module did."""
        env: dict[str, QTensor] = {}
        for value, x in zip(self.graph.trace.inputs, inputs, strict=True):
            slot = self.graph.input_slots[value.name]
            self.observe(slot, float(x.array.min()), float(x.array.max()))
            params = self.params_of(value.name)
            env[value.name] = QTensor(QuantizeInput.apply(x, params), params)
        for step in self.graph.steps:
            env[step.output] = qat_ops.run(self, step, env)
        outputs = tuple(env[v.name].dequantize() for v in self.graph.trace.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def folded(self, step: Step) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of a layer with its batch norm folded in, by running statistics.

        W' = W * gamma / sqrt(var + eps), B' = beta + (B - mean) * gamma / sqrt(var + eps).
        """
        weight, bias = (*step.node.inputs[1:], None)[:2]
        W, B = self.constants()[weight or ""], self.constants()[bias] if bias else None
        if step.norm is None:
            return W, B
        gamma, beta, mean, var = (self.constants()[n or ""] for n in step.norm.inputs[1:5])
        factor = gamma / (var + step.norm.attributes["eps"]).sqrt()
        shift = beta - mean * factor if B is None else beta + (B - mean) * factor
        return W * factor.reshape(-1, *[1] * (len(W.shape) - 1)), shift

    def constants(self) -> dict[str, Tensor]:
        """Parameters, buffers and traced constants by name; as finalize() found them, after it."""
        return self._own if self._still is None else self._still

    def function(self, step: Step) -> Function:
        """Return the function of a table's step, of float64 values."""
        region, constants = step.region, self.constants()
        assert region is not None
        return lambda x: region.double(x, constants)

    # -- the end of training ----------------------------------------------------------------------

    def finalize(self) -> "QATModel":
        """Freeze weights, biases and ranges as codes and switch to eval(); returns self.

        Further training has no effect on the codes; prepare the module again to go on.

        Raises:
            InputError: a range was never observed.
        """
        self.eval()
        used = self.graph.trace.constants
        self._still = {n: self._own[n].detach().clone() for n in used}
        self._make_sums_portable()
        self._make_tables_portable()
        with no_grad():
            for step in self.graph.steps:
                if step.node.op in ("conv2d", "linear"):
                    x = self.params_of(step.node.inputs[0] or "")
                    self.frozen[step.output] = qat_ops.encode(self, step, x)
        return self

    def _make_sums_portable(self) -> None:
        """Raise the scale of a sum by a few float32 steps where ONNX Runtime rounds it apart."""
        for step in self.graph.steps:
            if step.region is None and step.node.op in ("add", "sub"):
                a, b = (self.params_of(name or "") for name in step.node.inputs[:2])
                y = self.params_of(step.output)
                new = portable_sum_params(a, b, y, subtract=step.node.op == "sub")
                if new != y and y not in (a, b):
                    self._portable[self.graph.slots[step.output]] = new

    def _make_tables_portable(self) -> None:
        """Raise the scale of a table's result a little where float32 could round it apart."""
        for step in self.graph.steps:
            if step.region is not None:
                x, y = self.params_of(step.region.source), self.params_of(step.output)
                new = portable_table_params(self.function(step), x, y)
                if new != y and y != x:
                    self._portable[self.graph.slots[step.output]] = new

    def export(self) -> QATExport:
        """Return the trained graph with its integer parameters.

        Raises:
            InputError: finalize() was not called.
        """
        if self._still is None:
            raise InputError("The QAT model still trains; call finalize() before export().")
        params = {value: self.params_of(value) for value in self.graph.slots}
        for step in self.graph.steps:  # what was fused may carry the codes in the file
            for node in (step.node, step.norm):
                if node is not None:
                    params.setdefault(node.outputs[0], params[step.output])
        graph = replace(self.graph.trace, constants=dict(self._still))
        tables = [s.region.nodes for s in self.graph.steps if s.region is not None]
        names = tuple(tuple(n.name for n in nodes) for nodes in tables)
        return QATExport(graph, params, dict(self.frozen), names)


def prepare_qat(
    model: nn.Module, *example_inputs: Tensor, per_channel: bool = True, momentum: float = 0.05
) -> QATModel:
    """Return the quantized twin of a module.

    Args:
        model: a float module; batch norms keep their running statistics from here on.
        example_inputs: one batch, for tracing; values do not matter, shapes do.
        per_channel: one weight scale per output channel, or one per tensor.
        momentum: weight of a new batch in the moving average of ranges.

    Raises:
        UnsupportedError: an operator of the module has no quantized form.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference", 2018 (folding and straight-through training).
    """
    was_training = model.training
    model.eval()
    with no_grad():
        graph = build(trace(model, *example_inputs))
    model.train(was_training)
    return QATModel(model, graph, per_channel, momentum)
