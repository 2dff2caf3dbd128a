"""Normalizations: executor, ONNX Runtime and C agree within their bounds."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from midge.convert.verify import verify

RNG = np.random.default_rng(3)
ROWS = {name: RNG.normal(1, 0.3, 6).astype(np.float32) for name in "st"}

GRAPHS = {
    "of channels and groups": (
        """(float[2,3,5,4] x) => (float[2,6,5,4] a, float[2,6,5,4] b)
        { c = Conv(x, w)
          a = InstanceNormalization<epsilon=0.01>(c, s, t)
          b = GroupNormalization<num_groups=2>(c, s, t) }""",
        {**ROWS, "w": RNG.normal(0, 1, (6, 3, 1, 1)).astype(np.float32)},
        21,
    ),
    "of sequences": (
        """(float[2,6,7] x) => (float[2,6,7] y, float[2,6,7] z)
        { u = GroupNormalization<num_groups=3>(x, s, t)
          y = Neg(u)
          z = InstanceNormalization(x, s, t) }""",
        ROWS,
        21,
    ),
    "of layers, with what they were normalized by": (
        """(float[2,3,6] x) => (float[2,3,6] y, float[2,1,1] m, float[2,1,1] d, float[2,3,1] i)
        { y, m, d = LayerNormalization<axis=1, epsilon=0.1>(x, s, t)
          u = Neg(x)
          v, n, i = LayerNormalization(u, s) }""",
        ROWS,
        17,
    ),
    "by norms": (
        """(float[2,3,4,5] x) => (float[2,3,4,5] a, float[2,3,4,5] b, float[2,3,4,5] c)
        { a = LpNormalization<axis=1, p=1>(x)
          b = LpNormalization(x)
          c = MeanVarianceNormalization<axes=[0,2,3]>(x) }""",
        {},
        18,
    ),
    "with axes by default": (
        "(float[2,3,4,5] x) => (float[2,3,4,5] y) { y = MeanVarianceNormalization(x) }",
        {},
        13,
    ),
    "sums of exponentials": (
        """(float[2,3,4,5] x) => (float[2,1,4,1] a, float[2,3,5] b)
        { u = Mul(x, hundred)
          a = ReduceLogSumExp(u, axes)
          b = ReduceLogSumExp<keepdims=0>(x, last) }""",
        {
            "hundred": np.array(100, np.float32),
            "axes": np.array([1, -1]),
            "last": np.array([2]),
        },
        18,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_all_engines_agree(tmp_path, name):
    text, constants, opset = GRAPHS[name]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> net {text}')
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    onnx.save(model, tmp_path / "net.onnx")
    report = verify(tmp_path / "net.onnx", count=3)
    assert (report.mismatches, report.elements > 50) == (0, True), report.checks


def test_zeros_stay_zeros(tmp_path):
    text = "(float[2,3] x) => (float[2,3] y) { y = LpNormalization(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> net {text}')
    onnx.save(model, tmp_path / "net.onnx")
    assert verify(tmp_path / "net.onnx", [{"x": np.zeros((2, 3), np.float32)}]).holds
