"""Elements put to, and taken from, places that constants name: all engines agree."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert.lower import lower
from midge.convert.verify import verify
from midge.core.errors import UnsupportedError

RNG = np.random.default_rng(6)
REDUCTIONS = ("none", "add", "mul", "max", "min")


def saved(tmp_path, text, opset=18, **constants):
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> net {text}')
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()
    )
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def assert_agrees(path):
    report = verify(path, count=3)
    assert (report.mismatches, report.elements > 10) == (0, True), report.checks


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_updates_of_elements_agree_even_where_they_meet(tmp_path, reduction):
    if reduction == "none":  # which of two that meet remains is anybody's guess
        indices = np.array([[2, 0, -1], [0, 4, 1]])
    else:
        indices = np.array([[2, 0, 2, -1], [0, 0, 0, 1]])
    shape = list(indices.shape)
    text = f"""(float[3,5] x, float{shape} u) => (float[3,5] y, float[3,5] z)
        {{ c = Neg(x)
          y = ScatterElements<axis=1, reduction="{reduction}">(c, indices, u)
          z = ScatterElements<axis=-1, reduction="{reduction}">(table, indices, u) }}"""
    table = RNG.normal(0, 1, (3, 5)).astype(np.float32)
    assert_agrees(saved(tmp_path, text, indices=indices, table=table))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_updates_of_slices_agree_even_where_they_meet(tmp_path, reduction):
    places = [[0, 3], [2, -1], [1, 0]] if reduction == "none" else [[0, 3], [2, -1], [0, 3]]
    text = f"""(float[3,4,2] x, float[3,2] u) => (float[3,4,2] y)
        {{ y = ScatterND<reduction="{reduction}">(x, places, u) }}"""
    assert_agrees(saved(tmp_path, text, places=np.array(places)))


def test_elements_behind_an_image_layer_are_taken_in_the_files_order(tmp_path):
    text = """(float[2,3,4,5] x) => (float[2,2,5] a, float[2,3] b, float[2,3,4,5] c)
        { r = Conv(x, w)
          a = GatherND(r, rows)
          b = GatherND<batch_dims=1>(r, each)
          c = ReverseSequence<batch_axis=0, time_axis=1>(r, lengths) }"""
    constants = {
        "w": RNG.normal(0, 1, (3, 3, 1, 1)).astype(np.float32),
        "rows": np.array([[[0, 2, 1], [1, -1, 3]], [[1, 0, 0], [0, 1, 2]]]),
        "each": np.array([[[0, 1, 4], [2, 3, -1], [1, 1, 1]], [[2, 2, 2], [0, 0, 0], [1, 3, 3]]]),
        "lengths": np.array([2, 3]),
    }
    assert_agrees(saved(tmp_path, text, **constants))


def test_integers_are_put_and_taken_too(tmp_path):
    text = """(int64[3,4] i, int64[2] u) => (int64[3,4] y, int64[3] z, int64[3,4] r)
        { y = ScatterND(i, places, u)
          z = GatherND(y, three)
          r = ReverseSequence(y, lengths) }"""
    constants = {
        "places": np.array([[0, 3], [2, 0]]),
        "three": np.array([[0, 3], [1, 1], [2, 0]]),
        "lengths": np.array([1, 2, 3, 2]),
    }
    assert_agrees(saved(tmp_path, text, **constants))


def test_windows_are_added_up_to_the_image_they_were_cut_from(tmp_path):
    text = """(float[2,12,16] x, float[1,6,8] u) => (float[2,2,5,6] y, float[1,1,7,9] z)
        { y = Col2Im(x, size, block)
          z = Col2Im<strides=[2,3], dilations=[1,2], pads=[0,1,1,0]>(u, large, block) }"""
    constants = {"size": [5, 6], "large": [7, 9], "block": [2, 3]}
    assert_agrees(saved(tmp_path, text, **constants))


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("ScatterND(x, i, u)", "its indices are computed"),
        ("ScatterND(x, far, u)", "an index lies outside of its axis"),
    ],
)
def test_what_is_not_known_is_refused_by_name(tmp_path, node, why):
    text = f"(float[3] x, int64[2,1] i, float[2] u) => (float[3] y) {{ y = {node} }}"
    path = saved(tmp_path, text, far=np.array([[1], [3]]))
    with pytest.raises(UnsupportedError, match=rf"\(ScatterND\): {why}"):
        lower(ir.load(path), name="net")
