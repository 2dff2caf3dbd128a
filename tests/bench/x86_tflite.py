"""A Plan as a .tflite file: the same network, weights and scales, for LiteRT."""

import json
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.plan import (
    Add,
    Conv2d,
    FlipSign,
    FullyConnected,
    Plan,
    PlanOp,
    Pool2d,
    Softmax,
    Transpose,
)
from midge.convert.plan_float import (
    BinaryF32,
    Conv2dF32,
    FullyConnectedF32,
    Limits,
    Pool2dF32,
    ReduceF32,
    SoftmaxF32,
    UnaryF32,
)

Array = npt.NDArray[Any]
WRITER = Path(__file__).with_name("tflite_writer.py")
# Of the operators in int8 with a scale for each channel.
VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "ADD": 2, "SOFTMAX": 2}
VERSIONS |= {"AVERAGE_POOL_2D": 2, "MAX_POOL_2D": 2, "MEAN": 2}
ACTIVATION = "ActivationFunctionType."


def write_tflite(plan: Plan, path: Path, python: str) -> None:
    """Write a Plan of convolutions, pools, sums and matrix products as a .tflite file.

    Args:
        plan: int8 or float32; copies of the whole input at its head are left out, so that the
            input of the file is NHWC and int8.
        path: of the file.
        python: an interpreter that has ai-edge-litert.
    """
    network = Network(plan)
    with tempfile.TemporaryDirectory(prefix="midge-tflite-") as folder:
        description, arrays = Path(folder) / "network.json", Path(folder) / "arrays.npz"
        description.write_text(json.dumps(network.description()), encoding="utf-8")
        np.savez(arrays, **network.arrays)
        command = [python, "-P", str(WRITER), str(description), str(arrays), str(path)]
        subprocess.run(command, check=True)


@dataclass
class Network:
    """Tensors and operators of the file so far; a Plan's tensors keep their indices."""

    plan: Plan
    tensors: list[dict[str, Any]] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)  # buffer -> tensor that is made

    def description(self) -> dict[str, Any]:
        """Return what tflite_writer.py reads."""
        plan = self.plan
        for index, t in enumerate(plan.tensors):
            scale = None if t.params is None else [float(t.params.scale)]
            zero = 0 if t.params is None else t.params.zero_point
            self.tensors.append(entry(f"t{index}", t.shape, t.dtype, scale, zero))
        heads = {plan.tensors[i].buffer for i in plan.inputs}
        self.held = {plan.tensors[i].buffer: i for i in plan.inputs}
        inputs = list(plan.inputs)
        for op in plan.ops:
            if isinstance(op.params, Transpose | FlipSign):
                source, made = (plan.tensors[i].buffer for i in (op.inputs[0], op.output))
                assert source in heads, f"{op.name}: only the input may be copied"
                heads.add(made)
                continue
            if isinstance(op.params, ReduceF32):
                self.mean(op, op.params)
            else:
                for index in op.inputs:
                    self.arrive(index, heads, inputs)
                self.add(op)
            self.held[plan.tensors[op.output].buffer] = op.output
        last = [self.held[plan.tensors[i].buffer] for i in plan.outputs]
        return {
            "tensors": self.tensors,
            "inputs": inputs,
            "outputs": last,
            "operators": self.operators,
            "versions": VERSIONS,
        }

    def arrive(self, index: int, heads: set[int], inputs: list[int]) -> None:
        """See that an operand is there: as the input itself, or as another shape of a tensor."""
        buffer = self.plan.tensors[index].buffer
        if buffer in heads and self.held.get(buffer) != index:
            inputs[:] = [index]
        elif self.held[buffer] != index:
            shape = np.array(self.plan.tensors[index].shape, np.int32)
            target = self.constant(shape)
            fields = {"newShape": shape.tolist()}
            self.operator("RESHAPE", [self.held[buffer], target], index, ("ReshapeOptions", fields))
        self.held[buffer] = index

    def add(self, op: PlanOp) -> None:
        """Append the operator of one step."""
        p = op.params
        if isinstance(p, Conv2d | Conv2dF32):
            self.convolution(op, p)
        elif isinstance(p, FullyConnected | FullyConnectedF32):
            operands = [op.inputs[0], *self.weights(op, p, p.weight)]
            fields = {"fusedActivationFunction": self.activation(op)}
            self.operator("FULLY_CONNECTED", operands, op.output, ("FullyConnectedOptions", fields))
        elif isinstance(p, Pool2d | Pool2dF32):
            self.pool(op, p)
        elif isinstance(p, Softmax | SoftmaxF32):
            self.operator("SOFTMAX", op.inputs, op.output, ("SoftmaxOptions", {"beta": 1.0}))
        elif isinstance(p, Add) or (isinstance(p, BinaryF32) and p.kind == "add"):
            fields = {"fusedActivationFunction": self.activation(op)}
            self.operator("ADD", op.inputs, op.output, ("AddOptions", fields))
        elif isinstance(p, UnaryF32) and (p.kind, p.alpha) == ("clip", 0.0):
            self.clip(op, {float("inf"): "RELU", 6.0: "RELU6"}[p.beta])
        else:
            raise TypeError(f"{op.name}: {type(p).__name__} has no form in the .tflite file")

    def clip(self, op: PlanOp, activation: str) -> None:
        """Fuse an activation into the operator that makes its input, or append it."""
        last = self.operators[-1] if self.operators else None
        if last is None:
            self.operator(activation, op.inputs, op.output, None)
            return
        assert last["outputs"] == [op.inputs[0]], f"{op.name}: stands alone"
        last["options"][1]["fusedActivationFunction"] = ACTIVATION + activation
        last["outputs"] = [op.output]

    def convolution(self, op: PlanOp, p: Conv2d | Conv2dF32) -> None:
        """Append CONV_2D or DEPTHWISE_CONV_2D."""
        channels = self.plan.tensors[op.inputs[0]].shape[3]
        window = window_fields(self.plan, op, p.weight.shape[1:3], p.stride, p.pads)
        fields = {**window, "fusedActivationFunction": self.activation(op)}
        if p.groups == 1:
            operands = [op.inputs[0], *self.weights(op, p, p.weight)]
            self.operator("CONV_2D", operands, op.output, ("Conv2DOptions", fields))
            return
        assert p.groups == channels, f"{op.name}: grouped convolutions are not written"
        weight = p.weight.transpose(3, 1, 2, 0)
        fields["depthMultiplier"] = len(p.weight) // channels
        operands = [op.inputs[0], *self.weights(op, p, weight, axis=3)]
        self.operator("DEPTHWISE_CONV_2D", operands, op.output, ("DepthwiseConv2DOptions", fields))

    def pool(self, op: PlanOp, p: Pool2d | Pool2dF32) -> None:
        """Append a pool, or MEAN for an average over everything whose scale changes."""
        x, y = self.plan.tensors[op.inputs[0]], self.plan.tensors[op.output]
        if p.kind == "average" and x.params != y.params:
            assert x.shape[1:3] == tuple(p.kernel), f"{op.name}: the scale changes"
            axes = self.constant(np.array([1, 2], np.int32))
            operands = [op.inputs[0], axes]
            self.operator("MEAN", operands, op.output, ("ReducerOptions", {"keepDims": True}))
            return
        fields = window_fields(self.plan, op, p.kernel, p.stride, p.pads)
        fields |= {"filterHeight": p.kernel[0], "filterWidth": p.kernel[1]}
        fields = {k: v for k, v in fields.items() if not k.startswith("dilation")}
        self.operator(f"{p.kind.upper()}_POOL_2D", op.inputs, op.output, ("Pool2DOptions", fields))

    def mean(self, op: PlanOp, p: ReduceF32) -> None:
        """Append MEAN over height and width of the image that a reduction sees in three axes."""
        outer, pixels, inner = self.plan.tensors[op.inputs[0]].shape
        image = self.held[self.plan.tensors[op.inputs[0]].buffer]
        n, height, width, channels = self.plan.tensors[image].shape
        assert (n, height * width, channels) == (outer, pixels, inner), op.name
        assert p.kind == "mean", f"{op.name}: {p.kind}"
        axes = self.constant(np.array([1, 2], np.int32))
        self.tensors[op.output]["shape"] = [n, channels]
        self.operator("MEAN", [image, axes], op.output, ("ReducerOptions", {"keepDims": False}))

    def weights(self, op: PlanOp, p: Any, weight: Array, axis: int = 0) -> list[int]:
        """Append the constants of a layer; the scales of the weights follow from its multipliers.

        Returns:
            Tensor indices of weight and bias.
        """
        if isinstance(p, Conv2dF32 | FullyConnectedF32):
            assert p.scale is None, f"{op.name}: float weights are needed"
            return [self.constant(weight), self.constant(p.bias)]
        x, y = self.plan.tensors[op.inputs[0]].params, self.plan.tensors[op.output].params
        assert x is not None
        assert y is not None
        assert not p.weight_zero_point, f"{op.name}: the weights have a zero point"
        m = np.asarray(p.requantization.m, np.float64)
        scale = np.broadcast_to(m * float(y.scale) / float(x.scale), len(p.bias)).astype(np.float32)
        bias_scale = scale.astype(np.float64) * float(x.scale)
        return [
            self.constant(weight, scale.tolist(), axis),
            self.constant(p.bias.astype(np.int32), bias_scale.tolist()),
        ]

    def activation(self, op: PlanOp) -> str:
        """Return the enumerator of what is fused into a step."""
        limits = getattr(op.params, "limits", None)
        if limits is None:
            requantization = getattr(op.params, "requantization", None)
            y = self.plan.tensors[op.output].params
            if requantization is None or y is None or requantization.low == -128:
                return ACTIVATION + "NONE"
            assert requantization.low == y.zero_point, f"{op.name}: an unknown activation"
            return ACTIVATION + ("RELU" if requantization.high == 127 else "RELU6")
        known = {Limits(): "NONE", Limits(0.0): "RELU", Limits(0.0, 6.0): "RELU6"}
        return ACTIVATION + known[limits]

    def constant(self, array: Array, scale: list[float] | None = None, axis: int = 0) -> int:
        """Append a constant and return its tensor index."""
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.ascontiguousarray(array)
        made = entry(name, array.shape, str(array.dtype), scale, 0)
        self.tensors.append({**made, "array": name, "axis": axis})
        return len(self.tensors) - 1

    def operator(self, op: str, inputs: Any, output: int, options: tuple[str, Any] | None) -> None:
        """Append an operator."""
        self.operators.append(
            {"op": op, "inputs": list(inputs), "outputs": [output], "options": options}
        )


def entry(
    name: str, shape: tuple[int, ...], dtype: str, scale: list[float] | None, zero_point: int
) -> dict[str, Any]:
    """Return a tensor of the description."""
    found = {"name": name, "shape": list(shape), "dtype": dtype, "array": None}
    return {**found, "scale": scale, "zero_point": zero_point}


def window_fields(
    plan: Plan, op: PlanOp, kernel: Any, stride: tuple[int, int], pads: tuple[int, int, int, int]
) -> dict[str, Any]:
    """Return stride and padding of a window; the padding must be SAME or VALID."""
    sizes = plan.tensors[op.inputs[0]].shape[1:3], plan.tensors[op.output].shape[1:3]
    same = []
    for x, y, k, s in zip(*sizes, kernel, stride, strict=True):
        total = max((y - 1) * s + k - x, 0) if y == -(-x // s) else -1
        same.append((total // 2, total - total // 2))
    padding = "VALID" if not any(pads) else "SAME"
    if padding == "SAME":
        assert pads == (same[0][0], same[1][0], same[0][1], same[1][1]), f"{op.name}: {pads}"
    return {"padding": f"Padding.{padding}", "strideH": stride[0], "strideW": stride[1]}
