"""flatten_depth and counted_pads: pools and convolutions of volumes as those of images."""

import numpy as np
import onnx
import pytest

from midge.convert.canonical import canonicalize
from midge.convert.onnx_out import to_proto
from midge.convert.passes.counted_pads import CountedPads
from midge.convert.passes.flatten_depth import FlattenDepth
from midge.convert.verify import verify

rng = np.random.default_rng(8)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


WINDOWS = [
    "kernel_shape=[2,2,2]",
    "kernel_shape=[3,2,1], strides=[2,1,2], pads=[1,0,0,2,1,0]",
    "kernel_shape=[1,3,3], pads=[0,1,1,0,1,1]",
    "kernel_shape=[2,2,2], dilations=[3,2,1], strides=[1,2,2]",
    "kernel_shape=[3,3,3], strides=[2,2,2], ceil_mode=1",
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("op", ["MaxPool<", "AveragePool<", "AveragePool<count_include_pad=1, "])
def test_a_pool_of_volumes_is_two_pools(build, apply, ops, op, window):
    text = f"(float[N,3,8,7,6] x) => (float[N,3,D,H,W] y) {{ y = {op}{window}>(x) }}"
    model = build(text, opset=19)
    CountedPads()(model)
    assert apply(FlattenDepth, model).modified
    name = op.partition("<")[0]
    assert ops(model)[-5:] == ["Reshape", name, "Reshape", name, "Reshape"]


@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape=[3,2,2]",
        "pads=[1,1,0,2,0,1], strides=[2,1,2]",
        "dilations=[2,1,3], strides=[1,2,1]",
        "pads=[1,1,1,1,1,1]",
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_of_volumes_is_one_of_images(build, apply, ops, attributes, groups):
    text = f"(float[N,4,6,7,8] x) => (float[N,6,D,H,W] y) {{ y = Conv<group={groups}, "
    text += f"{attributes}>(x, w, b) }}"
    model = build(text, w=f32(6, 4 // groups, 3, 2, 2), b=f32(6))
    assert apply(FlattenDepth, model).modified
    assert ops(model).count("Conv") == 1
    assert all(len(v.shape) <= 5 for node in model.graph for v in node.outputs)


def test_a_known_batch_one_tap_and_one_plane_work_alike(build, apply):
    text = """(float[2,3,4,5,5] x)
        => (float[2,3,D,E,F] y, float[2,3,G,H,I] z, float[2,3,J,K,L] p)
        { y = Conv(x, w)
          z = Conv<pads=[0,1,1,0,1,1]>(x, v)
          p = MaxPool<kernel_shape=[4,2,2]>(x) }"""
    model = build(text, w=f32(3, 3, 4, 3, 3), v=f32(3, 3, 1, 3, 3))
    assert apply(FlattenDepth, model).modified


def test_global_pools_of_volumes_are_those_of_images(build, apply, ops):
    text = """(float[N,3,4,5,6] x) => (float[N,3,1,1,1] y, float[N,3,1,1,1] z)
        { y = GlobalAveragePool(x) z = GlobalMaxPool(x) }"""
    model = build(text)
    assert apply(FlattenDepth, model).modified
    assert all(len(n.inputs[0].shape) == 4 for n in model.graph if "Pool" in n.op_type)


def test_what_the_pass_cannot_know_stays(build, ops):
    text = """(float[N,2,4,5,5] x, float[2,2,2,2,2] w, float[N,2,d,5,5] u)
        => (float[N,2,3,4,4] y, float[N,2,e,4,4] z, float[N,2,3,4,4] p, int64[N,2,3,4,4] i)
        { y = Conv(x, w) z = MaxPool<kernel_shape=[2,2,2]>(u)
          p, i = MaxPool<kernel_shape=[2,2,2]>(x) }"""
    model = build(text)
    assert not FlattenDepth()(model).modified
    assert ops(model) == ["Conv", "MaxPool", "MaxPool"]


@pytest.mark.parametrize("pads", ["pads=[1,0,1,2], ", ""])
def test_counted_padding_under_a_rounded_size_is_a_pad(build, apply, ops, pads):
    text = "(float[N,2,8,9] x) => (float[N,2,H,W] y) { y = AveragePool<kernel_shape=[3,3], "
    model = build(f"{text}{pads}strides=[2,2], ceil_mode=1, count_include_pad=1>(x) }}", opset=19)
    assert apply(CountedPads, model).modified
    assert ops(model) == ["Pad"] * bool(pads) + ["AveragePool"]


def test_volumes_agree_in_all_engines(build, tmp_path):
    text = """(float[1,2,5,6,7] x) => (float[1,4,D,H,W] y, float[1,2,P,Q,R] z)
        { c = Conv<pads=[1,1,1,1,1,1]>(x, w, b)
          r = Relu(c)
          a = AveragePool<kernel_shape=[2,3,2], strides=[1,2,2], pads=[1,1,0,0,1,1]>(r)
          y = MaxPool<kernel_shape=[2,2,2]>(a)
          z = ConvTranspose<strides=[2,1,2], pads=[0,1,0,1,0,1]>(r, t) }"""
    model = build(text, w=f32(4, 2, 3, 3, 3), b=f32(4), t=f32(4, 2, 3, 2, 2))
    onnx.save(to_proto(model), tmp_path / "net.onnx")
    report = verify(tmp_path / "net.onnx", count=2)
    assert (report.mismatches, report.elements > 300) == (0, True), report.checks


def test_volumes_are_quantized_as_images_are(build, quantized, compare):
    text = """(float[1,2,5,6,7] x) => (float[1,4,D,H,W] y, float[1,4,1,1,1] z)
        { c = Conv<pads=[1,1,1,1,1,1]>(x, w, b)
          r = Relu(c)
          a = AveragePool<kernel_shape=[2,3,2], strides=[1,2,2]>(r)
          y = MaxPool<kernel_shape=[2,2,2]>(a)
          z = GlobalAveragePool(y) }"""
    model = build(text, w=f32(4, 2, 3, 3, 3), b=f32(4))
    canonicalize(model)
    result, sqnr_db = quantized(model)
    assert {c.state for c in result.coverage} <= {"quantized", "folded"}
    assert sqnr_db > 30
    assert compare(result.model) == {}
