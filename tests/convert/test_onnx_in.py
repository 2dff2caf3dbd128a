"""Reading: real files come in, and everything else gets one line that says what is wrong."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from midge.convert import graph as g
from midge.convert.onnx_in import notices, read_model
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.core.errors import InputError

W = np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3) / 54


def conv_proto(shape=("N", 3, 8, 8), opset=17, ir=8, dtype=TensorProto.FLOAT, **attributes):
    """A model of one Conv."""
    array = W.astype(helper.tensor_dtype_to_np_dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, ["N", 2, "H", "W"])],
        [numpy_helper.from_array(array, "w")],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


@pytest.fixture
def saved(tmp_path):
    """A function that writes a message and returns its path."""

    def save(proto, name="model.onnx"):
        path = tmp_path / name
        path.write_bytes(proto.SerializeToString())
        return path

    return save


def message(path, **options):
    with pytest.raises(InputError) as caught:
        read_model(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_leading_dimension_stays_symbolic(saved):
    model = read_model(saved(conv_proto()))
    assert g.dims(model.graph.inputs[0]) == (None, 3, 8, 8)
    assert g.dims(model.graph.outputs[0]) == (None, 2, 6, 6)


def test_a_missing_file_names_the_nearest(saved):
    saved(conv_proto(), "resnet.onnx")
    path = saved(conv_proto(), "other.onnx").with_name("resnt.onnx")
    assert "no such file" in message(path)
    assert "'resnet.onnx'" in message(path)


def test_a_directory_is_refused(tmp_path):
    assert "is a directory" in message(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"hello, this is no model\n", "text file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"\x1c\x00\x00\x00TFL3\x00", "TensorFlow Lite"),
        (bytes(range(256)) * 4, "damaged"),
    ],
)
def test_a_file_of_another_kind_is_told_so(tmp_path, content, words):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert words in message(path)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(saved, part):
    raw = conv_proto().SerializeToString()
    path = saved(conv_proto())
    path.write_bytes(raw[: int(len(raw) * part)])
    message(path)


def test_an_opset_from_the_future_is_named(saved):
    assert "opset 999 is unknown" in message(saved(conv_proto(opset=999)))


def test_an_unknown_domain_names_the_node(saved):
    proto = conv_proto()
    proto.graph.node[0].domain = "ai.acme"
    proto.graph.node[0].name = "stem"
    proto.opset_import.append(helper.make_opsetid("ai.acme", 1))
    text = message(saved(proto))
    assert "'stem'" in text
    assert "ai.acme::Conv" in text


def test_a_scan_that_would_lose_its_batch_axis_is_refused(saved):
    text = """<ir_version: 3, opset_import: ["" : 8]> g (float[1,3,2] X) => (float[1,3,2] Y) {
        [s] Y = Scan <num_scan_inputs = 1,
            body = b (float[2] i) => (float[2] o) { o = Identity(i) }> ("", X)
    }"""
    found = message(saved(onnx.parser.parse_model(text)))
    assert "node 's' is a Scan of opset 8" in found
    assert "export the model with opset 9 or newer" in found


@pytest.mark.parametrize("opset", [7, 9, 11, 12])
def test_an_old_opset_is_raised_with_a_notice(saved, opset):
    proto = conv_proto(opset=opset, ir=3)
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, W.shape))
    model = read_model(saved(proto))
    assert model.graph.opset_imports[""] == 13
    assert notices(model) == [f"opset raised from {opset} to 13."]
    assert [v.name for v in model.graph.inputs] == ["x"]
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (old,) = run(make_session(proto), {"x": x})
    (new,) = run(make_session(to_proto(model)), {"x": x})
    np.testing.assert_array_equal(old, new)


def test_an_unknown_dimension_asks_for_input_shape(saved):
    text = message(saved(conv_proto(("N", 3, "H", 8))))
    assert "'x'" in text
    assert "--input-shape x=1,3,224,8" in text


def test_a_dimension_of_minus_one_is_an_unknown_one(saved):
    assert "--input-shape" in message(saved(conv_proto((-1, 3, -1, 8))))


def test_input_shapes_bind_dimensions(saved):
    model = read_model(saved(conv_proto(("N", 3, "H", "W"))), {"x": (1, 3, 10, 12)})
    assert g.dims(model.graph.inputs[0]) == (1, 3, 10, 12)
    assert g.dims(model.graph.outputs[0])[1:] == (2, 8, 10)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"xx": (1, 3, 8, 8)}, "Did you mean 'x'"),
        ({"x": (1, 4, 8, 8)}, "does not fit"),
        ({"x": (1, 3, 8)}, "does not fit"),
        ({"x": (-1, 3, 8, 8)}, "must be 0 or more"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(saved, shapes, words):
    text = message(saved(conv_proto()), input_shapes=shapes)
    if "xx" in shapes:
        assert "no input 'xx'" in text
    else:
        assert words in text


def test_an_input_without_elements_is_said_to_be_constant(saved):
    model = read_model(saved(conv_proto(("N", 3, "H", "W"))), {"x": (0, 3, 8, 8)})
    assert not model.graph.inputs[0].uses()
    assert "input 'x' has no elements" in notices(model)[-1]


def test_float16_is_named(saved):
    assert "float16" in message(saved(conv_proto(dtype=TensorProto.FLOAT16)))


def test_contradicting_shapes_are_refused(saved):
    proto = conv_proto()
    proto.graph.node.append(helper.make_node("MatMul", ["y", "w"], ["z"]))
    assert "contradict" in message(saved(proto))


def test_a_cycle_is_refused(saved):
    proto = conv_proto()
    proto.graph.node[0].input[0] = "y"
    assert "a cycle through 'y'" in message(saved(proto))


def test_nodes_in_another_order_are_sorted(saved):
    proto = conv_proto()
    proto.graph.node.insert(0, helper.make_node("Relu", ["y"], ["z"]))
    proto.graph.output[0].name = "z"
    assert [n.op_type for n in read_model(saved(proto)).graph] == ["Conv", "Relu"]


def test_nodes_get_names_and_given_ones_stay(saved):
    proto = conv_proto()
    for name in ("", "Relu_1", "twin", "twin"):
        proto.graph.node.append(
            helper.make_node("Relu", ["x"], [f"r{len(proto.graph.node)}"], name=name)
        )
    names = [n.name for n in read_model(saved(proto)).graph]
    assert len(set(names)) == 5
    assert names[2:4] == ["Relu_1", "twin"]


def test_local_functions_are_inlined(saved):
    proto = conv_proto()
    body = [helper.make_node("Relu", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("mine", "Act", ["a"], ["b"], body, opsets))
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    proto.graph.node[0].output[0] = "c"
    proto.graph.node.append(helper.make_node("Act", ["c"], ["y"], domain="mine"))
    assert [n.op_type for n in read_model(saved(proto)).graph] == ["Conv", "Relu"]


def test_external_data_are_read_and_missing_ones_named(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(
        conv_proto(), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    np.testing.assert_array_equal(g.constant(read_model(path).graph[0].inputs[1]), W)
    (tmp_path / "weights.bin").unlink()
    assert "external data" in message(path)


def test_a_constant_that_cannot_be_read_is_refused(saved):
    proto = conv_proto()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.int64_data.extend([0] * W.size)  # floats are looked for elsewhere
    assert "initializer 'w'" in message(saved(proto))
    proto = conv_proto()
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend([1] * 300)  # more than NumPy has
    proto.graph.initializer[0].raw_data = b"\0\0\0\0"
    assert "initializer 'w' cannot be read" in message(saved(proto))


def test_a_name_that_breaks_the_line_is_escaped(saved):
    proto = conv_proto()
    proto.graph.node[0].op_type = "Conv\nv\x07"
    assert r"Conv v\x07" in message(saved(proto))


def test_a_function_that_needs_an_opset_it_does_not_import_is_refused(saved):
    proto = conv_proto()
    body = [helper.make_node("Relu", ["a"], ["b"], domain="nobody.knows")]
    proto.functions.append(helper.make_function("", "Twice", ["a"], ["b"], body, []))
    message(saved(proto))


@pytest.mark.parametrize("declared", [[3, 1 << 40], [3, 4, 1]])
def test_an_output_that_is_an_input_of_another_shape_is_refused(tmp_path, declared):
    graph = onnx.parser.parse_graph("g (float[3,4] x) => (float[3,4] y) { y = Relu(x) }")
    graph.output.append(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, declared))
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="output 'x' is an input of another shape"):
        read_model(tmp_path / "m.onnx")
