"""Attention masks, by Add or by Where: finite, and the probabilities are what they were."""

import numpy as np
import pytest

from midge.convert.passes.clamp_masks import ClampMasks

CAUSAL = np.tri(5) == 0


@pytest.mark.parametrize("value", [-1e9, -np.inf, np.finfo(np.float32).min])
@pytest.mark.parametrize("operands", ["(hidden, value, x)", "(seen, x, value)"])
def test_a_where_before_a_softmax_becomes_an_add(build, apply, ops, operands, value):
    text = f"""(float[2,5,5] x) => (float[2,5,5] y)
        {{ w = Where{operands} y = Softmax<axis=-1>(w) }}"""
    given = {"hidden": CAUSAL} if "hidden" in operands else {"seen": ~CAUSAL}
    model = build(text, value=np.float32(value), **given)
    apply(ClampMasks, model)
    assert ops(model) == ["Add", "Softmax"]


@pytest.mark.parametrize(
    ("value", "hidden", "why"),
    [
        (0.0, CAUSAL, "it is no mask"),
        (-1e9, np.ones((5, 5), bool), "a row without any logit is uniform"),
    ],
)
def test_a_where_that_is_no_mask_stays(build, apply, ops, value, hidden, why):
    text = """(float[2,5,5] x) => (float[2,5,5] y)
        { w = Where(hidden, value, x) y = Softmax<axis=-1>(w) }"""
    model = build(text, value=np.float32(value), hidden=hidden)
    assert not apply(ClampMasks, model).modified, why


def test_a_where_that_somebody_else_reads_stays(build, apply, ops):
    text = """(float[2,5,5] x) => (float[2,5,5] y, float[2,5,5] w)
        { w = Where(hidden, value, x) y = Softmax<axis=-1>(w) }"""
    model = build(text, value=np.float32(-1e9), hidden=CAUSAL)
    assert not apply(ClampMasks, model).modified


def test_a_masked_attention_is_quantized_throughout(build, quantized):
    text = """(float[1,5,8] x) => (float[1,5,8] y)
        { k = Transpose<perm=[0,2,1]>(x) s = MatMul(x, k) w = Where(hidden, value, s)
          p = Softmax<axis=-1>(w) y = MatMul(p, x) }"""
    model = build(text, value=np.float32(-1e9), hidden=CAUSAL)
    result, _ = quantized(model)
    assert {c.state for c in result.coverage} == {"quantized"}
