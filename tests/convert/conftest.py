"""Small ONNX graphs, float and quantized, and the question whether two engines agree on them."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert.activation_params import params_from_ranges
from midge.convert.calibrate import calibrate
from midge.convert.canonical import canonicalize
from midge.convert.compile import random_inputs
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.memory_check import Arena
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.passes.infer_shapes import InferShapes
from midge.convert.quantize import quantize_graph
from midge.convert.reference import Reference
from midge.convert.select import select

FLOAT_TOLERANCE = 2e-5  # relative to the largest output: float32 sums in another order


def build_model(text, opset=17, **weights):
    """Return a model from the text of a graph, as onnx.parser reads it, and its initializers."""
    graph = onnx.parser.parse_graph("g " + text)
    for name, array in weights.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    opsets = [onnx.helper.make_opsetid("", opset)]
    for index, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type.lower()}{index}"
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(proto)
    model = ir.from_proto(proto)
    InferShapes()(model)
    return model


def feeds_for(model, rng, batch=3, scale=1.0):
    """Return random inputs; unknown dimensions are `batch`."""
    feeds = {}
    for value in model.graph.inputs:
        shape = [d if isinstance(d, int) else batch for d in value.shape]
        array = rng.standard_normal(shape) * scale
        feeds[value.name] = np.asarray(array, value.dtype.numpy())
    return feeds


@pytest.fixture(scope="session")
def build():
    """The function build_model."""
    return build_model


@pytest.fixture(scope="session")
def random_feeds():
    """The function feeds_for."""
    return feeds_for


@pytest.fixture(scope="session")
def agree():
    """A function that runs two models on random and extreme inputs and compares every output."""

    def check(before, after, tolerance=FLOAT_TOLERANCE):
        rng = np.random.default_rng(7)
        sessions = [make_session(to_proto(m), level="none") for m in (before, after)]
        for scale in (1.0, 0.0, 1e-6, 1e4):
            feeds = feeds_for(before, rng, scale=scale)
            for want, got in zip(*(run(s, feeds) for s in sessions), strict=True):
                assert want.shape == got.shape
                assert want.dtype == got.dtype
                limit = tolerance * max(np.abs(want).max(initial=0), 1e-30)
                np.testing.assert_allclose(got, want, rtol=0, atol=limit)

    return check


@pytest.fixture
def apply(agree):
    """A function that runs a pass, checks that the model computes the same, and returns both."""

    def check(make, model):
        before = model.clone()
        result = make()(model)
        onnx.checker.check_model(to_proto(model), full_check=True)
        agree(before, model)
        for old, new in (
            (before.graph.inputs, model.graph.inputs),
            (before.graph.outputs, model.graph.outputs),
        ):
            assert [v.name for v in old] == [v.name for v in new]
        return result

    return check


@pytest.fixture(scope="session")
def ops():
    """A function that lists a model's operators in order."""
    return lambda model: [n.op_type for n in model.graph]


class QdqGraph:
    """A quantized graph under construction: random scales, zero-points and weights from one seed.

    Real values are named; `params` knows how those that were quantized map to codes.
    """

    def __init__(self, seed, dtype="uint8"):
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.low = 0 if dtype == "uint8" else -128
        self.params = {}
        self._nodes, self._initializers, self._inputs, self._outputs = [], [], [], []
        self._count = 0

    def _fresh(self, stem):
        self._count += 1
        return f"{stem}_{self._count}"

    def constant(self, array):
        """Add an initializer."""
        name = self._fresh("constant")
        self._initializers.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, outputs=1, **attributes):
        """Add a node; returns its output, or the list of them."""
        names = [self._fresh(op.lower()) for _ in range(outputs)]
        label = self._fresh(op)
        self._nodes.append(onnx.helper.make_node(op, inputs, names, label, **attributes))
        return names[0] if outputs == 1 else names

    def random_params(self):
        """Draw (scale, zero-point): powers of two, decimals and uniform; edges are frequent."""
        kind = self.rng.integers(3)
        scale = (2.0 ** self.rng.integers(-8, -2), self.rng.uniform(0.002, 0.1), 0.03)[kind]
        choices = [0, 128, int(self.rng.integers(256)), 255]
        zero = self.low + int(self.rng.choice(choices, p=[0.3, 0.2, 0.45, 0.05]))
        return np.float32(scale), zero

    def wider(self, x, low=0.4, high=1.6, zero=None):
        """Draw parameters with a scale of `low` to `high` times that of x."""
        scale = np.float32(self.params[x][0] * self.rng.uniform(low, high))
        return scale, self.random_params()[1] if zero is None else zero

    def quantized(self, value, params=None):
        """Put Q and DQ behind a real value."""
        scale, zero = params or self.random_params()
        constants = [self.constant(np.float32(scale)), self.constant(np.array(zero, self.dtype))]
        codes = self.node("QuantizeLinear", [value, *constants])
        real = self.node("DequantizeLinear", [codes, *constants])
        self.params[real] = (scale, zero)
        return real

    def input(self, shape, params=None, quantized=True):
        """Add a float input, quantized unless told otherwise."""
        name = self._fresh("input")
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        self._inputs.append(info)
        return self.quantized(name, params) if quantized else name

    def dequantized(self, codes, scale, axis=None, zero=None):
        """Add constant codes and their DequantizeLinear."""
        zero = np.zeros(np.shape(scale), codes.dtype) if zero is None else zero
        constants = [self.constant(a) for a in (codes, np.asarray(scale, np.float32), zero)]
        attributes = {} if axis is None or not np.ndim(scale) else {"axis": axis}
        return self.node("DequantizeLinear", constants, **attributes)

    def weight(self, shape, axis=0, per_channel=True):
        """Add int8 weights; returns (value, scales)."""
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        size = shape[axis] if per_channel else ()
        scale = np.asarray(self.rng.uniform(0.001, 0.02, size), np.float32)
        if self.rng.random() < 0.3:  # products and sums that end in exact ties
            scale = np.float32(2) ** np.rint(np.log2(scale))
        return self.dequantized(codes, scale, axis), scale

    def bias(self, channels, x, w_scale):
        """Add an int32 bias."""
        codes = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        return self.dequantized(codes, np.float32(self.params[x][0]) * w_scale, 0)

    def layer(self, op, x, shape, depth, axis=0, bias=True, zero=None, relu=False, **attributes):
        """Add a layer with random weights; its output's scale fits the sums."""
        w, scale = self.weight(shape, axis, per_channel=self.rng.random() < 0.8)
        operands = [x, w, self.bias(shape[axis], x, scale)] if bias else [x, w]
        y = self.node(op, operands, **attributes)
        if relu:
            y, zero = self.node("Relu", [y]), self.low
        spread = float(self.params[x][0]) * float(np.mean(scale)) * np.sqrt(depth) * 150
        chosen = np.float32(spread * self.rng.uniform(0.5, 2))
        return self.quantized(y, (chosen, self.random_params()[1] if zero is None else zero))

    def output(self, *values):
        """Make values outputs of the graph."""
        self._outputs += values
        return self

    def proto(self, opset=17):
        """Return the checked model."""
        outputs = [onnx.helper.make_empty_tensor_value_info(v) for v in self._outputs]
        graph = onnx.helper.make_graph(self._nodes, "g", self._inputs, outputs, self._initializers)
        opsets = [onnx.helper.make_opsetid("", opset)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model)
        return model

    def model(self, opset=17):
        """Return the checked model in memory."""
        return ir.from_proto(self.proto(opset))


@pytest.fixture(scope="session")
def qdq():
    """The class QdqGraph."""
    return QdqGraph


def differences(model, seed=0, samples=16):
    """Run executor, placed arena and ONNX Runtime; return {tensor: [(executor's, other's), ...]}.

    The outputs, every quantized tensor and the replay in one arena are compared.
    """
    plan = lower(model, name="graph")
    place(plan)
    inputs = random_inputs(plan, samples, seed)
    seen = Executor(plan).observe(inputs)
    names = [plan.tensors[t].name for t in plan.inputs]
    outputs, codes = Reference(model).run_batch(names, inputs)
    pairs = [(name, seen.tensors[name], other) for name, other in codes.items()]
    pairs += [("output", *pair) for pair in zip(seen.outputs, outputs, strict=True)]
    replayed = Arena(plan).run([x[0] for x in inputs])
    pairs += [("arena", y[0], z) for y, z in zip(seen.outputs, replayed, strict=True)]
    found = {}
    for name, ours, theirs in pairs:
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        differ = ours != theirs
        if differ.any():
            found[name] = list(zip(ours[differ].tolist(), theirs[differ].tolist(), strict=True))[:5]
    return found


@pytest.fixture(scope="session")
def compare():
    """The function differences."""
    return differences


@pytest.fixture(scope="session")
def quantized():
    """A function that quantizes a model on random data and gives the graph and its SQNR in dB."""

    def do(model, **options):
        canonicalize(model)
        samples = [feeds_for(model, np.random.default_rng(s), batch=2) for s in range(8)]
        ranges = calibrate(model, samples)
        dtype = options.get("activation_type", "uint8")
        chosen = {
            k: options[k] for k in ("nodes_to_exclude", "op_types_to_quantize") if k in options
        }
        params = params_from_ranges(select(model, **chosen), ranges, dtype)
        result = quantize_graph(model, params, **options)
        proto = to_proto(result.model)
        onnx.checker.check_model(proto, full_check=True)
        if options.get("io_type", "float32") != "float32":
            return result, None
        sessions = make_session(to_proto(model)), make_session(proto, exact=True)
        want, got = ([run(s, f) for f in samples] for s in sessions)
        want, got = ([a for arrays in runs for a in arrays] for runs in (want, got))
        noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(want, got, strict=True))
        signal = sum(float((a**2).sum()) for a in want)
        return result, 10 * np.log10(signal / max(noise, 1e-30))

    return do
