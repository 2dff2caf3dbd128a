"""LayerNorm from its spellings, and what only looks like one."""

import numpy as np
import pytest

from midge.convert.passes.fuse_layer_norm import FuseLayerNorm

rng = np.random.default_rng(4)
NUMBERS = {
    "gamma": rng.uniform(0.5, 2, 8),
    "beta": rng.normal(size=8),
    "eps": np.float32(1e-5),
    "two": np.float32(2),
    "half": np.float32(0.5),
    "minus": np.float32(-0.5),
}
MEAN = "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) "
SPELLINGS = {
    "PyTorch": MEAN + "q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) s = Sqrt(e) "
    "n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta)",
    "square by Mul, no bias": MEAN + "q = Mul(d, d) v = ReduceMean<axes=[2]>(q) e = Add(eps, v) "
    "s = Sqrt(e) n = Div(d, s) y = Mul(gamma, n)",
    "no scale": MEAN + "q = Mul(d, d) v = ReduceMean<axes=[2]>(q) e = Add(eps, v) s = Sqrt(e) "
    "y = Div(d, s)",
    "root by Pow": MEAN + "q = Mul(d, d) v = ReduceMean<axes=[2]>(q) e = Add(eps, v) "
    "s = Pow(e, minus) n = Mul(d, s) g = Mul(n, gamma) y = Add(g, beta)",
    "Keras": MEAN + "q = Mul(d, d) v = ReduceMean<axes=[2]>(q) e = Add(v, eps) s = Sqrt(e) "
    "r = Reciprocal(s) a = Mul(r, gamma) b = Mul(x, a) c = Mul(m, a) f = Sub(beta, c) "
    "y = Add(b, f)",
    "two means": "m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) k = ReduceMean<axes=[-1]>(x) "
    "o = Sub(x, k) q = Pow(o, two) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) s = Sqrt(e) "
    "n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta)",
}
OTHERS = {
    "no mean is taken off": "q = Mul(x, x) v = ReduceMean<axes=[2]>(q) e = Add(eps, v) "
    "s = Sqrt(e) n = Div(x, s) y = Mul(gamma, n)",
    "another axis": "m = ReduceMean<axes=[1]>(x) d = Sub(x, m) q = Mul(d, d) "
    "v = ReduceMean<axes=[1]>(q) e = Add(eps, v) s = Sqrt(e) y = Div(d, s)",
    "the fourth root": MEAN + "q = Mul(d, d) v = ReduceMean<axes=[2]>(q) e = Add(eps, v) "
    "s = Sqrt(e) t = Sqrt(s) y = Div(d, t)",
    "the deviation is read too": MEAN + "q = Mul(d, d) v = ReduceMean<axes=[2]>(q) "
    "e = Add(eps, v) z = Sqrt(e) y = Div(d, z)",
}


def model_of(build, body, opset=13):
    """A graph of x float32[N,3,8]."""
    used = {k: np.float32(v) for k, v in NUMBERS.items() if k in body}
    outputs = "float[N,3,8] y" + (", float[N,3,1] z" if " z = " in body else "")
    return build(f"(float[N,3,8] x) => ({outputs}) {{ {body} }}", opset=opset, **used)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_of_layer_norm_becomes_the_operator(build, apply, ops, name):
    model = model_of(build, SPELLINGS[name])
    before = len(ops(model))
    result = apply(FuseLayerNorm, model)
    assert ops(model) == ["LayerNormalization"]
    assert model.graph.opset_imports[""] == 17
    assert len(result.records) == before


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_layer_norm_stays(build, apply, ops, name):
    model = model_of(build, OTHERS[name])
    before = ops(model)
    assert not apply(FuseLayerNorm, model).modified
    assert ops(model) == before
    assert model.graph.opset_imports[""] == 13


def test_several_axes_are_normalized_together(build, apply, ops):
    body = SPELLINGS["PyTorch"].replace("[-1]", "[1, 2]")
    model = model_of(build, body)
    apply(FuseLayerNorm, model)
    (node,) = model.graph
    assert node.attributes["axis"].value == 1


def test_a_newer_opset_stays_and_gives_axes_as_operands(build, apply, ops):
    body = SPELLINGS["PyTorch"].replace("<axes=[-1]>(x)", "(x, last)")
    body = body.replace("<axes=[-1]>(q)", "(q, last)")
    used = {k: np.float32(v) for k, v in NUMBERS.items() if k in body}
    text = f"(float[N,3,8] x) => (float[N,3,8] y) {{ {body} }}"
    model = build(text, opset=18, last=np.array([-1]), **used)
    apply(FuseLayerNorm, model)
    assert ops(model) == ["LayerNormalization"]
    assert model.graph.opset_imports[""] == 18
