"""Identities, moves, pads, pools and activations: the small passes."""

import numpy as np
import pytest

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.passes.canonical_activations import CanonicalActivations
from midge.convert.passes.explicit_pads import ExplicitPads
from midge.convert.passes.fold_pads import FoldPads
from midge.convert.passes.global_pools import GlobalPools
from midge.convert.passes.merge_moves import MergeMoves
from midge.convert.passes.remove_identities import RemoveIdentities

rng = np.random.default_rng(8)


def f32(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize(
    "node",
    [
        "Identity(r)",
        "Dropout(r)",
        "Cast<to=1>(r)",
        "Pad(r, none)",
        "Transpose<perm=[0,1,2,3]>(r)",
        "MaxPool<kernel_shape=[1,1]>(r)",
        "AveragePool<kernel_shape=[1,1], strides=[1,1]>(r)",
        "Concat<axis=1>(r)",
        "Sum(r)",
        "Clip(r)",
        "Slice(r, start, end, axis)",
    ],
)
def test_a_node_that_changes_nothing_goes(build, apply, ops, node):
    model = build(
        f"(float[2,3,4,4] x) => (float[2,3,4,4] y) {{ r = Relu(x) i = {node} y = Abs(i) }}",
        none=np.zeros(8, np.int64),
        start=np.array([0]),
        end=np.array([2**62]),
        axis=np.array([1]),
    )
    apply(RemoveIdentities, model)
    assert ops(model) == ["Relu", "Abs"]


@pytest.mark.parametrize(
    "node",
    [
        "Cast<to=11>(r)",
        "Pad(r, some)",
        "MaxPool<kernel_shape=[1,1], strides=[2,2]>(r)",
        "Slice(r, start, end, axis)",
        "Reshape(r, other)",
    ],
)
def test_a_node_that_changes_something_stays(build, apply, ops, node):
    kind = "double" if "Cast" in node else "float"
    model = build(
        f"(float[2,3,4,4] x) => ({kind}[A,B,C,D] y) {{ r = Relu(x) i = {node} y = Abs(i) }}",
        some=np.array([0, 0, 0, 1, 0, 0, 0, 0]),
        start=np.array([1]),
        end=np.array([2]),
        axis=np.array([1]),
        other=np.array([2, 3, 2, 8]),
    )
    apply(RemoveIdentities, model)
    assert len(ops(model)) == 3


def test_inputs_of_a_concat_without_elements_are_left_out(build, apply, ops):
    model = build(
        """(float[2,6] x) => (float[2,6] y, float[2,7] z)
        { a = Slice(x, zero, six, one)
          e = Slice(x, six, far, one)
          n = Neg(a)
          y = Concat<axis=1>(n, e)
          f = Slice(x, zero, one, one)
          z = Concat<axis=1>(e, n, f) }""",
        zero=np.array([0]),
        one=np.array([1]),
        six=np.array([6]),
        far=np.array([99]),
    )
    assert apply(RemoveIdentities, model).modified
    assert [len(node.inputs) for node in model.graph if node.op_type == "Concat"] == [2]


def test_an_identity_between_input_and_output_stays(build, apply, ops):
    model = build("(float[2] x) => (float[2] y, float[2] z) { y = Identity(x) z = Identity(y) }")
    apply(RemoveIdentities, model)
    assert "Identity" in ops(model)


def test_a_reshape_of_the_batch_to_itself_goes(build, apply, ops):
    model = build(
        "(float[N,6] x) => (float[N,6] y) { r = Relu(x) i = Reshape(r, s) y = Abs(i) }",
        s=np.array([-1, 6]),
    )
    apply(RemoveIdentities, model)
    assert ops(model) == ["Relu", "Abs"]


def test_two_transposes_merge_and_the_first_stays_for_others(build, apply, ops):
    model = build(
        """(float[2,3,4] x) => (float[2,3,4] y, float[4,2,3] z) {
            t = Transpose<perm=[2,0,1]>(x) y = Transpose<perm=[1,2,0]>(t) z = Relu(t) }"""
    )
    apply(MergeMoves, model)
    assert g.attribute(model.graph[1], "perm") == (0, 1, 2)
    assert ops(model) == ["Transpose", "Transpose", "Relu"]


def test_a_chain_of_reshapes_becomes_the_last(build, apply, ops):
    model = build(
        """(float[N,2,6] x) => (float[N,4,3] y) {
            f = Flatten(x) u = Unsqueeze(f, a) y = Reshape(u, s) }""",
        a=np.array([1]),
        s=np.array([-1, 4, 3]),
    )
    apply(MergeMoves, model)
    assert ops(model) == ["Reshape"]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (3, 1), (2, 3), (5, 2)])
@pytest.mark.parametrize("size", [9, 10])
def test_auto_pad_of_a_conv_becomes_numbers(build, apply, mode, kernel, stride, size):
    model = build(
        f'(float[1,2,{size},{size}] x) => (float[1,3,H,W] y) {{ y = Conv<auto_pad="{mode}",'
        f"strides=[{stride},{stride}]>(x, w) }}",
        w=f32(3, 2, kernel, kernel),
    )
    apply(ExplicitPads, model)
    assert g.attribute(model.graph[0], "auto_pad") is None


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_auto_pad_of_a_pool_becomes_numbers(build, apply, mode, op):
    model = build(
        f'(float[1,2,9,8] x) => (float[1,2,H,W] y) {{ y = {op}<auto_pad="{mode}",'
        "kernel_shape=[4,3], strides=[2,2]>(x) }"
    )
    apply(ExplicitPads, model)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_auto_pad_of_a_conv_transpose_becomes_numbers(build, apply, mode, kernel):
    model = build(
        f'(float[1,2,5,5] x) => (float[1,3,H,W] y) {{ y = ConvTranspose<auto_pad="{mode}",'
        "strides=[2,2]>(x, w) }",
        w=f32(2, 3, kernel, kernel),
    )
    apply(ExplicitPads, model)


def test_a_dilated_window_is_padded_by_its_reach(build):
    model = build(
        "(float[1,2,9,9] x) => (float[1,3,H,W] y) { "
        'y = Conv<auto_pad="SAME_LOWER", dilations=[2,3]>(x, w) }',
        w=f32(3, 2, 3, 2),
    )
    ExplicitPads()(model)
    assert g.attribute(model.graph[0], "pads") == (2, 2, 2, 1)


def test_auto_pad_of_an_unknown_size_stays_with_a_reason(build):
    text = (
        '(float[1,2,H,W] x) => (float[1,2,A,B] y) {{ y = MaxPool<auto_pad="SAME_UPPER",'
        "kernel_shape=[3,3], strides=[{0},{0}]>(x) }}"
    )
    strided, plain = build(text.format(2)), build(text.format(1))
    assert "unknown size" in ExplicitPads()(strided).records[0].reason
    assert ExplicitPads()(plain).modified
    assert g.attribute(plain.graph[0], "pads") == (1, 1, 1, 1)


PADS = np.array([0, 0, 1, 2, 0, 0, 2, 1])


@pytest.mark.parametrize(
    ("before", "value", "behind", "folds"),
    [
        ("Neg", 0.0, "Conv(p, w)", True),
        ("Neg", 1.0, "Conv(p, w)", False),
        ("Neg", -np.inf, "MaxPool<kernel_shape=[3,3]>(p)", True),
        ("Neg", 0.0, "MaxPool<kernel_shape=[3,3]>(p)", False),
        ("Relu", 0.0, "MaxPool<kernel_shape=[3,3]>(p)", True),
        ("Relu", 0.0, "MaxPool<kernel_shape=[2,2]>(p)", False),
        ("Neg", 0.0, "AveragePool<kernel_shape=[3,3]>(p)", True),
        ("Neg", 0.0, "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(p)", False),
        (
            "Neg",
            0.0,
            "AveragePool<kernel_shape=[4,4], pads=[1,1,1,1], count_include_pad=1>(p)",
            True,
        ),
        ("Neg", 0.0, "AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(p)", False),
    ],
)
def test_a_pad_goes_where_the_next_node_pads_alike(build, apply, ops, before, value, behind, folds):
    model = build(
        f"(float[N,2,6,6] x) => (float[N,C,H,W] y) {{ r = {before}(x) p = Pad(r, pads, v) "
        f"y = {behind} }}",
        pads=PADS,
        v=np.float32(value),
        w=f32(3, 2, 3, 3),
    )
    apply(FoldPads, model)
    assert ("Pad" not in ops(model)) == folds


@pytest.mark.parametrize(
    "text",
    [
        "(float[N,3,4,5] x) => (float[N,3,1,1] y) { y = ReduceMean<axes=[2,3]>(x) }",
        "(float[N,3,4,5] x) => (float[N,3] y) { y = ReduceMean<axes=[-1,-2], keepdims=0>(x) }",
        "(float[N,3,7] x) => (float[N,3] y) { y = ReduceMean<axes=[2], keepdims=0>(x) }",
        "(float[N,4,5,3] x) => (float[N,3] y) { y = ReduceMean<axes=[1,2], keepdims=0>(x) }",
        "(float[N,4,5,3] x) => (float[N,1,1,3] y) { y = ReduceMean<axes=[1,2]>(x) }",
    ],
)
def test_a_mean_over_all_pixels_is_a_pool(build, apply, ops, text):
    model = build(text)
    apply(GlobalPools, model)
    assert "GlobalAveragePool" in ops(model)
    assert "ReduceMean" not in ops(model)


def test_other_means_stay(build, apply, ops):
    model = build("(float[N,3,4,5] x) => (float[N,3,1,5] y) { y = ReduceMean<axes=[2]>(x) }")
    apply(GlobalPools, model)
    assert ops(model) == ["ReduceMean"]


def test_bounds_are_spelt_one_way(build, apply, ops):
    model = build(
        """(float[N,3] x) => (float[N,3] y, float[N,3] z, float[N,3] u) {
            y = Max(x, zero) z = Min(six, x) u = Clip(x, zero) }""",
        zero=np.float32(0),
        six=np.float32(6),
    )
    apply(CanonicalActivations, model)
    assert ops(model) == ["Relu", "Clip", "Relu"]


def test_relu_and_min_become_one_clip(build, apply, ops):
    model = build(
        "(float[N,3] x) => (float[N,3] y) { r = Relu(x) y = Min(r, six) }", six=np.float32(6)
    )
    apply(CanonicalActivations, model)
    assert ops(model) == ["Clip"]


def test_a_relu_moves_before_a_pool_behind_a_conv(build, apply, ops):
    model = build(
        """(float[N,2,8,8] x) => (float[N,3,H,W] y) {
            c = Conv(x, w) p = MaxPool<kernel_shape=[2,2], pads=[1,1,1,1]>(c) y = Relu(p) }""",
        w=f32(3, 2, 3, 3),
    )
    apply(CanonicalActivations, model)
    assert ops(model) == ["Conv", "Relu", "MaxPool"]
    assert model.graph.outputs[0].name == "y"


def test_a_relu_stays_behind_a_pool_that_others_read(build, apply, ops):
    model = build(
        """(float[N,2,8,8] x) => (float[N,3,H,W] y, float[N,3,H,W] p) {
            c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) y = Relu(p) }""",
        w=f32(3, 2, 3, 3),
    )
    apply(CanonicalActivations, model)
    assert ops(model) == ["Conv", "MaxPool", "Relu"]


def test_clip_with_computed_limits_stays(build, apply):
    model = build(
        "(float[N,3] x, float top) => (float[N,3] y) { y = Clip(x, zero, top) }", zero=np.float32(0)
    )
    result = apply(CanonicalActivations, model)
    assert "limits" in result.records[0].reason


def test_canonicalize_is_idempotent(build, ops):
    model = build(
        """(float[N,8,8,3] x) => (float[N,5] y) {
            t = Transpose<perm=[0,3,1,2]>(x) p = Pad(t, pads) c = Conv(p, w) m = Mul(c, a)
            r = Relu(m) q = Min(r, six) g = ReduceMean<axes=[2,3], keepdims=0>(q)
            y = MatMul(g, v) }""",
        pads=PADS,
        w=f32(4, 3, 3, 3),
        a=f32(4, 1, 1),
        six=np.float32(6),
        v=f32(4, 5),
    )
    canonicalize(model)
    first = ops(model)
    assert first == ["Transpose", "Conv", "Clip", "GlobalAveragePool", "Flatten", "Gemm"]
    canonicalize(model)
    assert ops(model) == first
