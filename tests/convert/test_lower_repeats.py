"""Moves that repeat or pick elements: the bits of ONNX Runtime, and what is refused by name."""

import numpy as np
import onnx
import pytest

from midge.convert.compile import read_plan
from midge.convert.emit import emit
from midge.convert.lower import lower
from midge.convert.onnx_out import to_proto
from midge.convert.plan import Quantize, Slice
from midge.convert.plan_general import ResampleF32
from midge.convert.verify import verify
from midge.core.errors import UnsupportedError


def moved(qdq, op, inputs=(), shape=(1, 8, 6, 4), layer=True, **attributes):
    """Return a model of a layer, which makes an image that lies NHWC, and a move of its codes."""
    graph = qdq(5)
    x = graph.input(shape)
    if layer:
        x = graph.layer("Conv", x, (8, shape[1], 1, 1), shape[1])
    constants = [graph.constant(c) if c is not None else "" for c in inputs]
    y = graph.node(op, [x, *constants], **attributes)
    return graph.output(graph.quantized(y, graph.params[x])).model()


CASES = {
    "Expand": ([np.array([3, 8, 6, 4])], {}),
    "Tile": ([np.array([1, 2, 1, 3])], {}),
    "Tile of every axis": ([np.array([2, 2, 2, 2])], {}),
    "Resize": ([None, np.float32([1, 1, 2, 3])], {"nearest_mode": "round_prefer_floor"}),
    "Resize asymmetric": (
        [None, np.float32([1, 1, 2, 2])],
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "Resize to a size": ([None, None, np.array([1, 8, 18, 4])], {}),
    "Resize to every second": (
        [None, np.float32([1, 1, 0.5, 0.5])],
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "Resize by a third": ([None, np.float32([1, 1, 1.3, 0.7])], {}),
    "Resize by a third, asymmetric": (
        [None, np.float32([1, 1, 1.3, 0.7])],
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"},
    ),
    "Resize a part": (
        [np.float32([0, 0, 0.2, 0, 1, 1, 0.7, 1]), None, np.array([1, 8, 4, 9])],
        {"coordinate_transformation_mode": "tf_crop_and_resize", "nearest_mode": "floor"},
    ),
    "Resize unevenly": ([None, None, np.array([1, 8, 7, 9])], {}),
    "Gather unevenly": ([np.array([0, 1, 5, 5, 2, 4])], {"axis": 1}),
    "Pad reflecting": ([np.array([0, 0, 2, 1, 0, 0, 3, 2])], {"mode": "reflect"}),
    "Pad with edges": ([np.array([0, 1, 0, 2, 0, 2, 1, 0])], {"mode": "edge"}),
    "DepthToSpace": ([], {"blocksize": 2}),
    "DepthToSpace CRD": ([], {"blocksize": 2, "mode": "CRD"}),
    "SpaceToDepth": ([], {"blocksize": 2}),
    "Gather": ([np.array([1, 3, 5])], {"axis": 1}),
    "Gather backwards": ([np.array([[5, 4], [3, 2]])], {"axis": 2}),
    "Gather one": ([np.array(-1)], {"axis": 2}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layer", [True, False])
def test_a_move_gives_onnx_runtimes_bits(qdq, compare, name, layer):
    inputs, attributes = CASES[name]
    model = moved(qdq, name.partition(" ")[0], inputs, layer=layer, **attributes)
    assert compare(model) == {}


def test_a_nearest_resize_is_one_copy(qdq):
    inputs, attributes = CASES["Resize"]
    plan = lower(moved(qdq, "Resize", inputs, **attributes), name="net")
    assert sum(isinstance(op.params, Slice) for op in plan.ops) == 1


def test_a_linear_resize_between_codes_is_a_float_step(qdq):
    inputs = [None, np.float32([1, 1, 2, 2])]
    plan = lower(moved(qdq, "Resize", inputs, mode="linear"), name="net")
    kinds = [type(op.params) for op in plan.ops if type(op.params) in (ResampleF32, Quantize)]
    assert kinds[-3:] == [ResampleF32, ResampleF32, Quantize]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "why"),
    [
        (
            "Resize",
            [np.float32([0, 0, -0.1, 0, 1, 1, 1, 1]), None, np.array([1, 8, 3, 4])],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "elements from outside",
        ),
    ],
)
def test_what_has_no_step_is_refused_by_name(qdq, op, inputs, attributes, why):
    with pytest.raises(UnsupportedError, match=rf"^{op}_.*{why}"):
        lower(moved(qdq, op, inputs, **attributes), name="net")


def test_a_copy_of_more_axes_than_the_kernel_has_is_made_of_several(tmp_path, qdq):
    model = moved(qdq, "Tile", CASES["Tile of every axis"][0], (2, 8, 3, 5), layer=False)
    onnx.save(to_proto(model), tmp_path / "net.onnx")
    report = verify(tmp_path / "net.onnx", count=2)
    assert (report.mismatches, report.elements > 100) == (0, True), report.checks
    emit(read_plan(tmp_path / "net.onnx", "net"), tmp_path / "c", "net")
    assert (tmp_path / "c" / "net.c").read_text().count("[MIDGE_COPY_ITEM]") == 4  # 2 * 2 * 6 axes
