"""ONNX Runtime as the reference: a quantized file with every quantized tensor looked at.

What is compared is what users run: all graph optimizations on. A quantized tensor is shown by
making the output of its QuantizeLinear a graph output, which does not stop ONNX Runtime fusing.

x86 without VNNI multiplies uint8 by int8 with sums that saturate at 16 bits; there ONNX Runtime is
told to use its exact kernels, and the level's name says so, unless the weights prove that no sum
saturates. Files with int8 activations are run as they stand (session.qdqisint8allowed), because
ONNX Runtime would rewrite parts of them to uint8.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert import ort
from midge.convert.lower_bind import bind_batch
from midge.convert.lower_params import is_quantize
from midge.convert.saturation import PRODUCTS, saturation_of
from midge.core.native import cpu_features

Array = npt.NDArray[Any]
VNNI = ("avx512_vnni", "avx_vnni")
X86 = ("x86_64", "amd64", "i386", "i686")


def needs_exact_kernels() -> bool:
    """Tell whether ONNX Runtime's uint8 x int8 products saturate on this machine."""
    if platform.machine().lower() not in X86:
        return False
    return not cpu_features().intersection(VNNI)


@dataclass(frozen=True, slots=True)
class Level:
    """How ONNX Runtime runs a file.

    Args:
        exact: session.x64quantprecision=1, which is itself an optimization; without optimizations
            the weights of integer products are rewritten instead.
        int8: session.qdqisint8allowed=1.
        optimize: all graph optimizations; without them the file runs operator by operator.
    """

    exact: bool
    int8: bool
    optimize: bool = True

    @property
    def name(self) -> str:
        """The level as it is printed beside every claim."""
        parts = ["ORT_ENABLE_ALL" if self.optimize else "ORT_DISABLE_ALL"]
        how = "x64quantprecision=1" if self.optimize else "weights made uint8"
        parts += [f"{how} (no VNNI)"] if self.exact else []
        parts += ["qdqisint8allowed=1"] if self.int8 else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Held:
    """A file some of whose inputs hold a value throughout.

    Args:
        file: as it stands; ONNX Runtime may fail where these inputs are made constants.
        values: arrays by name of the input.
    """

    file: onnx.ModelProto
    values: Mapping[str, Array]


def level_of(model: ir.Model, optimize: bool = True) -> Level:
    """Return the level at which a file's integer operators are exact on this machine."""
    exact = needs_exact_kernels() and bool(saturation_of(model).layers)
    if not optimize:  # QDQ is float arithmetic then
        return Level(exact and any(g.is_op(n, *PRODUCTS) for n in model.graph), False, False)
    dtypes = {n.outputs[0].dtype for n in quantizers(model.graph)}
    # Its exact kernels take uint8 activations only; int8 x int8 does not saturate anywhere.
    int8 = ir.DataType.UINT8 not in dtypes and ir.DataType.INT8 in dtypes
    return Level(exact and not int8, int8)


def quantizers(graph: ir.Graph) -> list[ir.Node]:
    """Return the QuantizeLinear nodes of activations."""
    return [
        n
        for n in graph
        if is_quantize(n) and n.inputs[0] is not None and not n.inputs[0].const_value
    ]


class Reference:
    """A quantized file in ONNX Runtime, sample by sample.

    Attributes:
        level: at which it runs.
        tensors: names of the quantized tensors that are shown.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        batch: int = 1,
        show: bool = True,
        reduced: ir.Model | None = None,
        optimize: bool = True,
        held: Held | None = None,
    ) -> None:
        """Load the file as it stands, and once more with its quantized tensors shown.

        Args:
            model: as read from the file.
            batch: size of an unknown leading dimension.
            show: also load it with every quantized tensor as an output.
            reduced: the model without its dead channels, to show the tensors of instead.
            optimize: with all graph optimizations, as users run it.
            held: the file to load in place of `model`, which lacks some of its inputs.

        Raises:
            ToolError: ONNX Runtime refuses the file.
        """
        self.level, self._held = level_of(model, optimize), held.values if held else {}
        whole = held.file if held else ir.to_proto(model)
        _own_constants(whole.graph)
        self._plain = self._session(whole)
        shown = model if reduced is None else reduced
        bound, _ = bind_batch(shown, batch)
        proto = ir.to_proto(shown)
        outputs = [value.name for value in proto.graph.output]
        self.tensors = [
            str(n.outputs[0].name)
            for n in quantizers(bound.graph)
            if n.outputs[0].name not in outputs
        ]
        _own_constants(proto.graph)
        self._shown = None
        if show and self.tensors:
            known = {v.name: v for n in bound.graph for v in n.outputs}
            for name in self.tensors:
                proto.graph.output.append(ir.to_proto(known[name]))
            self._shown = self._session(proto)

    def _session(self, proto: onnx.ModelProto) -> Any:
        if self.level.exact and not self.level.optimize:
            _make_weights_uint8(proto.graph)
        return ort.make_session(
            proto,
            level="all" if self.level.optimize else "none",
            threads=1,
            exact=self.level.exact,
            keep_int8=self.level.int8,
        )

    def run(self, inputs: Mapping[str, Array]) -> tuple[list[Array], dict[str, Array]]:
        """Run one sample.

        Args:
            inputs: by name, shape and dtype as in the file.

        Returns:
            The outputs of the file as it stands, in graph order (int64 and bool as int32), and the
            codes of every other quantized tensor by name.
        """
        outputs = [_as_word(y) for y in ort.run(self._plain, {**inputs, **self._held})]
        if self._shown is None:
            return outputs, {}
        codes = ort.run(self._shown, inputs, self.tensors)
        return outputs, dict(zip(self.tensors, codes, strict=True))

    def run_batch(
        self, names: Sequence[str], inputs: Sequence[Array]
    ) -> tuple[list[Array], dict[str, Array]]:
        """Run many samples.

        Args:
            names: of the inputs.
            inputs: each [samples, *shape of the file].

        Returns:
            As `run`, with a leading samples axis.
        """
        results = list(self._each(names, inputs))
        outputs = [np.stack(parts) for parts in zip(*(r[0] for r in results), strict=True)]
        codes = {name: np.stack([r[1][name] for r in results]) for name in results[0][1]}
        return outputs, codes

    def _each(
        self, names: Sequence[str], inputs: Sequence[Array]
    ) -> Iterator[tuple[list[Array], dict[str, Array]]]:
        for sample in zip(*inputs, strict=True):
            yield self.run(dict(zip(names, sample, strict=True)))


def _as_word(y: Array) -> Array:
    """Return int64 and bool as int32, as executor and C have them."""
    return y.astype(np.int32) if y.dtype in (np.int64, np.bool_) else y


def _make_weights_uint8(graph: onnx.GraphProto) -> None:
    """Store the int8 weight of each integer product, and its zero-point, with 128 added."""
    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for index, node in enumerate(graph.node):
        W = known.get(node.input[1]) if node.op_type in PRODUCTS else None
        if W is None or W.dtype != np.int8:
            continue
        zero_point = known.get(node.input[3]) if len(node.input) > 3 else None
        zero_point = np.zeros((), np.int8) if zero_point is None else zero_point
        while len(node.input) < 4:
            node.input.append("")
        for position, array in ((1, W), (3, zero_point)):
            codes = (array.astype(np.int16) + 128).astype(np.uint8)
            node.input[position] = f"{node.name}__{index}_{position}"
            graph.initializer.append(onnx.numpy_helper.from_array(codes, node.input[position]))


def _own_constants(graph: onnx.GraphProto) -> None:
    """Give each DequantizeLinear constants of its own.

    The exact kernels want weights rewritten to uint8, and ONNX Runtime fails to do so where two
    layers share a zero-point.
    """
    known = {tensor.name: tensor for tensor in graph.initializer}
    taken: set[str] = set()
    for index, node in enumerate(graph.node):
        if node.op_type != "DequantizeLinear":
            continue
        for position, name in enumerate(node.input):
            if name in known and name in taken:
                copy = onnx.TensorProto()
                copy.CopyFrom(known[name])
                copy.name = f"{name}__{index}_{position}"
                graph.initializer.append(copy)
                node.input[position] = copy.name
            taken.add(name)
