"""Float and partly float graphs become Plans that compute what ONNX Runtime computes."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.memory_check import Arena
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.plan import Dequantize, Quantize
from midge.convert.plan_float import (
    Conv2dF32,
    DynamicQuantize,
    FullyConnectedDynamic,
    FullyConnectedF32,
    UnaryF32,
)
from midge.core.errors import InputError, UnsupportedError

f32 = np.float32
TOLERANCE = 2e-5  # of the largest output: sums in another order, other mathematical libraries
RNG = np.random.default_rng(5)


def weights(*shape):
    return RNG.normal(0, 0.5, shape).astype(f32)


def steps(plan):
    return [type(op.params) for op in plan.ops]


@pytest.fixture
def same(random_feeds):
    """A function that lowers a model, compares executor, arena replay and ONNX Runtime."""

    def check(model, samples=3, scale=1.0, tolerance=TOLERANCE):
        plan = lower(model, name="net")
        place(plan)
        session = make_session(to_proto(model), level="none")
        rng = np.random.default_rng(3)
        for _ in range(samples):
            feeds = random_feeds(model, rng, batch=1, scale=scale)
            inputs = [feeds[plan.tensors[t].name] for t in plan.inputs]
            want = run(session, feeds)
            got = Executor(plan).run(inputs)
            replayed = Arena(plan).run(inputs)
            for a, b, c in zip(want, got, replayed, strict=True):
                assert a.shape == b.shape
                limit = tolerance * max(float(np.abs(a).max(initial=0)), 1e-6)
                np.testing.assert_allclose(b, a, rtol=0, atol=limit)
                np.testing.assert_array_equal(b, c)
        assert [plan.tensors[t].name for t in plan.outputs] == [v.name for v in model.graph.outputs]
        return plan

    return check


CHAINS = {
    "a network of images": (
        """(float[N,3,9,8] x) => (float[N,6] y)
        { a = Conv<pads=[1,1,1,1], strides=[2,1]>(x, w0, b0)
          b = Relu(a)
          c = Conv<group=8, pads=[1,1,1,1]>(b, w1)
          d = Sigmoid(c)
          e = Mul(c, d)
          f = Add(e, b)
          g = MaxPool<kernel_shape=[2,2], strides=[2,2]>(f)
          h = GlobalAveragePool(g)
          i = Flatten(h)
          j = Gemm<transB=1>(i, w2, b2)
          y = Softmax(j) }""",
        {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "w2": (6, 8), "b2": (6,)},
    ),
    "broadcasts of every kind": (
        """(float[N,4,5,6] x, float[N,4,1,1] s, float[6] v) => (float[N,4,5,6] y, float[N,4,5,6] z)
        { a = Conv<kernel_shape=[1,1]>(x, w)
          b = Mul(a, s)
          c = Add(b, v)
          d = Sub(k, c)
          e = Div(d, q)
          y = Max(e, v, x)
          z = Min(c, s) }""",
        {"w": (4, 4, 1, 1), "k": (5, 1), "q": (1, 4, 1, 1)},
    ),
    "products of activations": (
        """(float[N,3,7,4] x, float[N,3,4,5] t, float[5,5] u) => (float[N,3,7,5] y)
        { a = MatMul(x, t)
          p = Transpose<perm=[0,1,3,2]>(t)
          q = Transpose<perm=[0,1,3,2]>(p)
          r = MatMul(x, q)
          b = Add(a, r)
          y = MatMul(b, u) }""",
        {},
    ),
    "moves between layouts": (
        """(float[N,4,6,5] x) => (float[N,5,48] y, float[N,2,6,5] z)
        { a = Conv<pads=[1,1,1,1]>(x, w)
          b = Concat<axis=1>(a, x)
          c = Transpose<perm=[0,3,2,1]>(b)
          d = Reshape(c, shape)
          y = Tanh(d)
          p, z = Split<axis=1>(x, sizes) }""",
        {"w": (4, 4, 3, 3), "shape": [1, 5, 48], "sizes": [2, 2]},
    ),
    "pads, slices and a constant": (
        """(float[N,3,6,5] x) => (float[N,5,8,4] y)
        { a = Relu(x)
          b = Pad(a, pads, value)
          c = Slice(b, starts, ends, axes, back)
          y = Concat<axis=1>(c, k) }""",
        {
            "pads": [0, 0, 1, 0, 0, 0, 1, 2],
            "value": np.float32(-1.5).reshape(()),
            "starts": [6],
            "ends": [-100],
            "axes": [3],
            "back": [-2],
            "k": (1, 2, 8, 4),
        },
    ),
    "reductions": (
        """(float[N,3,4,5] x) =>
          (float[N,3,1,1] a, float[3] b, float[1,3,4] c, float[1,1,1,1] d, float[1,1,4,5] e)
        { a = ReduceMean<axes=[2,3]>(x)
          b = ReduceMax<axes=[0,2,3], keepdims=0>(x)
          c = ReduceL2<axes=[-1], keepdims=0>(x)
          d = ReduceSum(x)
          e = ReduceMin<axes=[1]>(x) }""",
        {},
    ),
    "normalizations": (
        """(float[N,4,5] x) => (float[N,4,5] y, float[N,4,5] z)
        { a = LayerNormalization<axis=-1>(x, s, b)
          y = LogSoftmax<axis=1>(a)
          c = LayerNormalization<axis=1>(x, t)
          z = BatchNormalization(c, m, m, mean, var) }""",
        {
            "s": (5,),
            "b": (5,),
            "t": (4, 5),
            "m": (4,),
            "mean": (4,),
            "var": np.abs(weights(4)) + f32(0.1),
        },
    ),
    "an average pool that counts": (
        """(float[N,3,6,7] x) => (float[N,3,3,4] y, float[N,3,3,3] z)
        { y = AveragePool<kernel_shape=[3,2], strides=[2,2], pads=[1,1,0,0], count_include_pad=1>(x)
          z = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,0,0,0], ceil_mode=1>(x) }""",
        {},
    ),
    "a convolution of sequences": (
        """(float[N,3,20] x) => (float[N,4] y)
        { a = Conv<pads=[2,0], dilations=[2], strides=[2]>(x, w, b)
          c = Clip(a, low, high)
          d = GlobalMaxPool(c)
          y = Squeeze(d, axes) }""",
        {
            "w": (4, 3, 3),
            "b": (4,),
            "low": np.float32(-0.5).reshape(()),
            "high": np.float32(0.5).reshape(()),
            "axes": [2],
        },
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_float_graph_gives_what_onnx_runtime_gives(name, build, same):
    text, given = CHAINS[name]
    constants = {
        k: weights(*v) if isinstance(v, tuple) else np.asarray(v) for k, v in given.items()
    }
    same(build(text, **constants))


FUNCTIONS = [
    *("Abs", "Ceil", "Celu", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish"),
    *("LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid"),
    *("Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu"),
]


def test_every_function_gives_what_onnx_runtime_gives(build, same):
    lines = [f"y{i} = {name}(p)" for i, name in enumerate(FUNCTIONS)]
    outputs = ", ".join(f"float[N,40] y{i}" for i in range(len(FUNCTIONS)))
    text = f"(float[N,40] x) => ({outputs}) {{ a = Abs(x) p = Add(a, k) {' '.join(lines)} }}"
    plan = same(build(text, opset=18, k=f32([0.1])))
    assert {p.params.kind for p in plan.ops if isinstance(p.params, UnaryF32)} >= {"erf", "mish"}


def test_powers_and_slopes_give_what_onnx_runtime_gives(build, same):
    text = """(float[N,5,4] x) => (float[N,5,4] a, float[N,5,4] b, float[N,5,4] c, float[N,5,4] d)
        { p = Abs(x)
          a = Pow(x, two)
          b = Pow(p, half)
          c = Pow(p, e)
          d = PRelu(x, slope) }"""
    constants = {"two": f32([2]), "half": f32([0.5]), "e": f32([1.3, 2, 0.1, -1])}
    plan = same(build(text, **constants, slope=weights(5, 1)))
    kinds = [op.params.kind for op in plan.ops]
    assert {"square", "sqrt", "pow", "prelu"} <= set(kinds)


def test_a_bound_behind_a_layer_becomes_its_limits(build, same):
    text = """(float[N,3,4,4] x) => (float[N,2,2,2] y)
        { a = Conv(x, w) b = Relu(a) c = Conv<kernel_shape=[1,1]>(b, v) y = Clip(c, low, high) }"""
    numbers = {"low": np.float32(-1).reshape(()), "high": np.float32(2).reshape(())}
    plan = same(build(text, w=weights(2, 3, 3, 3), v=weights(2, 2, 1, 1), **numbers))
    layers = [op.params for op in plan.ops if isinstance(op.params, Conv2dF32)]
    assert [p.limits.low for p in layers] == [0, -1]
    assert not any(isinstance(op.params, UnaryF32) for op in plan.ops)


def test_a_layer_that_others_read_keeps_its_values(build, same):
    text = """(float[N,3,4,4] x) => (float[N,2,2,2] y)
        { a = Conv(x, w) b = Relu(a) y = Mul(a, b) }"""
    plan = same(build(text, w=weights(2, 3, 3, 3)))
    assert steps(plan).count(UnaryF32) == 1


def test_elementwise_steps_work_in_place(build):
    text = "(float[N,1000] x) => (float[N,1000] y) { a = Tanh(x) b = Mul(a, k) y = Neg(b) }"
    plan = lower(build(text, k=weights(1000)), name="net")
    place(plan)
    assert plan.arena_bytes == 4000


def test_a_deep_graph_is_lowered_without_recursion(build):
    lines = "".join(f"v{i + 1} = {'Tanh' if i % 2 else 'Exp'}(v{i})\n" for i in range(1500))
    model = build(f"(float[N,2] v0) => (float[N,2] y) {{ {lines} y = Neg(v1500) }}")
    assert len(lower(model, name="net").ops) == 1501


def test_an_output_may_be_an_input_or_be_given_twice(build, same):
    same(
        build(
            "(float[N,3,2] x) => (float[N,3,2] y, float[N,2,3] z)"
            "{ y = Relu(x) z = Transpose<perm=[0,2,1]>(y) }"
        )
    )


def quantized_weight(builder, values, axis):
    """Codes, scale and zero-point of a weight, as keyword arguments named by a prefix."""
    scale = np.abs(values).max(axis=tuple(a for a in range(values.ndim) if a != axis)) / 127
    shape = [1] * values.ndim
    shape[axis] = -1
    codes = np.rint(values / scale.reshape(shape)).astype(np.int8)
    return {
        f"{builder}q": codes,
        f"{builder}s": scale.astype(f32),
        f"{builder}z": np.zeros(len(scale), np.int8),
    }


def test_int8_weights_stay_int8_under_float_arithmetic(build, same):
    text = """(float[N,3,5,5] x) => (float[N,6] y)
        { w = DequantizeLinear<axis=0>(wq, ws, wz)
          v = DequantizeLinear<axis=1>(vq, vs, vz)
          a = Conv(x, w) r = Relu(a) f = GlobalAveragePool(r) g = Flatten(f) y = MatMul(g, v) }"""
    constants = quantized_weight("w", weights(4, 3, 3, 3), 0)
    constants |= quantized_weight("v", weights(4, 6), 1)
    plan = same(build(text, **constants))
    layers = [op.params for op in plan.ops if isinstance(op.params, Conv2dF32 | FullyConnectedF32)]
    assert len(layers) == 2
    assert all(p.weight.dtype == np.int8 and p.scale is not None for p in layers)


def test_codes_that_no_int8_kernel_takes_become_float_weights(build, same):
    text = """(float[N,6] x) => (float[N,4] y) { w = DequantizeLinear(q, s, z) y = MatMul(x, w) }"""
    q = RNG.integers(0, 256, (6, 4)).astype(np.uint8)
    q[0, :2] = 0, 255
    plan = same(build(text, q=q, s=f32(0.01), z=np.uint8(3)))
    assert plan.ops[0].params.weight.dtype == f32


DYNAMIC = """(float[N,7] x) => (float[N,5] y, float[N,4] z)
    { q, s, zp = DynamicQuantizeLinear(x)
      p = MatMulInteger(q, w, zp)
      c = Cast<to=1>(p)
      f = Mul(ws, s)
      d = Mul(c, f)
      e = Add(b, d)
      y = Relu(e)
      p2 = MatMulInteger(q, v, zp)
      c2 = Cast<to=1>(p2)
      f2 = Mul(s, vs)
      z = Mul(c2, f2) }"""


def dynamic_model(build):
    # Small codes: without VNNI, ONNX Runtime's sums of two products saturate at 16 bits.
    codes = RNG.integers(-63, 64, (7, 9)).astype(np.int8)
    scale = RNG.uniform(0.001, 0.01, 5).astype(f32)
    constants = {"w": codes[:, :5], "ws": scale, "v": codes[:, 5:], "vs": f32(0.007)}
    return build(DYNAMIC, b=weights(5), **constants)


def test_dynamic_layers_share_the_codes_of_one_tensor(build, same):
    plan = same(dynamic_model(build))
    assert steps(plan).count(DynamicQuantize) == 1
    assert steps(plan).count(FullyConnectedDynamic) == 2
    assert [op.params.limits.low for op in plan.ops[1:]] == [0, -np.inf]


def test_dynamic_layers_give_the_bits_of_onnx_runtime(build, random_feeds):
    model = dynamic_model(build)
    plan = lower(model, name="net")
    session = make_session(to_proto(model), level="none")
    for seed, scale in ((1, 1.0), (2, 1e-3), (3, 100.0), (4, 0.0)):
        feeds = random_feeds(model, np.random.default_rng(seed), batch=1, scale=scale)
        for want, got in zip(run(session, feeds), Executor(plan).run([feeds["x"]]), strict=True):
            np.testing.assert_array_equal(got, want)


def test_samples_of_a_batch_have_their_own_ranges(build):
    plan = lower(dynamic_model(build), name="net")
    x = np.stack([weights(1, 7), 50 * weights(1, 7)])
    together = Executor(plan).run_batch([x])
    alone = [Executor(plan).run([s]) for s in x]
    for index, y in enumerate(together):
        np.testing.assert_array_equal(y, np.stack([a[index] for a in alone]))


MIXED = """(float[N,3,6,6] x) => (float[N,4,2,2] y)
    { a = QuantizeLinear(x, s, z)
      b = DequantizeLinear(a, s, z)
      c = Conv(b, w)
      d = Sigmoid(c)
      e = QuantizeLinear(d, t, z)
      f = DequantizeLinear(e, t, z)
      y = Conv(f, v) }"""


def mixed_model(build):
    numbers = {"s": f32(0.02), "t": f32(1 / 256), "z": np.uint8(0)}
    return build(
        MIXED,
        w=weights(4, 3, 3, 3),
        v=weights(4, 4, 3, 3),
        **{k: np.asarray(v) for k, v in numbers.items()},
    )


def test_a_mixed_graph_converts_at_its_seams(build, same):
    model = mixed_model(build)
    # A rounding error may select the neighbouring code, which weighs as much as quantization.
    plan = same(model, tolerance=0.02)
    assert [t for t in steps(plan) if t in (Quantize, Dequantize)] == [
        *(Quantize, Dequantize, Quantize, Dequantize)
    ]
    assert plan.notices[-1].startswith("3 operators are computed in float32: ")


REFUSED = {
    "(float[N,4] x) => (uint32[N,4] y) { z = Abs(x) y = Cast<to=12>(z) }": ("Cast", "UINT32"),
    "(float[N,4,4] x) => (float[N] y) { y = Det(x) }": ("Det", "rewrite it"),
    """(float[N,3] x, float[N,3] k) => (float[N,3] y)
    { z = Neg(k) l = ReduceMax<keepdims=0>(z) y = Clip(x, l) }""": ("Clip", "limits"),
    "(float[N,1,4,4] x, float[2,1,3,3] w) => (float[N,2,2,2] y) { y = Conv(x, w) }": (
        *("Conv", "no constant"),
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_float_form_is_refused_by_name(text, build):
    with pytest.raises(UnsupportedError) as caught:
        lower(build(text), name="net")
    assert all(word in str(caught.value) for word in REFUSED[text])


def test_an_input_of_another_type_is_refused(build):
    with pytest.raises(InputError, match="INT16"):
        lower(build("(int16[N,3] x) => (float[N,3] y) { y = Cast<to=1>(x) }"), name="net")


def test_a_model_given_as_floats_is_not_changed(build):
    text, given = CHAINS["a network of images"]
    model = build(text, **{k: weights(*v) for k, v in given.items()})
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    lower(model, name="net")
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    onnx.checker.check_model(to_proto(model))
