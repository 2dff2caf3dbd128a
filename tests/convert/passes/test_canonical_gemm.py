"""canonical_gemm: every spelling of a product and a bias ends as one form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.passes.canonical_gemm import CanonicalGemm

rng = np.random.default_rng(6)


def f32(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 8), (8,)])
def test_a_bias_of_any_shape_becomes_a_vector(build, apply, ops, shape):
    model = build(
        "(float[5,16] x) => (float[5,8] y) { y = Gemm(x, w, b) }", w=f32(16, 8), b=f32(*shape)
    )
    apply(CanonicalGemm, model)
    assert ops(model) == ["Gemm"]
    assert g.constant(model.graph[0].inputs[2]).shape == (8,)


@pytest.mark.parametrize("shape", [(5, 8), (5, 1)])
def test_a_bias_that_differs_by_row_becomes_an_add(build, apply, ops, shape):
    model = build(
        "(float[5,16] x) => (float[5,8] y) { y = Gemm<beta=0.5>(x, w, b) }",
        w=f32(16, 8),
        b=f32(*shape),
    )
    apply(CanonicalGemm, model)
    assert ops(model) == ["Gemm", "Add"]


def test_rows_that_are_all_equal_become_a_vector(build, apply, ops):
    model = build(
        "(float[5,16] x) => (float[5,8] y) { y = Gemm(x, w, b) }",
        w=f32(16, 8),
        b=np.tile(f32(8), (5, 1)),
    )
    apply(CanonicalGemm, model)
    assert ops(model) == ["Gemm"]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([0.5, 1.0, -2.0]),
    st.sampled_from([1.0, 2.0, 0.0]),
    st.booleans(),
    st.booleans(),
)
def test_alpha_beta_and_transposes_never_change_a_value(
    build, agree, alpha, beta, trans_a, trans_b
):
    shape = "16,5" if trans_a else "5,16"
    model = build(
        f"(float[{shape}] x) => (float[5,8] y) {{ y = Gemm<alpha={alpha}, beta={beta}, "
        f"transA={int(trans_a)}, transB={int(trans_b)}>(x, w, b) }}",
        w=f32(*((8, 16) if trans_b else (16, 8))),
        b=f32(8),
    )
    before = model.clone()
    CanonicalGemm()(model)
    gemm = model.graph[-1]
    assert {k: g.attribute(gemm, k) for k in ("alpha", "beta", "transA")} == dict.fromkeys(
        ("alpha", "beta", "transA")
    )
    agree(before, model)


def test_a_bias_that_is_computed_is_left_with_a_reason(build, apply):
    model = build(
        "(float[5,16] x, float[8] b) => (float[5,8] y) { y = Gemm<beta=2.0>(x, w, b) }",
        w=f32(16, 8),
    )
    result = apply(CanonicalGemm, model)
    assert [r.reason for r in result.records] == ["its bias is no constant"]
    assert g.attribute(model.graph[0], "beta") == 2


def test_matmul_and_add_become_one_gemm(build, agree, ops):
    model = build(
        "(float[N,16] x) => (float[N,8] y) { m = MatMul(x, w) y = Add(b, m) }",
        w=f32(16, 8),
        b=f32(8),
    )
    before = model.clone()
    canonicalize(model)
    assert ops(model) == ["Gemm"]
    agree(before, model)


def test_a_matmul_over_a_sequence_with_a_bias_runs_as_rows(build, agree, ops):
    model = build(
        "(float[N,7,16] x) => (float[N,7,8] y) { m = MatMul(x, w) y = Add(m, b) }",
        w=f32(16, 8),
        b=f32(8),
    )
    before = model.clone()
    canonicalize(model)
    assert ops(model) == ["Reshape", "Gemm", "Reshape"]
    agree(before, model)


def test_a_matmul_of_two_activations_stays(build, apply, ops):
    model = build("(float[N,4,5] x, float[N,5,4] z) => (float[N,4,4] y) { y = MatMul(x, z) }")
    apply(CanonicalGemm, model)
    assert ops(model) == ["MatMul"]
