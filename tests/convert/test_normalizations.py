"""What normalizes stays in float as a whole, and nothing else does."""

import numpy as np
import pytest

from midge.convert.canonical import canonicalize
from midge.convert.normalizations import normalizing

rng = np.random.default_rng(3)
CONSTANTS = {
    "w": rng.normal(0, 0.3, (16, 16)).astype(np.float32),
    "u": rng.normal(0, 0.3, (16, 8)).astype(np.float32),
    "gamma": rng.uniform(0.5, 2, (6, 16)).astype(np.float32),
    "eps": np.float32(1e-5),
    "six": np.float32(6),
    "zero": np.float32(0),
    "minus": np.float32(-0.5),
    "last": np.array([-1]),
}
SPELLINGS = {
    "RMSNorm": "q = Mul(h, h) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) s = Sqrt(e) "
    "n = Div(h, s)",
    "RMSNorm, the scale first": "q = Mul(h, h) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) "
    "r = Pow(e, minus) g = Mul(r, gamma) n = Mul(h, g)",
    "L2": "v = ReduceL2<axes=[-1], keepdims=1>(h) c = Clip(v, eps) n = Div(h, c)",
    "Softmax": "m = ReduceMax<axes=[-1]>(h) d = Sub(h, m) e = Exp(d) "
    "v = ReduceSum<keepdims=1>(e, last) n = Div(e, v)",
}
OTHERS = {
    "x / sqrt(x^2 + 6)": "q = Mul(h, h) e = Add(q, six) s = Sqrt(e) n = Div(h, s)",
    "a gate": "p = ReduceMean<axes=[1]>(h) z = Add(p, six) c = Clip(z, zero, six) k = Div(c, six) "
    "n = Mul(h, k)",
    "SiLU": "k = Exp(h) z = Add(k, six) n = Div(h, z)",
}


def network(build, body):
    text = f"(float[1,6,16] x) => (float[1,6,8] y) {{ h = MatMul(x, w) {body} y = MatMul(n, u) }}"
    used = {name: array for name, array in CONSTANTS.items() if name in text}
    return build(text, **used)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_normalization_stays_in_float_as_a_whole(build, quantized, name):
    result, sqnr = quantized(network(build, SPELLINGS[name]))
    states = {c.op_type: c for c in result.coverage if c.op_type != "MatMul"}
    assert {c.reason for c in states.values()} == {"it normalizes in float"}
    assert [c.state for c in result.coverage if c.op_type == "MatMul"] == ["quantized"] * 2
    assert sqnr > 25


@pytest.mark.parametrize("name", OTHERS)
def test_a_division_without_a_reduction_behind_it_is_none(build, name):
    model = network(build, OTHERS[name])
    canonicalize(model)
    assert normalizing(model.graph) == set()


def test_a_magnitude_stays_in_float_as_a_whole(build, quantized):
    text = """(float[1,6,16] x) => (float[1,6,8] y) {
        a = MatMul(x, w) b = MatMul(x, v) p = Mul(a, a) q = Pow(b, two) e = Add(p, q) n = Sqrt(e)
        y = MatMul(n, u) }"""
    more = {"v": -CONSTANTS["w"], "two": np.float32(2)}
    result, _ = quantized(build(text, w=CONSTANTS["w"], u=CONSTANTS["u"], **more))
    reasons = {c.op_type: c.reason for c in result.coverage if c.op_type != "MatMul"}
    assert set(reasons) == {"Mul", "Pow", "Add", "Sqrt"}
    assert set(reasons.values()) == {"it normalizes in float"}


def test_a_statistic_that_somebody_else_reads_ends_the_way(build):
    body = SPELLINGS["RMSNorm"].replace("s = Sqrt(e)", "s = Sqrt(v)").replace("e = Add(v, eps)", "")
    text = (
        f"""(float[1,6,16] x) => (float[1,6,16] n, float[1,6,1] v) {{ h = MatMul(x, w) {body} }}"""
    )
    model = build(text, w=CONSTANTS["w"])
    assert normalizing(model.graph) == set()
