"""Linear and cubic Resize in every form that is not refused: ONNX Runtime, executor and C."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.ort import make_session, run
from midge.convert.plan_general import ResampleF32
from midge.convert.verify import verify
from midge.core.errors import InputError, UnsupportedError

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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"antialias": 1, "scales": [1, 1, 0.5, 0.5]}, "antialias"),
        (
            {"scales": [1, 1, 0.7, 1], "coordinate_transformation_mode": "align_corners"},
            "aligns corners and scales 6 by 0.7",
        ),
        (
            {
                "sizes": [1, 3, 4, 7],
                "roi": [0, 0, 0.2, -0.3, 1, 1, 0.7, 0.9],
                "extrapolation_value": 2.0,
                "coordinate_transformation_mode": "tf_crop_and_resize",
            },
            "extrapolates",
        ),
    ],
)
def test_what_is_not_computed_is_refused_by_name(options, words):
    with pytest.raises((InputError, UnsupportedError), match=f"layer.*{words}"):
        lower(ir.from_proto(model(mode="linear", **options)), name="net")
