"""If: a known condition chooses the branch, a computed one stays, and its body never reads a DQ."""

import numpy as np
import pytest

from midge.convert.canonical import canonicalize
from midge.convert.passes.resolve_ifs import ResolveIfs

rng = np.random.default_rng(3)
W = rng.standard_normal((4, 4)).astype(np.float32)
BODY = """
    y = If (c) <
        then_branch = t () => (float[2,4] p) { q = MatMul(r, w) p = Relu(q) },
        else_branch = e () => (float[2,4] p) { q = Neg(r) p = Abs(q) }
    >"""
NET = f"(float[2,4] x) => (float[2,4] y, float[2,4] z) {{ r = MatMul(x, w) z = Neg(r) {BODY} }}"


@pytest.mark.parametrize(("taken", "branch"), [(True, ["MatMul", "Relu"]), (False, ["Neg", "Abs"])])
def test_the_branch_of_a_known_condition_takes_the_place_of_the_if(
    build, apply, ops, taken, branch
):
    model = build(NET, w=W, c=np.array(taken))
    result = apply(ResolveIfs, model)
    assert ops(model) == ["MatMul", "Neg", *branch, "Identity"]
    assert [r.reason for r in result.records] == [f"its condition is always {str(taken).lower()}"]
    canonicalize(model)
    assert "Identity" not in ops(model)


def test_names_that_two_branches_share_stay_unique(build, apply):
    again = BODY.replace("y = If", "s = If")
    model = build(NET.replace("z = Neg(r)", f"{again} z = Neg(s)"), w=W, c=np.array([True]))
    apply(ResolveIfs, model)
    names = [v.name for n in model.graph for v in n.outputs]
    assert len(names) == len(set(names))


def test_a_computed_condition_stays_and_the_quantized_file_loads(build, quantized):
    text = NET.replace("z = Neg(r)", "z = Neg(r) n = ReduceSum<keepdims=0>(x) c = Less(n, zero)")
    model = build(text, w=W, zero=np.float32(0))
    result = ResolveIfs()(model)
    assert [r.reason for r in result.records] == ["its condition is computed"]
    graph, sqnr = quantized(model)
    assert sqnr > 30
    assert [c.state for c in graph.coverage if c.op_type == "If"] == ["float"]
