"""Runs a Plan in NumPy: the integer reference that ONNX Runtime and the C code are compared with.

It shares no code with ONNX Runtime. Samples are computed side by side, in chunks that bound memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from midge.convert.executor_float import FLOAT_KERNELS
from midge.convert.executor_ops import KERNELS, Operands
from midge.convert.plan import Conv2d, Plan, PlanOp, PlanTensor
from midge.convert.plan_float import Conv2dDynamic, Conv2dF32
from midge.core.errors import InputError

Array = npt.NDArray[Any]
WORKSPACE_BYTES = 1 << 25  # of the largest temporary array of a chunk


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a run over samples computed.

    Args:
        outputs: in graph order, each [samples, *shape of the file].
        tensors: codes of every quantized tensor of the file by name, in the file's dtype and axis
            order, each [samples, *shape of the file].
        steps: what each step of the Plan wrote as it lies in memory, [samples, bytes] uint8.
    """

    outputs: list[Array]
    tensors: dict[str, Array]
    steps: list[Array]


class Executor:
    """Runs one Plan.

    Args:
        plan: as lowered; offsets are not needed.
    """

    def __init__(self, plan: Plan) -> None:
        """Find out when each buffer is read last, and how many samples fit a chunk."""
        self.plan = plan
        self._last_use: dict[int, int] = {}
        for index, op in enumerate(plan.ops):
            for tensor in op.inputs:
                self._last_use[plan.tensors[tensor].buffer] = index
        for tensor in plan.outputs:
            self._last_use[plan.tensors[tensor].buffer] = len(plan.ops)
        largest = max((_workspace(plan, op) for op in plan.ops), default=1)
        self._chunk = max(1, WORKSPACE_BYTES // largest)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run one sample.

        Args:
            inputs: in graph order, shape and dtype as in the file (an unknown leading dimension is
                the Plan's batch).

        Returns:
            The outputs in graph order, as the file has them.

        Raises:
            InputError: an input does not fit, named.
        """
        return [y[0] for y in self.run_batch([np.asarray(x)[None] for x in inputs])]

    def run_batch(self, inputs: Sequence[Array]) -> list[Array]:
        """Run many samples.

        Args:
            inputs: in graph order, each [samples, *shape of the file].

        Returns:
            The outputs in graph order, each [samples, *shape of the file].

        Raises:
            InputError: an input does not fit, named.
        """
        parts = []
        for chunk in self._chunks(inputs):
            memory = self._start(chunk)
            for _ in self._steps(memory):
                pass
            parts.append(self._outputs(memory))
        return _joined(parts)

    def tensors(self, inputs: Sequence[Array]) -> dict[str, Array]:
        """Return the codes of every quantized tensor of the file, by name; see `observe`."""
        return self.observe(inputs).tensors

    def observe(self, inputs: Sequence[Array]) -> Observation:
        """Run many samples and keep everything.

        Args:
            inputs: in graph order, each [samples, *shape of the file].

        Raises:
            InputError: an input does not fit, named.
        """
        named = [t for t in self.plan.tensors if t.file_params is not None]
        outputs, codes, steps = [], [], []
        for chunk in self._chunks(inputs):
            memory = self._start(chunk)
            written = list(self._steps(memory, keep=True))
            steps.append([_bytes(y) for y in written])
            codes.append([as_in_file(t, _as_stored(t, memory)) for t in named])
            outputs.append(self._outputs(memory))
        names = (t.name for t in named)
        return Observation(
            _joined(outputs), dict(zip(names, _joined(codes), strict=True)), _joined(steps)
        )

    def _outputs(self, memory: dict[int, Array]) -> list[Array]:
        """Return the outputs as the file has them."""
        tensors = [self.plan.tensors[t] for t in self.plan.outputs]
        stored = [_as_stored(t, memory) for t in tensors]
        return [y.reshape(len(y), *_file_shape(t)) for t, y in zip(tensors, stored, strict=True)]

    def _chunks(self, inputs: Sequence[Array]) -> Iterator[list[Array]]:
        """Check the inputs and cut them into chunks of samples."""
        wanted = [self.plan.tensors[t] for t in self.plan.inputs]
        if len(inputs) != len(wanted):
            raise InputError(f"got {len(inputs)} inputs; the model has {len(wanted)}.")
        arrays = [np.asarray(x) for x in inputs]
        for tensor, x in zip(wanted, arrays, strict=True):
            if x.dtype != tensor.dtype or x.shape[1:] != _file_shape(tensor):
                raise InputError(
                    f"input {tensor.name!r}: got {x.dtype}{list(x.shape[1:])} a sample; the model "
                    f"takes {tensor.dtype}{list(_file_shape(tensor))}."
                )
        count = len(arrays[0]) if arrays else 1
        if any(len(x) != count for x in arrays) or not count:
            raise InputError("the inputs hold no samples, or not equally many.")
        for start in range(0, count, self._chunk):
            yield [x[start : start + self._chunk] for x in arrays]

    def _start(self, chunk: list[Array]) -> dict[int, Array]:
        """Return the memory that holds the inputs: buffer -> [S, bytes or elements]."""
        tensors = [self.plan.tensors[t] for t in self.plan.inputs]
        return {
            t.buffer: np.ascontiguousarray(x).reshape(len(x), *t.shape)
            for t, x in zip(tensors, chunk, strict=True)
        }

    def _steps(self, memory: dict[int, Array], keep: bool = False) -> Iterator[Array]:
        """Run the steps; yield each one's output as stored, [S, *shape].

        Args:
            memory: buffer -> array; grown by every step, shrunk when a buffer was read last.
            keep: never shrink it.
        """
        samples = max((len(x) for x in memory.values()), default=1)
        for index, op in enumerate(self.plan.ops):
            y = compute(self.plan, op, [memory_of(self.plan, t, memory) for t in op.inputs])
            if not op.inputs:  # a constant, the same for every sample
                y = np.repeat(y, samples, axis=0)
            memory[self.plan.tensors[op.output].buffer] = y
            yield y
            for tensor in () if keep else op.inputs:
                buffer = self.plan.tensors[tensor].buffer
                if self._last_use[buffer] == index:
                    memory.pop(buffer, None)


def compute(plan: Plan, op: PlanOp, inputs: Sequence[Array]) -> Array:
    """Run one step.

    Args:
        plan: the program.
        op: one of its steps.
        inputs: each [samples, *shape as stored].

    Returns:
        [samples, *shape as stored].
    """
    operands = Operands(inputs, [plan.tensors[t] for t in op.inputs], plan.tensors[op.output])
    kernel = KERNELS.get(type(op.params)) or FLOAT_KERNELS[type(op.params)]
    return kernel(op.params, operands)


def memory_of(plan: Plan, tensor: int, memory: dict[int, Array]) -> Array:
    """Return a tensor's array, [samples, *shape as stored]."""
    return _as_stored(plan.tensors[tensor], memory)


def _as_stored(tensor: PlanTensor, memory: dict[int, Array]) -> Array:
    y = memory[tensor.buffer]
    return y.reshape(len(y), *tensor.shape)


def as_in_file(tensor: PlanTensor, stored: Array) -> Array:
    """Return a tensor's codes in the file's axis order and dtype.

    Args:
        tensor: with layout, file_shape and file_params.
        stored: [samples, *shape as stored].
    """
    back = np.argsort(tensor.layout) + 1
    y = stored.transpose(0, *back).reshape(len(stored), *_file_shape(tensor))
    params = tensor.file_params
    if params is None or params.dtype == tensor.dtype:
        return y
    flipped: Array = (np.ascontiguousarray(y).view(np.uint8) ^ np.uint8(0x80)).view(params.dtype)
    return flipped


def _bytes(y: Array) -> Array:
    """Return [samples, bytes] uint8."""
    return np.ascontiguousarray(y).reshape(len(y), -1).view(np.uint8)


def _joined(chunks: list[list[Array]]) -> list[Array]:
    """Join the chunks of each array along the samples."""
    return [np.concatenate(parts) for parts in zip(*chunks, strict=True)]


def _file_shape(tensor: PlanTensor) -> tuple[int, ...]:
    return tensor.file_shape or tensor.shape


def _workspace(plan: Plan, op: PlanOp) -> int:
    """Return about how many bytes of temporaries one sample of a step takes."""
    y = plan.tensors[op.output]
    elements = max(y.bytes, *(plan.tensors[t].bytes for t in op.inputs), 1)
    if isinstance(op.params, (Conv2d, Conv2dDynamic, Conv2dF32)):
        columns = int(np.prod(op.params.weight.shape[1:])) * op.params.groups
        depthwise = op.params.weight.shape[-1] == 1
        pixels = int(np.prod(y.shape[:3]))
        elements = max(elements, pixels * (y.shape[3] if depthwise else columns))
    return 8 * elements
