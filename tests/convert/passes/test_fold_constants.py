"""fold_constants: what is known is computed, and nothing that depends on an input is."""

import numpy as np

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.passes.fold_constants import FoldConstants
from midge.convert.passes.remove_dead import RemoveDead

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_a_weight_behind_transpose_identity_and_reshape_folds(build, apply, ops):
    model = build(
        """(float[N,4] x) => (float[N,3] y) {
            s = Constant<value = int64[2] {4, 3}>() t = Transpose<perm=[1,0]>(w) i = Identity(t)
            r = Reshape(i, s) y = MatMul(x, r) }""",
        w=W,
    )
    apply(FoldConstants, model)
    RemoveDead()(model)
    assert ops(model) == ["MatMul"]
    np.testing.assert_array_equal(g.constant(model.graph[0].inputs[1]), W.T)


def test_a_reshape_to_a_computed_batch_gets_minus_one(build, agree, ops):
    model = build(
        """(float[N,4,3,1] x) => (float[N,K] y) {
            s = Shape(x) zero = Constant<value_int = 0>() n = Gather(s, zero)
            axis = Constant<value_ints = [0]>() u = Unsqueeze(n, axis)
            rest = Constant<value_ints = [-1]>() t = Concat<axis=0>(u, rest) y = Reshape(x, t) }"""
    )
    before = model.clone()
    canonicalize(model)
    assert ops(model) == ["Reshape"]
    assert g.constant(model.graph[0].inputs[1]).tolist() == [-1, 12]
    agree(before, model)


def test_pads_computed_from_a_shape_fold(build, agree, ops):
    model = build(
        """(float[N,2,4,4] x) => (float[N,C,4,4] y) {
            n = Constant<value_ints = [6]>() z = ConstantOfShape<value = int64[1] {0}>(n)
            two = Constant<value_ints = [0, 1]>() p = Concat<axis=0>(two, z) y = Pad(x, p) }"""
    )
    before = model.clone()
    canonicalize(model)
    assert ops(model) == ["Pad"]
    agree(before, model)


def test_a_shape_of_unknown_size_stays(build, ops):
    model = build(
        """(float[N,4,H] x) => (float[A,B] y) {
            s = Shape(x) one = Constant<value_ints = [1]>() h = Gather(s, one)
            rest = Constant<value_ints = [-1]>() t = Concat<axis=0>(rest, h) y = Reshape(x, t) }"""
    )
    FoldConstants()(model)
    assert ops(model)[-1] == "Reshape"
    assert "Shape" in ops(model)


def test_random_numbers_are_not_folded(build, ops):
    model = build(
        """(float[4] x) => (float[4] y) {
            r = RandomUniform<shape = [4]>() s = RandomUniformLike(w) t = Add(r, s)
            y = Add(x, t) }""",
        w=np.zeros(4, np.float32),
    )
    FoldConstants()(model)
    assert ops(model) == ["RandomUniform", "RandomUniformLike", "Add", "Add"]


def test_a_constant_that_is_an_output_keeps_its_node(build, apply):
    model = build(
        "(float[3,4] x) => (float[4,3] y, float[3,4] z) { y = Transpose(w) z = Relu(x) }", w=W
    )
    apply(FoldConstants, model)


def test_a_constant_node_may_be_an_output(build, apply, ops):
    model = build(
        """(float[3] x) => (float[3] y, float[1] z) {
            y = Relu(x) z = Constant<value_floats=[2.0]>() }"""
    )
    apply(FoldConstants, model)
    assert sorted(ops(model)) == ["Constant", "Relu"]


def test_an_output_of_constants_is_a_copy_of_its_value(build, apply, ops):
    model = build(
        "(float[3] x) => (float[3] y, float[4,3] z) { y = Relu(x) t = Transpose(w) z = Neg(t) }",
        w=W,
    )
    apply(FoldConstants, model)
    RemoveDead()(model)
    assert sorted(ops(model)) == ["Identity", "Relu"]


def test_a_tensor_without_elements_is_a_constant(build, agree, ops):
    text = """(float[2,4] x) => (float[2,4] y, float[2] z) {
        e = Slice(x, zero, zero, one) y = Concat<axis=1>(e, x) z = ReduceSum<keepdims=0>(e, one)
    }"""
    model = build(text, zero=np.array([0]), one=np.array([1]))
    before = model.clone()
    canonicalize(model)
    assert sorted(ops(model)) == ["Concat", "Identity"], "the names of x and y are both taken"
    agree(before, model)


def test_a_size_of_0_of_an_input_is_not_taken_at_its_word(build, ops):
    model = build("(float[0,4] x) => (float[0,4] y) { a = Relu(x) y = Neg(a) }")
    FoldConstants()(model)
    assert ops(model) == ["Relu", "Neg"]


def test_a_huge_expansion_is_not_stored(build, ops):
    model = build(
        """(float[1] x) => (float[1000,1000] y) {
            s = Constant<value_ints = [1000, 1000]>() z = ConstantOfShape(s) y = Add(x, z) }"""
    )
    FoldConstants()(model)
    assert "ConstantOfShape" in ops(model)
