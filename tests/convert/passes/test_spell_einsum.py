"""Einsum, as exporters write it, against ONNX Runtime before and after."""

import numpy as np
import pytest

from midge.convert.passes.spell_einsum import SpellEinsum

SHAPES = {
    "ij,jk->ik": ([3, 4], [4, 5]),
    "bij,bjk->bik": ([2, 3, 4], [2, 4, 5]),
    "bhid,bhjd->bhij": ([2, 3, 4, 5], [2, 3, 6, 5]),
    "bhij,bhjd->bhid": ([2, 3, 4, 6], [2, 3, 6, 5]),
    "nkctv,kvw->nctw": ([2, 3, 4, 5, 6], [3, 6, 7]),
    "bchw,bkc->bkhw": ([2, 3, 4, 5], [2, 6, 3]),
    "i,j->ij": ([3], [4]),
    "bi,i->b": ([2, 3], [3]),
    "bi,bi->b": ([2, 3], [2, 3]),
    "bi,bi->bi": ([2, 3], [2, 3]),
    "ijk,l->lik": ([2, 3, 4], [5]),
    "ij,jk": ([3, 4], [4, 5]),
    " i j , j k -> k i": ([3, 4], [4, 5]),
    "bij->bji": ([2, 3, 4],),
    "bij->b": ([2, 3, 4],),
    "bij->bij": ([2, 3, 4],),
}


def einsum(build, equation, shapes):
    inputs = ", ".join(f"float[{','.join(map(str, shape))}] x{i}" for i, shape in enumerate(shapes))
    left, _, result = equation.replace(" ", "").partition("->")
    sizes = dict(zip(left.replace(",", ""), [d for s in shapes for d in s], strict=True))
    result = result if "->" in equation else "ik"
    output = ",".join(str(sizes[c]) for c in result if c != ".")
    names = ", ".join(f"x{i}" for i in range(len(shapes)))
    return build(
        f'({inputs}) => (float[{output}] y) {{ y = Einsum<equation="{equation}">({names}) }}'
    )


@pytest.mark.parametrize("equation", SHAPES)
def test_an_einsum_becomes_products_and_moves(build, apply, ops, equation):
    model = einsum(build, equation, SHAPES[equation])
    apply(SpellEinsum, model)
    assert set(ops(model)) <= {"MatMul", "Transpose", "Reshape", "ReduceSum", "Identity"}
    assert ops(model).count("MatMul") == len(SHAPES[equation]) - 1


def test_an_unknown_batch_stays_unknown(build, apply, ops):
    text = """(float[N,3,4] a, float[N,4,5] b) => (float[N,3,5] y)
        { y = Einsum<equation="nij,njk->nik">(a, b) }"""
    apply(SpellEinsum, model := build(text))
    assert ops(model) == ["MatMul"]


@pytest.mark.parametrize(
    ("equation", "shapes", "made", "why"),
    [
        ("...ij,...jk->...ik", ([2, 3, 4], [2, 4, 5]), "2,3,5", "ellipsis"),
        ("ii->i", ([3, 3],), "3", "diagonal"),
        ("i,i,i->i", ([3], [3], [3]), "3", "3 operands"),
        ("ij,jk->ik", ([3, 1], [4, 5]), "3,5", "repeated from 1"),
    ],
)
def test_another_einsum_stays_and_says_why(build, equation, shapes, made, why):
    inputs = ", ".join(f"float[{','.join(map(str, s))}] x{i}" for i, s in enumerate(shapes))
    names = ", ".join(f"x{i}" for i in range(len(shapes)))
    model = build(
        f'({inputs}) => (float[{made}] y) {{ y = Einsum<equation="{equation}">({names}) }}'
    )
    result = SpellEinsum()(model)
    assert not result.modified
    assert why in result.records[0].reason


def test_attention_by_einsum_is_quantized_like_any_other(build, quantized):
    text = """(float[1,6,2,4] q) => (float[1,6,2,4] y) {
        s = Einsum<equation="bihd,bjhd->bhij">(q, q) p = Softmax<axis=-1>(s)
        y = Einsum<equation="bhij,bjhd->bihd">(p, q) }"""
    result, sqnr = quantized(build(text))
    assert {c.state for c in result.coverage} == {"quantized"}
    assert sqnr > 25
    assert not np.isnan(sqnr)
