"""Linear and cubic Resize in every form that is not refused: ONNX Runtime, executor and C."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.ort import make_session, run
from midge.convert.plan_general import ResampleF32
from midge.convert.verify import verify
from midge.core.errors import UnsupportedError

SHAPE = (1, 3, 6, 5)
MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
TOLERANCE = 3e-5  # ONNX Runtime computes its coordinates in float32


def model(*, scales=None, sizes=None, roi=None, shape=SHAPE, **attributes):
    given = {"roi": (roi, np.float32), "scales": (scales, np.float32), "sizes": (sizes, np.int64)}
    arrays = {k: np.array(v, t) for k, (v, t) in given.items() if v is not None}
    names = [k if k in arrays else "" for k in given]
    node = helper.make_node("Resize", ["x", *names], ["y"], name="layer", **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, k) for k, a in arrays.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, data_prop=True)


def gap(proto):
    """Return the largest difference between executor and ONNX Runtime."""
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(2).normal(0, 1, shape).astype(np.float32)
    (want,) = run(make_session(proto, level="none"), {"x": x})
    (got,) = Executor(lower(ir.from_proto(proto), name="net")).run([x])
    assert got.shape == want.shape
    return np.abs(got - want).max()


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 3, 12, 10), (1, 3, 4, 13), (1, 3, 1, 1)])
def test_every_way_to_place_elements(coordinates, mode, sizes):
    options = {"coordinate_transformation_mode": coordinates, "mode": mode}
    assert gap(model(sizes=sizes, **options)) < TOLERANCE


@pytest.mark.parametrize(
    "options",
    [
        {"scales": [1, 1, 1.7, 0.6], "mode": "linear"},
        {"scales": [1, 1, 1.7, 0.6], "mode": "cubic", "cubic_coeff_a": -0.5},
        {"scales": [1, 1, 2, 2], "mode": "cubic", "exclude_outside": 1},
        {"scales": [2.5], "axes": [1], "mode": "linear", "shape": (2, 7)},
        {"scales": [1, 1, 1, 2, 2], "mode": "linear", "shape": (1, 2, 3, 4, 5)},
        {
            "sizes": [1, 3, 4, 7],
            "roi": [0, 0, 0.2, -0.3, 1, 1, 0.7, 0.9],
            "mode": "linear",
            "coordinate_transformation_mode": "tf_crop_and_resize",
        },
    ],
)
def test_scales_regions_and_ranks(options):
    assert gap(model(**options)) < TOLERANCE


def test_c_stays_within_the_bound_behind_a_convolution(tmp_path):
    proto = model(scales=[1, 1, 2, 1.5], mode="linear")
    conv = helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1])
    proto.graph.node.insert(0, conv)
    proto.graph.node[1].input[0] = "a"
    w = np.random.default_rng(0).normal(0, 1, (3, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save(proto, tmp_path / "net.onnx")
    plan = lower(ir.from_proto(proto), name="net")
    assert sum(isinstance(op.params, ResampleF32) for op in plan.ops) == 2
    assert verify(tmp_path / "net.onnx", count=3).holds


CROP = {
    "sizes": [1, 3, 4, 7],
    "roi": [0, 0, 0.2, -0.3, 1, 1, 0.7, 0.9],
    "coordinate_transformation_mode": "tf_crop_and_resize",
}


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("value", [0.0, 2.5])
def test_elements_from_outside_of_the_input_have_the_given_value(mode, value):
    assert gap(model(mode=mode, extrapolation_value=value, **CROP)) < TOLERANCE


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [[9, 9], [4, 11], [3, 2]])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_that_keep_the_aspect(mode, sizes, policy):
    made = model(mode=mode, sizes=sizes, axes=[2, 3], keep_aspect_ratio_policy=policy)
    assert gap(made) < TOLERANCE


@pytest.mark.parametrize(
    "options",
    [
        {"scales": [1, 1, 0.5, 0.5]},
        {"scales": [1, 1, 0.3, 0.75]},
        {"scales": [1, 1, 0.6, 1.7]},
        {"sizes": [1, 3, 4, 3]},
        {"scales": [1, 1, 0.6, 0.6], "exclude_outside": 1},
        {"scales": [1, 1, 0.6, 0.6], "coordinate_transformation_mode": "asymmetric"},
    ],
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_filters_against_aliases(mode, options):
    assert gap(model(mode=mode, antialias=1, shape=(1, 3, 12, 10), **options)) < TOLERANCE


def test_c_stays_within_the_bound_of_wide_filters_and_of_outside_values(tmp_path):
    for options in (
        {"scales": [1, 1, 0.4, 0.6], "antialias": 1},
        {"extrapolation_value": 2.0, **CROP},
    ):
        onnx.save(model(mode="linear", **options), tmp_path / "net.onnx")
        assert verify(tmp_path / "net.onnx", count=3).holds


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_corners_aligned_by_scales_are_onnxs_and_a_notice_says_so(mode):
    options = {"scales": [1, 1, 0.7, 1.5], "coordinate_transformation_mode": "align_corners"}
    proto = model(mode=mode, **options)
    plan = lower(ir.from_proto(proto), name="net")
    x = np.random.default_rng(2).normal(0, 1, SHAPE).astype(np.float32)
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(Executor(plan).run([x])[0], want, atol=TOLERANCE)
    assert ["aligns corners" in notice for notice in plan.notices] == [True]
    fitting = model(mode=mode, **options | {"scales": [1, 1, 0.5, 1.6]})
    assert lower(ir.from_proto(fitting), name="net").notices == []


def test_a_size_that_engines_disagree_on_is_refused_by_name():
    proto = model(mode="linear", scales=[1, 1, 0.7, 1], shape=(1, 3, 10, 5))  # 6.9999998 elements
    with pytest.raises(UnsupportedError, match=r"layer.*10 by 0.7, 6 .* ONNX but 7 .*give sizes"):
        lower(ir.from_proto(proto), name="net")
