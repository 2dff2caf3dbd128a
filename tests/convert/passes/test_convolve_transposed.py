"""convolve_transposed and split_matmul: the same function in operators with integer kernels."""

import numpy as np
import pytest

from midge.convert.canonical import canonicalize
from midge.convert.passes.convolve_transposed import ConvolveTransposed
from midge.convert.passes.split_matmul import SplitMatMul

rng = np.random.default_rng(12)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((3, 3), "strides=[2,2]"),
        ((2, 2), "strides=[2,2]"),
        ((4, 4), "strides=[2,2], pads=[1,1,1,1]"),
        ((3, 2), "strides=[2,3], pads=[1,0,0,1]"),
        ((3, 3), "strides=[1,1]"),
        ((3, 3), "strides=[1,1], pads=[1,1,1,1]"),
        ((3, 3), "strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]"),
        ((2, 2), "strides=[2,2], output_padding=[1,1]"),
        ((2, 3), "strides=[3,3], output_padding=[2,0]"),
        ((1, 1), "strides=[3,2]"),
        ((3, 3), "strides=[2,2], dilations=[2,3]"),
        ((5, 5), "strides=[3,2], pads=[2,2,2,2]"),
        ((3, 3), "strides=[2,2], output_shape=[11,12]"),
        ((4, 4), 'strides=[2,2], output_shape=[11,13], auto_pad="SAME_UPPER"'),
        ((3, 3), "strides=[2,2], output_shape=[12,14]"),
        ((2, 3), "strides=[3,2], output_shape=[16,12]"),
        ((3, 4), "strides=[2,2], output_shape=[10,14], output_padding=[0,1]"),
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_conv_transpose_is_a_conv_of_its_phases(build, apply, ops, kernel, attributes, groups):
    model = build(
        f"(float[N,4,5,6] x) => (float[N,6,H,W] y) {{ "
        f"y = ConvTranspose<group={groups}, {attributes}>(x, w, b) }}",
        w=f32(4, 6 // groups, *kernel),
        b=f32(6),
    )
    apply(ConvolveTransposed, model)
    assert ops(model)[0] == "Conv"
    assert "ConvTranspose" not in ops(model)


def test_one_dimension_works_alike(build, apply, ops):
    model = build(
        "(float[N,2,7] x) => (float[N,3,L] y) { y = ConvTranspose<strides=[2], pads=[1,0]>(x, w) }",
        w=f32(2, 3, 4),
    )
    apply(ConvolveTransposed, model)
    assert ops(model) == ["Conv", "Reshape", "Transpose", "Reshape", "Slice"]


def test_norm_and_relu_behind_end_in_the_conv(build, agree, ops):
    model = build(
        """(float[N,4,5,5] x) => (float[N,3,H,W] y) {
            c = ConvTranspose<strides=[2,2], pads=[1,1,0,0]>(x, w) m = Mul(c, s) a = Add(m, t)
            y = Relu(a) }""",
        w=f32(4, 3, 3, 3),
        s=f32(3, 1, 1),
        t=f32(3, 1, 1),
    )
    before = model.clone()
    canonicalize(model)
    assert ops(model) == ["Conv", "Relu", "Reshape", "Transpose", "Reshape", "Slice"]
    agree(before, model)


def test_a_size_that_is_unknown_keeps_the_node_with_a_reason(build):
    model = build(
        "(float[N,2,H,W] x) => (float[N,3,A,B] y) { y = ConvTranspose(x, w) }", w=f32(2, 3, 2, 2)
    )
    assert "unknown" in ConvolveTransposed()(model).records[0].reason


@pytest.mark.parametrize(
    "node",
    [
        "DepthToSpace<blocksize=2>(x)",
        'DepthToSpace<blocksize=2, mode="CRD">(x)',
        "SpaceToDepth<blocksize=2>(x)",
    ],
)
def test_depth_and_space_are_moves(build, apply, ops, node):
    model = build(f"(float[N,8,4,6] x) => (float[N,A,B,C] y) {{ y = {node} }}")
    apply(ConvolveTransposed, model)
    assert ops(model) == ["Reshape", "Transpose", "Reshape"]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_stack_of_matrices_is_a_gemm_each(build, apply, ops, batch):
    model = build(
        f"(float[{batch},5,16] x) => (float[3,5,8] y) {{ y = MatMul(x, w) }}", w=f32(3, 16, 8)
    )
    apply(SplitMatMul, model)
    assert ops(model).count("Gemm") == 3
    assert "MatMul" not in ops(model)
