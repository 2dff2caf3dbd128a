"""The product of two activations: integers wherever the matrices lie, ONNX Runtime's bits."""

import numpy as np
import pytest

from midge.convert.lower import lower
from midge.convert.plan import FullyConnected, MatMul, Transpose
from midge.core.errors import UnsupportedError


def kinds(model):
    return [type(op.params) for op in lower(model, name="net").ops]


def scaled(graph, a, depth):
    """Parameters that fit a product's sums."""
    return np.float32(graph.params[a][0] * 0.05 * depth**0.5 * 20), graph.low + 100


SHAPES = {
    "matrices": ([5, 7], [7, 3]),
    "a batch": ([4, 5, 7], [4, 7, 9]),
    "two axes of batch": ([2, 3, 5, 7], [2, 3, 7, 16]),
    "one matrix for all": ([1, 3, 5, 7], [1, 1, 7, 4]),
    "one matrix for all, the first": ([5, 7], [2, 3, 7, 4]),
    "a row": ([1, 1, 7], [1, 7, 20]),
    "a column": ([3, 5, 7], [3, 7, 1]),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_product_of_codes_gives_onnx_runtimes_bits(qdq, compare, name, dtype):
    graph = qdq(len(name), dtype)
    a, b = (graph.input(shape) for shape in SHAPES[name])
    y = graph.quantized(graph.node("MatMul", [a, b]), scaled(graph, a, 7))
    model = graph.output(y).model()
    assert MatMul in kinds(model)
    assert compare(model) == {}


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_moves_no_byte_to_turn_its_matrices(qdq, compare, heads):
    graph = qdq(heads)
    length, depth = 6, 4
    x = graph.input([1, length, heads * depth])
    cut = graph.constant(np.array([1, length, heads, depth]))
    q, k, v = (
        graph.node(
            "Transpose",
            [graph.node("Reshape", [x, cut])],
            perm=[0, 2, 3, 1] if which == "k" else [0, 2, 1, 3],
        )
        for which in "qkv"
    )
    scores = graph.quantized(graph.node("MatMul", [q, k]), scaled(graph, x, depth))
    weights = graph.node("Softmax", [scores], axis=-1)
    weights = graph.quantized(weights, (np.float32(1 / 256), 0))
    mixed = graph.quantized(graph.node("MatMul", [weights, v]), (np.float32(0.02), 120))
    turned = graph.node("Transpose", [mixed], perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", [turned, graph.constant(np.array([1, length, -1]))])
    graph.params[joined] = graph.params[mixed]
    y = graph.layer("MatMul", joined, (heads * depth, 5), heads * depth, axis=1, bias=False)
    model = graph.output(y).model()
    found = kinds(model)
    assert found.count(MatMul) == 2
    assert Transpose not in found
    assert compare(model) == {}


def test_a_constant_stack_of_matrices_is_copied_into_the_arena(qdq, compare):
    graph = qdq(1)
    a = graph.input([3, 5, 7])
    codes = graph.rng.integers(0, 256, (3, 7, 4)).astype(np.uint8)
    b = graph.dequantized(codes, np.float32(0.01), zero=np.uint8(130))
    y = graph.quantized(graph.node("MatMul", [a, b]), scaled(graph, a, 7))
    model = graph.output(y).model()
    assert MatMul in kinds(model)
    assert compare(model) == {}


def test_a_constant_matrix_with_one_scale_is_a_layer(qdq):
    graph = qdq(1)
    a = graph.input([3, 7])
    b = graph.dequantized(graph.rng.integers(-127, 128, (7, 4)).astype(np.int8), np.float32(0.01))
    y = graph.quantized(graph.node("MatMul", [a, b]), scaled(graph, a, 7))
    assert FullyConnected in kinds(graph.output(y).model())


def test_a_depth_that_int32_does_not_hold_is_refused_by_name(qdq):
    graph = qdq(1)
    a, b = graph.input([1, 33_026]), graph.input([33_026, 1])
    y = graph.quantized(graph.node("MatMul", [a, b]), scaled(graph, a, 7))
    with pytest.raises(UnsupportedError, match=r"^MatMul_.*depth is 33026"):
        lower(graph.output(y).model(), name="net")
