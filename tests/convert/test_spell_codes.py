"""Codes that are numbers: images of bytes, casts, many scales, scales that are computed."""

import numpy as np
import pytest

from midge.convert.calibration_data import InMemory
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.convert.verify import verify
from midge.core.native import find_compiler

rng = np.random.default_rng(6)
S = rng.uniform(0.01, 0.2, 3).astype(np.float32)
Z = np.array([3, 128, 250], np.uint8)
ONE = np.float32(0.05)
CODES = {"uint8": (0, 256), "int8": (-128, 128)}
GRAPHS = {
    "cast to float": (
        "(uint8[2,3,4] x) => (float[2,3,4] y) { f = Cast<to=1>(x) y = Mul(f, s) }",
        {"s": ONE},
    ),
    "cast of int8": (
        "(int8[2,3,4] x) => (float[2,3,4] y) { f = Cast<to=1>(x) y = Relu(f) }",
        {},
    ),
    "cast of moved codes": (
        "(uint8[2,3,4] x) => (float[4,3,2] y) {t = Transpose<perm=[2,1,0]>(x) y = Cast<to=1>(t)}",
        {},
    ),
    "cast to codes": (
        "(float[2,3,4] x) => (uint8[2,3,4] y) { a = Abs(x) y = Cast<to=2>(a) }",
        {},
    ),
    "cast to signed codes": ("(float[2,3,4] x) => (int8[2,3,4] y) { y = Cast<to=3>(x) }", {}),
    "cast there and back": (
        "(uint8[2,3,4] x) => (uint8[2,3,4] y) { f = Cast<to=1>(x) y = Cast<to=2>(f) }",
        {},
    ),
    "a scale for each channel": (
        """(float[2,3,4] x) => (float[2,3,4] y, uint8[2,3,4] q) {
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }""",
        {"s": S, "z": Z},
    ),
    "a scale for each row": (
        """(float[3,2,4] x) => (float[3,2,4] y) {
            q = QuantizeLinear<axis=-3>(x, s, z) y = DequantizeLinear<axis=0>(q, s, z) }""",
        {"s": S, "z": Z},
    ),
    "a scale that is computed": (
        """(float[2,3,4] x, float s) => (float[2,3,4] y, uint8[2,3,4] q) {
            q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }""",
        {"z": np.uint8(7)},
    ),
    "dynamic": (
        """(float[2,3,4] x) => (uint8[2,3,4] y, float s, uint8 z) {
            y, s, z = DynamicQuantizeLinear(x) }""",
        {},
    ),
    "dynamic, there and back": (
        """(float[2,3,4] x) => (float[2,3,4] r) {
            y, s, z = DynamicQuantizeLinear(x) r = DequantizeLinear(y, s, z) }""",
        {},
    ),
}


def inputs_of(model, samples=1):
    """Random inputs with ties, both signs and the ends of the codes."""
    for value in model.graph.inputs:
        shape, kind = (samples, *value.shape), value.dtype.numpy().name
        if value.name == "s":
            yield np.full(shape, 0.125, np.float32)
        elif kind in CODES:
            yield rng.integers(*CODES[kind], shape).astype(kind)
        else:
            yield np.round(rng.uniform(-100, 100, shape) * 16).astype(np.float32) / 16


@pytest.mark.parametrize("name", GRAPHS)
def test_codes_as_numbers_give_onnx_runtimes_bits(build, name):
    text, weights = GRAPHS[name]
    model = build(text, opset=17, **weights)
    session = make_session(to_proto(model), level="none")
    plan = lower(model, name="g")
    for _ in range(20):
        given = [np.asarray(x[0]) for x in inputs_of(model)]
        want = run(session, {v.name: x for v, x in zip(model.graph.inputs, given, strict=True)})
        for y, w in zip(Executor(plan).run(given), want, strict=True):
            assert y.dtype == w.dtype
            np.testing.assert_array_equal(y, w)


@pytest.mark.parametrize("values", [np.zeros(6), np.full(6, 3.0), np.full(6, -2.0)])
def test_a_dynamic_range_of_one_side_or_none_holds(build, values):
    text, _ = GRAPHS["dynamic, there and back"]
    model = build(text.replace("2,3,4", "6"), opset=17)
    x = values.astype(np.float32)
    (y,) = Executor(lower(model, name="g")).run([x])
    np.testing.assert_allclose(y, x, rtol=1e-6)


def test_a_scale_for_each_block_is_spread(build):
    text = """(float[2,6] x) => (float[2,6] y) {
        q = QuantizeLinear<axis=1, block_size=2>(x, s, z)
        y = DequantizeLinear<axis=1, block_size=2>(q, s, z) }"""
    s = rng.uniform(0.1, 0.2, (2, 3)).astype(np.float32)
    z = rng.integers(100, 150, (2, 3)).astype(np.uint8)
    model = build(text, opset=21, s=s, z=z)
    x = rng.uniform(-9, 9, (2, 6)).astype(np.float32)
    wide, places = np.repeat(s, 2, 1), np.repeat(z, 2, 1).astype(np.float32)
    codes = np.clip(np.rint(x / wide) + places, 0, 255)
    (y,) = Executor(lower(model, name="g")).run([x])
    np.testing.assert_array_equal(y, (codes - places) * wide)


def test_an_image_of_bytes_runs_in_integers_throughout(build, tmp_path):
    w = rng.normal(0, 0.2, (4, 3, 3, 3)).astype(np.float32)
    model = build(
        """(uint8[1,3,8,8] image) => (float[1,4,8,8] y) {
            f = Cast<to=1>(image) d = Div(f, s) c = Conv<pads=[1,1,1,1]>(d, w) y = Relu(c) }""",
        s=np.float32(255),
        w=w,
    )
    path, out = tmp_path / "bytes.onnx", tmp_path / "int8.onnx"
    path.write_bytes(to_proto(model).SerializeToString())
    images = rng.integers(0, 256, (8, 1, 3, 8, 8)).astype(np.uint8)
    samples = [{"image": x} for x in images]
    quantize_file(path, out, InMemory(samples), QuantizeOptions())
    steps = [type(step.params).__name__ for step in lower(read_model(out), name="g").ops]
    assert "Quantize" not in steps, "nothing of the image is computed in float"
    find_compiler()
    assert verify(out, samples).mismatches == 0
