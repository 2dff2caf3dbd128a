"""onnx's own node tests: the cases, with their parameters bound as a file would hold them."""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
DATA = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8)  # what flows through a network
# Operands that a file holds as constants although they are real numbers, by operator.
PARAMETERS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "GroupNormalization"), (1, 2)),
    **dict.fromkeys(("InstanceNormalization", "LayerNormalization", "Clip", "OneHot"), (1, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 7)),
    **dict.fromkeys(("PRelu", "RMSNormalization", "Dropout", "Upsample"), (1,)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    "BatchNormalization": (1, 2, 3, 4),
    "CausalConvWithState": (1, 2),
    "ConvInteger": (1, 3),
    "DeformConv": (1, 3),
    "MatMulInteger": (1, 3),
    "Pad": (2,),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8),
    "QLinearMatMul": (1, 2, 3, 4, 5, 6, 7),
    "Resize": (1, 2),
    "RotaryEmbedding": (1, 2),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Args:
        name: as onnx has it.
        model: of the case; `constants` are still inputs.
        inputs: what flows in, by name.
        constants: the other inputs: what a file would hold, by name.
        outputs: the expected ones; None where one is no tensor.
        rtol: relative tolerance of the case.
        atol: absolute tolerance of the case.
    """

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    constants: dict[str, Array]
    outputs: list[Array | None]
    rtol: float
    atol: float

    @property
    def plain(self) -> bool:
        """Whether every input is a tensor."""
        values = (*self.inputs.values(), *self.constants.values())
        return all(isinstance(x, np.ndarray | np.generic | TensorProto) for x in values)

    @property
    def empty_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of inputs without elements, which users state."""
        arrays = {n: x for n, x in self.inputs.items() if isinstance(x, np.ndarray)}
        return {n: x.shape for n, x in arrays.items() if 0 in x.shape}

    def bound(self) -> onnx.ModelProto:
        """Return the model with its constants as initializers."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        kept = [i for i in model.graph.input if i.name in self.inputs]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        for name, array in self.constants.items():
            tensor = array if isinstance(array, TensorProto) else numpy_helper.from_array(array)
            made = model.graph.initializer.add()
            made.CopyFrom(tensor)
            made.name = name
        return model

    def difference(self, got: list[Array]) -> str:
        """Return how outputs differ from the expected ones, empty where they hold."""
        if len(got) != len(self.outputs):
            return f"{len(got)} outputs of {len(self.outputs)}"
        for index, (want, y) in enumerate(zip(self.outputs, got, strict=True)):
            if want is None or (y.dtype, y.shape) != (want.dtype, want.shape):
                expected = "no tensor" if want is None else f"{want.dtype}{list(want.shape)}"
                return f"output {index} is {y.dtype}{list(y.shape)}, not {expected}"
            close = np.isclose(y, want, rtol=self.rtol, atol=self.atol, equal_nan=True)
            if not close.all():
                at = tuple(int(i) for i in np.argwhere(~close)[0])
                count = int((~close).sum())
                return f"output {index}: {count} differ, {at}: {y[at]} for {want[at]}"
        return ""


def collect() -> list[Case]:
    """Return every case that has a model, sorted by name."""
    from onnx.backend.test.case import node  # computes all expected values: seconds

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = node.collect_testcases(None)
    models = {case.name: case.model for case in found if case.model is not None}
    cases = (_case(case, models) for case in found if case.model is not None)
    return sorted(cases, key=lambda case: case.name)


def _case(case: Any, models: dict[str, onnx.ModelProto]) -> Case:
    inputs, outputs = case.data_sets[0]
    names = [i.name for i in case.model.graph.input]
    given = dict(zip(names, inputs, strict=False))
    base = re.sub(r"_expanded.*$", "", case.name)
    parameters = set(_parameters(models.get(base, case.model).graph))
    kinds = {i.name: i.type.tensor_type.elem_type for i in case.model.graph.input}
    data = [n for n in given if kinds[n] in DATA and n not in parameters]
    if not data:  # nothing but parameters or integers: those are the data
        data = [n for n in given if n not in parameters] or list(given)
    return Case(
        name=case.name,
        model=case.model,
        inputs={n: _array(given[n]) for n in data},
        constants={n: _tensor(x) for n, x in given.items() if n not in data},
        outputs=[_expected(y) for y in outputs],
        rtol=case.rtol,
        atol=case.atol,
    )


def _expected(value: Any) -> Array | None:
    """Return an expected output, None where it is no tensor."""
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    return value if isinstance(value, np.ndarray | np.generic) else None


def _parameters(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the inputs that a file would hold as constants."""
    for node in graph.node:
        for index in PARAMETERS.get(node.op_type, ()):
            if index < len(node.input):
                yield node.input[index]


def _array(x: Any) -> Any:
    """Return a tensor of float32 as an array; onnx gives some as messages."""
    real = isinstance(x, TensorProto) and x.data_type == TensorProto.FLOAT
    return numpy_helper.to_array(x) if real else x


def _tensor(value: Any) -> Any:
    """Return a constant: an array, or a message of a type that NumPy lacks."""
    return value if isinstance(value, TensorProto | list) else np.asarray(value)


def type_name(kind: int) -> str:
    """Return "int64" for the number of an ONNX element type."""
    return str(helper.tensor_dtype_to_string(kind)).removeprefix("TensorProto.").lower()
