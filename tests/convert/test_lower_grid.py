"""GridSample in every form that is not refused: ONNX Runtime, executor and C."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.ort import make_session, run
from midge.convert.verify import verify
from midge.core.errors import UnsupportedError

TOLERANCE = 2e-5
IMAGE, VOLUME = ([2, 3, 5, 4], [2, 6, 7, 2]), ([2, 2, 3, 4, 5], [2, 3, 2, 4, 3])


def model(shapes, **attributes):
    text = '<ir_version: 9, opset_import: ["" : 20]> net (float{} x, float{} g) => (float{} y)'
    y = [*shapes[0][:2], *shapes[1][1:-1]]
    proto = onnx.parser.parse_model(text.format(*shapes, y) + " { y = GridSample(x, g) }")
    proto.graph.node[0].name = "layer"
    for key, value in attributes.items():
        proto.graph.node[0].attribute.append(onnx.helper.make_attribute(key, value))
    return proto


def gap(proto):
    """Return the largest difference between executor and ONNX Runtime."""
    rng = np.random.default_rng(4)
    x, g = (
        rng.uniform(-2.6, 2.6, [d.dim_value for d in v.type.tensor_type.shape.dim])
        for v in proto.graph.input
    )
    feeds = {"x": x.astype(np.float32), "g": g.astype(np.float32)}
    (want,) = run(make_session(proto, level="none"), feeds)
    (got,) = Executor(lower(ir.from_proto(proto), name="net")).run(list(feeds.values()))
    assert got.shape == want.shape
    return np.abs(got - want).max()


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_are_sampled_as_onnx_runtime_does(mode, padding, align):
    assert gap(model(IMAGE, mode=mode, padding_mode=padding, align_corners=align)) < TOLERANCE


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_volumes_are_sampled_as_onnx_runtime_does(mode, padding, align):
    assert gap(model(VOLUME, mode=mode, padding_mode=padding, align_corners=align)) < TOLERANCE


def test_an_axis_of_one_element_has_nothing_to_reflect():
    shapes = ([1, 2, 1, 4], [1, 3, 3, 2])
    made = model(shapes, padding_mode="reflection", align_corners=1)
    assert gap(made) < TOLERANCE


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_the_c_agrees(tmp_path, mode):
    onnx.save(model(IMAGE, mode=mode, padding_mode="reflection"), tmp_path / "net.onnx")
    report = verify(tmp_path / "net.onnx", count=2)
    assert (report.mismatches, report.elements > 100) == (0, True), report.checks


@pytest.mark.parametrize(
    ("shapes", "attributes", "why"),
    [
        (VOLUME, {"mode": "cubic"}, "cubic over volumes"),
        (([1, 1, 4096, 4096], [1, 2, 2, 2]), {}, "has 16777216 elements"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(shapes, attributes, why):
    with pytest.raises(UnsupportedError, match=rf"layer \(GridSample\): .*{why}"):
        lower(ir.from_proto(model(shapes, **attributes)), name="net")
