"""Imported ONNX files: the same outputs, gradients, training, and clear refusals."""

import copy
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import midge
from midge.convert.from_trace import trace_to_onnx, verify_export
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.to_module import load_module
from midge.core import Tensor, manual_seed, nn, no_grad, optim, randn
from midge.core.autograd import gradcheck
from midge.core.errors import InputError, UnsupportedError
from midge.core.nn import functional as F
from midge.core.trace import trace

RELATIVE = 1e-5  # of the largest output: float32 sums in another order
MLPERF = ("ad01_autoencoder", "ic01_resnet8", "kws01_dscnn", "sww", "vww_mnv1_025_96")


@pytest.fixture(autouse=True)
def seed():
    manual_seed(0)


class Net(nn.Module):
    """Convolution, batch norm, pools, a residual sum and a dense layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        y = self.depthwise(y).clip(-1, 1) + y
        return F.log_softmax(self.head(y.mean((2, 3))), -1)


@pytest.fixture
def net():
    """A net whose statistics are not 0 and 1."""
    made = Net()
    made(randn(16, 2, 6, 6))
    return made.eval()


def exported(module, *inputs):
    return trace_to_onnx(trace(module, *inputs), "net")


def close(got, want, relative=RELATIVE):
    want = np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    limit = relative * max(float(np.abs(want).max(initial=0)), 1e-30)
    np.testing.assert_allclose(got, want, rtol=0, atol=limit)


def agrees(model, feeds):
    """Load a model and compare it with ONNX Runtime; return the module."""
    module = load_module(model)
    want = run(make_session(to_proto(model), level="none"), feeds)
    with no_grad():
        got = module(*(feeds[name] for name in module.input_names))
    for y, expected in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        close(y.array, expected)
    return module


def test_a_module_comes_back_from_its_export_with_its_names_and_outputs(net):
    back = load_module(exported(net, randn(2, 2, 6, 6)))
    assert {n for n, _ in back.named_parameters()} == {n for n, _ in net.named_parameters()}
    assert set(back.state_dict()) == set(net.state_dict()) - {"norm.num_batches_tracked"}
    assert not back.training
    x = randn(5, 2, 6, 6)
    close(back(x).detach().array, net(x).detach().array)
    assert not back.load_state_dict(Net().state_dict(), strict=False).missing_keys


def test_what_is_loaded_can_be_exported_again(net):
    x = randn(2, 2, 6, 6)
    first = exported(net, x)
    back = load_module(first)
    again = exported(back, x)
    verify_export(again, back, randn(7, 2, 6, 6))
    assert {n.name for n in first.graph} <= {n.name for n in again.graph}
    assert {"conv.weight", "norm.running_mean", "head.bias"} <= set(again.graph.initializers)


def test_the_model_in_memory_and_the_module_share_nothing(net):
    model = exported(net, randn(2, 2, 6, 6))
    before = to_proto(model).SerializeToString()
    back = load_module(model)
    for parameter in back.parameters():
        parameter.array[:] = 0
    assert to_proto(model).SerializeToString() == before


def test_gradients_of_an_imported_net_are_those_of_the_net(net):
    x = randn(3, 2, 6, 6)
    back = load_module(exported(net, x))
    for module in (net, back):
        (module(x) * Tensor(np.arange(9, dtype=np.float32).reshape(3, 3))).sum().backward()
    theirs = dict(net.named_parameters())
    for name, parameter in back.named_parameters():
        close(parameter.grad.array, theirs[name].grad.array, 1e-4)


@pytest.mark.parametrize("order", [0, 1])
def test_the_places_of_maxima_are_onnx_runtimes(build, order):
    text = f"""(float[2,3,5,6] X) => (float[2,3,3,3] Y, int64[2,3,3,3] I) {{
        Y, I = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,0], storage_order={order}>(X)
    }}"""
    x = np.random.default_rng(3).integers(-4, 4, (2, 3, 5, 6)).astype(np.float32)
    agrees(build(text), {"X": x})


# Weights are inputs here, so that finite differences can move them.
GRADIENTS = {
    "Gemm": "(float[2,3] X, float[4,3] W, float[4] B) => (float[2,4] Y)"
    "{ Y = Gemm<alpha=0.5, beta=2.0, transB=1>(X, W, B) }",
    "Conv": "(float[1,2,6] X, float[4,2,3] W, float[4] B) => (float[1,4,3] Y)"
    "{ Y = Conv<strides=[2], pads=[1,0]>(X, W, B) }",
    "Conv in 3-D": "(float[1,2,3,2,3] X, float[2,1,2,1,2] W) => (float[1,2,2,2,2] Y)"
    "{ Y = Conv<group=2>(X, W) }",
    "ConvTranspose": "(float[1,4,3,2] X, float[4,2,2,3] W, float[4] B) => (float[1,4,7,4] Y)"
    "{ Y = ConvTranspose<strides=[2,1], output_padding=[1,0], group=2>(X, W, B) }",
    "ConvTranspose in 3-D": "(float[1,4,2,1,3] X, float[4,1,1,2,2] W) => (float[1,2,3,2,3] Y)"
    "{ Y = ConvTranspose<strides=[2,1,1], group=2, pads=[0,0,1,0,0,0]>(X, W) }",
    "AveragePool": "(float[1,2,5,5] X) => (float[1,2,3,3] Y)"
    "{ Y = AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1, pads=[0,1,1,0]>(X) }",
    "LpPool": "(float[1,2,5] X) => (float[1,2,4] Y) { Y = LpPool<kernel_shape=[2]>(X) }",
    "PRelu": "(float[3,4] X, float[4] W) => (float[3,4] Y) { Y = PRelu(X, W) }",
    "Gelu": "(float[3,4] X) => (float[3,4] Y) { Y = Gelu(X) }",
    "Mod": "(float[3,4] X, float[4] W) => (float[3,4] Y) { Y = Mod<fmod=1>(X, W) }",
    "LayerNormalization": "(float[3,4] X, float[4] W, float[4] B) => (float[3,4] Y)"
    "{ Y = LayerNormalization(X, W, B) }",
    "Einsum of a diagonal": "(float[3,2,3] X, float[3,2] W) => (float[2] Y)"
    '{ Y = Einsum<equation="iji,ij->j">(X, W) }',
    "Einsum": "(float[2,3,4] X, float[4,2] W) => (float[2,2] Y)"
    '{ Y = Einsum<equation="bij,jk->kb">(X, W) }',
    "Resize without aliases": "(float[1,1,6,8] X) => (float[1,1,3,3] Y)"
    "{ S = Constant<value_ints=[1,1,3,3]>()"
    ' Y = Resize<mode="linear", antialias=1>(X, "", "", S) }',
    "Resize": "(float[1,1,3,3] X) => (float[1,1,6,4] Y)"
    "{ S = Constant<value_floats=[1.0,1.0,2.0,1.5]>()"
    ' Y = Resize<mode="cubic">(X, "", S) }',
    "TopK": "(float[2,5] X) => (float[2,2] Y, int64[2,2] I)"
    "{ K = Constant<value_ints=[2]>() Y, I = TopK(X, K) }",
    "ScatterElements of products": "(float[2,5] X, float[2,3] U) => (float[2,5] Y)"
    "{ I = Constant<value=int64[2,3] {1, 3, 1, 0, 0, 0}>()"
    ' Y = ScatterElements<axis=1, reduction="mul">(X, I, U) }',
    "ScatterND of maxima": "(float[4,3] X, float[3,3] U) => (float[4,3] Y)"
    "{ I = Constant<value=int64[3,1] {2, 0, 2}>()"
    ' Y = ScatterND<reduction="max">(X, I, U) }',
    "ScatterElements": "(float[2,5] X, float[2,2] U) => (float[2,5] Y)"
    "{ I = Constant<value=int64[2,2] {1, 3, 0, 4}>() Y = ScatterElements<axis=1>(X, I, U) }",
    "ReduceProd": "(float[2,5] X) => (float[2,1] Y) { a = Constant<value_ints=[1]>()"
    " Y = ReduceProd(X, a) }",
    "ReduceLogSumExp": "(float[2,5] X) => (float[2,1] Y) { a = Constant<value_ints=[1]>()"
    " Y = ReduceLogSumExp(X, a) }",
    "LSTM": "(float[3,2,4] X, float[1,8,4] W, float[1,8,2] R, float[1,16] B)"
    " => (float[3,1,2,2] Y) { Y = LSTM<hidden_size=2>(X, W, R, B) }",
    "GRU": "(float[3,2,4] X, float[1,6,4] W, float[1,6,2] R, float[1,12] B)"
    " => (float[3,1,2,2] Y) { Y = GRU<hidden_size=2, linear_before_reset=1>(X, W, R, B) }",
    "RNN": "(float[3,2,4] X, float[2,2,4] W, float[2,2,2] R)"
    ' => (float[3,2,2,2] Y) { Y = RNN<hidden_size=2, direction="bidirectional">(X, W, R) }',
}


@pytest.mark.parametrize("name", sorted(GRADIENTS))
def test_gradients_equal_finite_differences(name, build):
    model = build(GRADIENTS[name], opset=20)
    module = load_module(model)
    rng = np.random.default_rng(3)
    inputs = [Tensor(rng.standard_normal(list(v.shape)), True) for v in model.graph.inputs]

    def first(*tensors: Tensor) -> Tensor:
        y = module(*tensors)
        return y[0] if isinstance(y, tuple) else y

    assert gradcheck(first, inputs)


SMOOTH_AT_0 = {
    "Elu": 1,
    "Celu": 1,
    "Softplus": 0.5,
    "Mish": 0.6,
    "Gelu": 0.5,
    "ReduceL2": 0,
    "LpNormalization": None,
}


@pytest.mark.parametrize("name", sorted(SMOOTH_AT_0))
def test_gradients_at_zero_are_finite_and_those_of_the_function(name, build):
    size = 1 if name == "ReduceL2" else 2
    module = load_module(build(f"(float[1,2] X) => (float[1,{size}] Y) {{ Y = {name}(X) }}", 20))
    x = Tensor(np.zeros((1, 2), np.float32), True)
    module(x).sum().backward()
    slope = SMOOTH_AT_0[name]
    assert np.isfinite(x.grad.array).all()
    if slope is not None:
        np.testing.assert_allclose(x.grad.array, slope, rtol=1e-6)


def test_one_step_of_training_lowers_the_loss_and_moves_the_statistics(net):
    back = load_module(exported(net, randn(2, 2, 6, 6)))
    x, target = randn(8, 2, 6, 6), Tensor(np.arange(8) % 3)
    mean = back.norm.running_mean.array.copy()
    optimizer = optim.SGD(back.parameters(), lr=0.1)
    back.train()
    before = F.cross_entropy(back(x), target)
    before.backward()
    optimizer.step()
    assert float(F.cross_entropy(back(x), target)) < float(before)
    assert (back.norm.running_mean.array != mean).all()


def test_a_copy_trains_apart_from_its_model(net):
    back = load_module(exported(net, randn(2, 2, 6, 6)))
    twin = copy.deepcopy(back)
    x = randn(2, 2, 6, 6)
    want = back(x).detach().array.copy()
    for parameter in twin.parameters():
        parameter.array[:] += 1
    assert (twin(x).detach().array != want).any()
    close(back(x).detach().array, want)


def test_numbers_integers_and_what_steers_an_operator_are_not_trained(build):
    text = """(float[2,3] X) => (float[3,2] Y) {
        A = Mul(X, half)
        B = Clip(A, low, high)
        C = Add(B, w)
        Y = Reshape(C, shape)
    }"""
    half, high = (np.float32(v) for v in (0.5, 1))
    low = np.array([-1], np.float32)  # with an axis, as some exporters write bounds
    weights = {"half": half, "low": low, "high": high, "shape": np.array([3, 2])}
    module = load_module(build(text, **weights, w=np.ones(3, np.float32)))
    assert [n for n, _ in module.named_parameters()] == ["w"]
    assert list(module.state_dict()) == ["w"]
    assert {n for n, _ in module.named_buffers()} == set(weights)


def test_names_that_a_module_cannot_have_are_changed_and_nothing_is_lost(build):
    names = ("forward", "a", "a.b", "a.b.c", "training", ".", "_parameters")
    operands = ", ".join(f"w{i}" for i in range(len(names)))
    text = f"(float[2] X) => (float[2] Y) {{ Y = Sum(X, {operands}) }}"
    weights = {f"w{i}": np.full(2, 10.0**i, np.float32) for i in range(len(names))}
    model = build(text, **weights)
    for i, name in enumerate(names):
        model.graph.initializers[f"w{i}"].name = name
    module = load_module(model)
    assert len(list(module.parameters())) == len(names)
    assert module(np.zeros(2, np.float32)).detach().tolist() == [1111111.0, 1111111.0]
    assert not module.training


def test_shape_arithmetic_follows_each_input(build, random_feeds):
    text = """(float[N,4,3] X) => (float[N,M] Y) {
        shape = Shape(X)
        batch = Gather(shape, zero)
        row = Unsqueeze(batch, axes)
        target = Concat<axis=0>(row, rest)
        Y = Reshape(X, target)
    }"""
    constants = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    model = build(text, **constants)
    for batch in (1, 5):
        agrees(model, random_feeds(model, np.random.default_rng(0), batch=batch))
    again = exported(load_module(model), randn(2, 4, 3))
    verify_export(again, load_module(model), randn(6, 4, 3))


def test_a_branch_is_taken_by_its_condition_and_a_loop_runs_its_steps(build):
    text = """(float[3] X, int64 n, bool c) => (float[3] Y, float[n,3] Z) {
        A = If (c) <
            then_branch = t () => (float[3] a) { a = Mul(X, w) },
            else_branch = e () => (float[3] b) { b = Add(X, w) }
        >
        Y, Z = Loop (n, c, A) <
            body = l (int64 i, bool k, float[3] s) => (bool o, float[3] r, float[3] q) {
                o = Identity(k)
                r = Add(s, X)
                q = Mul(r, w)
            }
        >
    }"""
    model = build(text, w=np.array([1, 2, 3], np.float32))
    x = np.array([1, -2, 3], np.float32)
    module = agrees(model, {"X": x, "n": np.array(3), "c": np.array(True)})
    y, _ = module(x, np.array(3), np.array(True))
    y.sum().backward()
    np.testing.assert_array_equal(module.w.grad.array, x)


def test_an_operator_that_onnx_defines_by_others_needs_no_row(build, random_feeds):
    text = "(float[3,4] X) => (float[3,4] Y) { Y = MeanVarianceNormalization<axes=[1]>(X) }"
    model = build(text)
    agrees(model, random_feeds(model, np.random.default_rng(0)))


def test_an_output_may_be_an_input_or_a_constant(build):
    text = "(float[2] X) => (float[2] X_, float[2] w) { X_ = Identity(X) }"
    module = load_module(build(text, w=np.ones(2, np.float32)))
    x, w = module(np.zeros(2, np.float32))
    assert (x.tolist(), w.tolist()) == ([0, 0], [1, 1])


REFUSALS = {
    "GridSample": (
        "(float[1,1,2,2] X, float[1,2,2,2] G) => (float[1,1,2,2] Y) { Y = GridSample(X, G) }",
        r"gridsample0 \(GridSample\): midge.core has no form of it; rewrite it with supported",
    ),
    "QuantizeLinear": (
        "(float[2] X) => (uint8[2] Y) { Y = QuantizeLinear(X, s) }",
        r"quantizelinear0 \(QuantizeLinear\): it rounds to codes, .*train it with midge.quant.qat",
    ),
    "Cast": (
        "(float[2] X) => (float[2] Y) { Z = Cast<to=16>(X)\n Y = Cast<to=1>(Z) }",
        r"cast0 \(Cast\): it makes bfloat16 tensors; use float32",
    ),
    "LSTM": (
        '(float[3,2,4] X) => (float[3,1,2,2] Y) { Y = LSTM<hidden_size=2, activations=["Affine", '
        '"Tanh", "Tanh"]>(X, W, R) }',
        r"lstm0 \(LSTM\): it has Affine; use relu, sigmoid",
    ),
    "BatchNormalization": (
        "(float[1,2,4] X) => (float[1,2,4] Y) "
        "{ Y = BatchNormalization<training_mode=1>(X, b, b, b, b) }",
        r"batchnormalization0 \(BatchNormalization\): it is in training mode; export the model",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_a_refusal_names_node_operator_and_remedy(name, build):
    text, message = REFUSALS[name]
    weights = {
        "s": np.float32(0.1),
        "b": np.ones(2, np.float32),
        "W": np.ones((1, 8, 4), np.float32),
        "R": np.ones((1, 8, 2), np.float32),
    }
    used = {k: v for k, v in weights.items() if f" {k}" in text.partition("{")[2]}
    with pytest.raises(UnsupportedError, match=message):
        load_module(build(text, opset=17, **used))


def test_a_wrong_call_says_what_is_needed(net):
    back = load_module(exported(net, randn(2, 2, 6, 6)))
    with pytest.raises(InputError, match="the module takes input; 2 inputs were given"):
        back(randn(1), randn(1))
    with pytest.raises(InputError, match=r"conv \(Conv\): conv2d: the input has 3 channels"):
        back(randn(2, 3, 6, 6))


def test_a_choice_by_value_cannot_be_traced(build):
    text = """(float[N,3] X) => (float[N,3] Y) {
        m = ReduceMax<keepdims=0>(X)
        c = Greater(m, zero)
        Y = If (c) <
            then_branch = t () => (float[N,3] a) { a = Identity(X) },
            else_branch = e () => (float[N,3] b) { b = Neg(X) }
        >
    }"""
    module = load_module(build(text, zero=np.float32(0)))
    with pytest.raises(InputError, match="would freeze it into the graph"):
        trace(module, randn(2, 3))


@pytest.mark.parametrize("name", MLPERF)
def test_real_files_equal_onnx_runtime_and_have_gradients(name):
    folder = os.environ.get("MIDGE_MODELS")
    if not folder:
        pytest.skip("MIDGE_MODELS is not set")
    path = Path(folder) / "mlperf_tiny" / f"{name}_fp32.onnx"
    module = midge.load_module(path)
    session = make_session(onnx.load(path), level="none")
    rng = np.random.default_rng(0)
    (shape,) = [[d if isinstance(d, int) else 2 for d in i.shape] for i in session.get_inputs()]
    x = rng.uniform(0, 0.1, shape).astype(np.float32)  # larger ones saturate a Softmax
    y = module(x)
    (want,) = run(session, dict(zip(module.input_names, [x], strict=True)))
    close(y.detach().array, want)
    y.sum().backward()
    missing = [n for n, p in module.named_parameters() if p.grad is None]
    assert not missing
