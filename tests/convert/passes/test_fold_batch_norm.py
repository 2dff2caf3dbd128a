"""fold_batch_norm: every way that a scale and shift can go, and what must stay."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert.passes.fold_batch_norm import FoldBatchNorm

rng = np.random.default_rng(5)


def f32(*shape, low=-1.0, high=1.0):
    return rng.uniform(low, high, shape).astype(np.float32)


def norm(channels, name=""):
    return {
        f"gamma{name}": f32(channels, low=0.5, high=1.5),
        f"beta{name}": f32(channels),
        f"mean{name}": f32(channels),
        f"var{name}": f32(channels, low=0.3, high=1.5),
    }


BN = "BatchNormalization({}, gamma, beta, mean, var)"


def test_a_norm_goes_back_into_the_conv(build, apply, ops):
    model = build(
        "(float[N,3,6,6] x) => (float[N,4,H,W] y) { c = Conv(x, w, b) y = " + BN.format("c") + " }",
        w=f32(4, 3, 3, 3),
        b=f32(4),
        **norm(4),
    )
    result = apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv"]
    assert [(r.op_type, r.state, r.reason) for r in result.records] == [
        ("BatchNormalization", "folded", "into conv0")
    ]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_norm_goes_back_into_a_grouped_conv_transpose(build, apply, ops, groups):
    model = build(
        f"(float[N,4,5,5] x) => (float[N,8,H,W] y) {{ c = ConvTranspose<group={groups},"
        "strides=[2,2]>(x, w) y = " + BN.format("c") + " }",
        w=f32(4, 8 // groups, 3, 3),
        **norm(8),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["ConvTranspose"]


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_norm_goes_back_into_a_gemm(build, apply, ops, transposed):
    w = f32(5, 4)
    model = build(
        f"(float[N,5] x) => (float[N,4] y) {{ c = Gemm<transB={transposed}>(x, w) y = "
        + BN.format("c")
        + " }",
        w=w.T.copy() if transposed else w,
        **norm(4),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Gemm"]


def test_a_chain_of_arithmetic_folds_like_a_norm(build, apply, ops):
    model = build(
        """(float[N,3,6,6] x) => (float[N,4,H,W] y) {
            c = Conv(x, w) s = Sub(c, mean) d = Div(s, std) m = Mul(two, d) y = Add(m, beta) }""",
        w=f32(4, 3, 3, 3),
        mean=f32(4, 1, 1),
        std=f32(1, 4, 1, 1, low=0.5),
        two=np.float32(2),
        beta=f32(4, 1, 1),
    )
    result = apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv"]
    assert {r.op_type for r in result.records} == {"Sub", "Div", "Mul", "Add"}


def test_a_constant_minus_the_output_negates_the_weight(build, apply, ops):
    model = build(
        "(float[N,5] x) => (float[N,4] y) { c = Gemm(x, w) n = Neg(c) y = Sub(one, n) }",
        w=f32(5, 4),
        one=f32(4),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Gemm"]


def test_a_shift_along_the_width_is_not_taken_for_channels(build, apply, ops):
    model = build(
        "(float[N,3,4,4] x) => (float[N,4,4,4] y) { c = Conv(x, w) y = Add(c, b) }",
        w=f32(4, 3, 1, 1),
        b=f32(4),
    )
    result = apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Add"]
    assert "another axis" in result.records[0].reason


def test_a_norm_behind_a_relu_goes_forward_into_the_next_conv(build, apply, ops):
    model = build(
        "(float[N,3,8,8] x) => (float[N,5,H,W] y) { c = Conv(x, w) r = Relu(c) n = "
        + BN.format("r")
        + " y = Conv(n, v) }",
        w=f32(4, 3, 3, 3),
        v=f32(5, 4, 3, 3),
        **norm(4),
    )
    result = apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Relu", "Conv"]
    assert result.records[0].reason == "into conv3"


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_forward_folding_respects_groups(build, apply, ops, groups):
    model = build(
        f"(float[N,4,8,8] x) => (float[N,8,H,W] y) {{ n = {BN.format('x')} "
        f"y = Conv<group={groups}>(n, v, b) }}",
        v=f32(8, 4 // groups, 3, 3),
        b=f32(8),
        **norm(4),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv"]


def test_a_norm_before_a_padded_conv_keeps_the_borders(build, apply, ops):
    model = build(
        "(float[N,4,8,8] x) => (float[N,5,8,8] y) { n = "
        + BN.format("x")
        + " y = Conv<pads=[1,1,1,1]>(n, v) }",
        v=f32(5, 4, 3, 3),
        **norm(4),
    )
    result = apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Conv"]
    assert "borders" in result.records[0].reason


def test_a_scale_before_a_padded_conv_folds(build, apply, ops):
    model = build(
        """(float[N,4,8,8] x) => (float[N,5,8,8] y) {
            n = Mul(x, a) y = Conv<pads=[1,1,1,1]>(n, v) }""",
        v=f32(5, 4, 3, 3),
        a=f32(4, 1, 1),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv"]


def test_a_scale_forward_into_a_conv_transpose_folds(build, apply, ops):
    model = build(
        """(float[N,4,5,5] x) => (float[N,6,H,W] y) {
            n = Mul(x, a) y = ConvTranspose<group=2, strides=[2,2]>(n, v) }""",
        v=f32(4, 3, 3, 3),
        a=f32(4, 1, 1),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["ConvTranspose"]


def test_a_norm_at_the_end_behind_a_relu_becomes_a_depthwise_conv(build, apply, ops):
    model = build(
        "(float[N,3,8,8] x) => (float[N,4,H,W] y) { c = Conv(x, w) r = Relu(c) y = "
        + BN.format("r")
        + " }",
        w=f32(4, 3, 3, 3),
        **norm(4),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Relu", "Conv"]


@pytest.mark.parametrize("shape", ["N,4", "N,4,9", "N,4,5,5"])
def test_a_norm_alone_becomes_a_depthwise_conv_of_any_rank(build, apply, ops, shape):
    model = build(f"(float[{shape}] x) => (float[{shape}] y) {{ y = {BN.format('x')} }}", **norm(4))
    apply(FoldBatchNorm, model)
    assert "Conv" in ops(model)
    assert "BatchNormalization" not in ops(model)


def test_a_conv_that_a_skip_reads_too_is_not_scaled(build, apply, ops):
    model = build(
        "(float[N,3,8,8] x) => (float[N,4,H,W] y) { c = Conv(x, w) n = "
        + BN.format("c")
        + " y = Add(c, n) }",
        w=f32(4, 3, 3, 3),
        **norm(4),
    )
    result = apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Conv", "Add"]
    assert "another consumer" in result.records[0].reason


def test_a_conv_whose_output_is_also_a_graph_output_is_not_scaled(build, apply, ops):
    model = build(
        "(float[N,3,8,8] x) => (float[N,4,H,W] c, float[N,4,H,W] y) { c = Conv(x, w) y = "
        + BN.format("c")
        + " }",
        w=f32(4, 3, 3, 3),
        **norm(4),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Conv"]


def test_a_shared_weight_is_folded_twice_into_two_copies(build, apply, ops):
    model = build(
        "(float[N,3,8,8] x) => (float[N,4,H,W] y, float[N,4,H,W] z) { c = Conv(x, w) y = "
        + BN.format("c")
        + " r = Relu(x) e = Conv(r, w) "
        "z = BatchNormalization(e, gamma2, beta2, mean2, var2) }",
        w=f32(4, 3, 3, 3),
        **norm(4),
        **norm(4, "2"),
    )
    apply(FoldBatchNorm, model)
    assert sorted(ops(model)) == ["Conv", "Conv", "Relu"]


def test_a_norm_that_two_convs_read_goes_into_both(build, apply, ops):
    model = build(
        "(float[N,4,8,8] x) => (float[N,4,H,W] y, float[N,5,H,W] z) { n = "
        + BN.format("x")
        + " y = Conv(n, w) z = Conv(n, v) }",
        w=f32(4, 4, 3, 3),
        v=f32(5, 4, 1, 1),
        **norm(4),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Conv"]


def test_gamma_zero_and_negative_and_a_tiny_variance_fold_in_float64(build, apply, ops):
    n = norm(4)
    n["gamma"][:3] = -1.2, 0.0, 0.9
    n["var"][2], n["mean"][2] = 1e-12, 1e-4
    w = f32(4, 3, 3, 3)
    w[2] *= 3e-3
    model = build(
        "(float[N,3,8,8] x) => (float[N,4,H,W] y) { c = Conv(x, w) y = " + BN.format("c") + " }",
        w=w,
        **n,
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv"]
    bias = model.graph[0].inputs[2].const_value.numpy()
    assert bias[1] == n["beta"][1]


def test_a_matmul_takes_a_scale_but_no_shift(build, apply, ops):
    text = "(float[N,6,5] x) => (float[N,6,4] y) {{ c = MatMul(x, w) y = {}(c, a) }}"
    scaled = build(text.format("Mul"), w=f32(5, 4), a=f32(4))
    shifted = build(text.format("Add"), w=f32(5, 4), a=f32(4))
    apply(FoldBatchNorm, scaled)
    result = apply(FoldBatchNorm, shifted)
    assert ops(scaled) == ["MatMul"]
    assert ops(shifted) == ["MatMul", "Add"]
    assert "has no bias" in result.records[0].reason


def test_a_weight_that_is_an_input_keeps_its_norm_as_a_conv(build, apply, ops):
    model = build(
        "(float[N,3,8,8] x, float[4,3,3,3] w) => (float[N,4,6,6] y) { c = Conv(x, w) y = "
        + BN.format("c")
        + " }",
        **norm(4),
    )
    apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Conv"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["Mul", "Add", "Sub", "Div"]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, layer=st.sampled_from(["conv", "gemm"]), before=st.booleans())
def test_any_chain_before_or_behind_any_layer_computes_the_same(build, agree, steps, layer, before):
    shape, dims = ((4, 1, 1), "4,5,5") if layer == "conv" else ((4,), "4")
    weights = {"w": f32(4, 4, 1, 1) if layer == "conv" else f32(4, 4)}
    call = "Conv({}, w)" if layer == "conv" else "Gemm({}, w)"
    names = (f"t{i}" for i in itertools.count())
    lines, current = [], "x"

    def chain():
        nonlocal current
        for index, (op, per_channel, swapped) in enumerate(steps):
            name = next(names)
            weights[f"k{name}"] = f32(*(shape if per_channel else ()), low=0.5, high=2)
            pair = [current, f"k{name}"]
            if swapped and op in ("Mul", "Add", "Sub") and index:
                pair.reverse()
            lines.append(f"{name} = {op}({', '.join(pair)})")
            current = name

    if before:
        chain()
    lines.append(f"l = {call.format(current)}")
    current = "l"
    if not before:
        chain()
    lines.append(f"y = Relu({current})")
    text = f"(float[N,{dims}] x) => (float[N,{dims}] y) {{ {' '.join(lines)} }}"
    model = build(text, **weights)
    original = model.clone()
    FoldBatchNorm()(model)
    assert [n.op_type for n in model.graph] == ["Conv" if layer == "conv" else "Gemm", "Relu"]
    agree(original, model)


CONCAT = """(float[1,3,6,6] x) => (float[1,7,4,4] y) {
    a = Conv(x, v) b = Conv(x, w) c = Concat<axis=1>(a, b) n = BatchNormalization(c, s, t, m, z)
    y = Relu(n) }"""


def parameters(channels):
    given = np.random.default_rng(6)
    spread = given.uniform(0.5, 2, channels)
    named = {"s": given.normal(size=channels), "t": given.normal(size=channels)}
    named |= {"m": given.normal(size=channels), "z": spread}
    named |= {"v": given.normal(size=(4, 3, 3, 3)), "w": given.normal(size=(3, 3, 3, 3))}
    return {name: array.astype(np.float32) for name, array in named.items()}


def test_behind_a_concat_it_goes_into_every_layer_before(build, apply, ops):
    model = build(CONCAT, **parameters(7))
    result = apply(FoldBatchNorm, model)
    assert ops(model) == ["Conv", "Conv", "Concat", "Relu"]
    assert [r.reason for r in result.records] == ["into conv0, conv1"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("b = Conv(x, w)", "k = Conv(x, w) b = Relu(k)"), "no layer comes right before"),
        (("y = Relu(n)", "k = Slice(c, r, e, i) y = Concat<axis=1>(n, k)"), "another consumer"),
    ],
)
def test_behind_a_concat_it_goes_into_all_layers_or_none(build, apply, ops, change, reason):
    more = (
        {"r": np.array([0]), "e": np.array([2]), "i": np.array([1])} if "Slice" in change[1] else {}
    )
    text = CONCAT.replace(*change)
    text = text.replace("[1,7,4,4] y", "[1,9,4,4] y") if more else text
    result = apply(FoldBatchNorm, build(text, **parameters(7), **more))
    assert reason in result.records[0].reason
