"""Wrong models, outputs, names and options: one line that tells it, and no file is touched."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

Refused = Callable[..., str]
Change = Callable[[onnx.ModelProto], object]
DATA = ("--calib-data", "calibration.npy")
QUANTIZE = ("quantize", "small.onnx", "-o", "small.int8.onnx", *DATA)
COMPILE = ("compile", "small.int8.onnx", "-o", "c")
# Every command that reads a model, with outputs that are there already.
READERS = {
    "inspect": ("inspect", "MODEL"),
    "convert": ("convert", "MODEL", "-o", "small.int8.onnx"),
    "quantize": ("quantize", "MODEL", "-o", "small.int8.onnx", *DATA),
    "compile": ("compile", "MODEL", "-o", "c"),
    "verify": ("verify", "MODEL"),
    "bench": ("bench", "MODEL"),
    "report": ("report", "MODEL", "--data", "calibration.npy", "-o", "c"),
    "init": ("init", "MODEL", "-o", "calibration.npy", "--force"),
}


def text(path: Path) -> None:
    path.write_text("not a model")


def truncated(path: Path) -> None:
    path.write_bytes(Path("small.onnx").read_bytes()[:200])


def directory(path: Path) -> None:
    path.mkdir()


def missing(path: Path) -> None:
    """Leave nothing there."""


def below_a_file(path: Path) -> None:
    path.symlink_to("small.onnx/model.onnx")


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


BROKEN = {
    device: ("broken.onnx", "no regular file"),
    missing: ("broken.onnx", "no such file"),
    text: ("broken.onnx", "text file"),
    truncated: ("broken.onnx",),
    directory: ("broken.onnx", "is a directory"),
    below_a_file: ("broken.onnx", "no such file"),
}


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("make", BROKEN, ids=lambda f: f.__name__)
def test_every_command_refuses_what_is_no_model(
    make: Callable[[Path], None], command: str, here: Path, refused: Refused
) -> None:
    make(here / "broken.onnx")
    arguments = [a.replace("MODEL", "broken.onnx") for a in READERS[command]]
    refused(*arguments, words=BROKEN[make])


def change(change_model: Change, name: str = "changed.onnx") -> str:
    """Write small.onnx with a change and return its name."""
    model = onnx.load("small.onnx")
    change_model(model)
    Path(name).write_bytes(model.SerializeToString())
    return name


def node(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(n for n in model.graph.node if n.name == name)


def weight(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(t for t in model.graph.initializer if t.name == name)


def put(value: float) -> Change:
    def edit(model: onnx.ModelProto) -> None:
        array = numpy_helper.to_array(weight(model, "conv.W")).copy()
        array[1, 0, 2, 2] = value
        weight(model, "conv.W").CopyFrom(numpy_helper.from_array(array, "conv.W"))

    return edit


def set_dim(index: int, size: int | str) -> Change:
    def edit(model: onnx.ModelProto) -> None:
        dim = model.graph.input[0].type.tensor_type.shape.dim[index]
        if isinstance(size, str):
            dim.dim_param = size
        else:
            dim.dim_value = size

    return edit


def external(location: str) -> Change:
    def edit(model: onnx.ModelProto) -> None:
        tensor = weight(model, "fc.W")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return edit


def cycle(model: onnx.ModelProto) -> None:
    node(model, "conv").input[0] = "r"


def short_weight(model: onnx.ModelProto) -> None:
    tensor = weight(model, "fc.W")
    tensor.raw_data = tensor.raw_data[:-4]


def huge_weight(model: onnx.ModelProto) -> None:
    weight(model, "fc.W").dims[0] = 1 << 50


def long_bias(model: onnx.ModelProto) -> None:
    weight(model, "fc.B").CopyFrom(numpy_helper.from_array(np.ones((5, 4), np.float32), "fc.B"))


def steep_norm(model: onnx.ModelProto) -> None:
    """Put a batch norm with an extreme scale behind the convolution."""
    for name, value in (("gamma", 3e38), ("one", 1.0), ("var", 1e-6)):
        array = np.full(4, value, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    inputs = ["c", "gamma", "one", "one", "var"]
    model.graph.node.insert(1, helper.make_node("BatchNormalization", inputs, ["n"], "norm"))
    node(model, "relu").input[0] = "n"


def huge_batch(model: onnx.ModelProto) -> None:
    """Turn one sample of many columns into many samples."""
    set_dim(3, 12 << 20)(model)
    shape = numpy_helper.from_array(np.array([-1, 2, 6, 6], np.int64), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.insert(0, helper.make_node("Reshape", ["x", "shape"], ["s"], "cut"))
    node(model, "conv").input[0] = "s"


def string_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


def no_output(model: onnx.ModelProto) -> None:
    del model.graph.output[:]


def missing_tensor(model: onnx.ModelProto) -> None:
    node(model, "fc").input[1] = "fc.weight"


def unknown_operator(model: onnx.ModelProto) -> None:
    node(model, "relu").op_type = "Relo"


def recursive_function(model: onnx.ModelProto) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    body = [helper.make_node("Act", ["a"], ["b"], domain="mine")]
    model.functions.append(helper.make_function("mine", "Act", ["a"], ["b"], body, opsets))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    node(model, "relu").op_type, node(model, "relu").domain = "Act", "mine"


FAULTS: dict[str, tuple[Change, tuple[str, ...]]] = {
    "NaN in a weight": (put(np.nan), ("'conv.W'", "NaN")),
    "Inf in a weight": (put(-np.inf), ("'conv.W'", "Inf")),
    "an unknown dimension": (set_dim(2, "H"), ("'x'", "--input-shape x=1,2,")),
    "a huge dimension": (set_dim(2, 1 << 40), ("changed.onnx", "too large")),
    "a huge batch": (set_dim(0, 1 << 33), ("changed.onnx", "too large")),
    "a bias that does not fit": (long_bias, ("changed.onnx", "does not run", "'fc'")),
    "scales beyond float32": (steep_norm, ("'conv'", "too large for float32")),
    "a reshape into a huge batch": (huge_batch, ("'c'", "too large")),
    "external data that are missing": (external("w.bin"), ("w.bin", "cannot be read")),
    "external data outside the folder": (external("../../w.bin"), ("../../w.bin", "external")),
    "a cycle": (cycle, ("changed.onnx", "conv")),
    "a weight cut short": (short_weight, ("'fc.W'", "bytes")),
    "a weight of huge dimensions": (huge_weight, ("'fc.W'", "bytes")),
    "strings as input": (string_input, ("changed.onnx", "'x'")),
    "no output": (no_output, ("changed.onnx",)),
    "an input that nothing makes": (missing_tensor, ("changed.onnx", "fc.weight")),
    "a misspelt operator": (unknown_operator, ("Relo", "'Relu'")),
    "a function that calls itself": (recursive_function, ("Act",)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_quantize_refuses_a_model_with(fault: str, refused: Refused, here: Path) -> None:
    edit, words = FAULTS[fault]
    refused("quantize", change(edit), *QUANTIZE[2:], words=words)


@pytest.mark.parametrize("mode", ["dynamic", "weight-only"])
@pytest.mark.parametrize("fault", ["NaN in a weight", "a huge dimension", "a cycle"])
def test_modes_without_data_refuse_a_model_with(
    fault: str, mode: str, refused: Refused, here: Path
) -> None:
    edit, words = FAULTS[fault]
    refused("quantize", change(edit), "-o", "small.int8.onnx", "--mode", mode, words=words)


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f not in ("an unknown dimension", "strings as input")]
)
def test_compile_refuses_a_model_with(fault: str, refused: Refused, here: Path) -> None:
    edit, words = FAULTS[fault]
    refused("compile", change(edit), "-o", "c", words=words)


def test_weights_that_do_not_fit_the_input_are_told(refused: Refused, here: Path) -> None:
    model = change(set_dim(1, 3))
    refused("quantize", model, *QUANTIZE[2:], words=("'x'", "[1, 2, 6, 6]", "[N,3,6,6]"))
    refused("compile", model, "-o", "c", words=(model, "does not run", "'conv'"))
    out = ("-o", "small.int8.onnx")
    refused("quantize", model, *out, "--mode", "dynamic", words=(model, "does not run"))
    refused("convert", model, *out, words=(model, "does not run"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_without_room_is_told(refused: Refused) -> None:
    refused("convert", "small.onnx", "-o", "/dev/full/x.onnx", words=("/dev/full",))


def blocked_parameters() -> None:
    Path("new.quant.json").mkdir()


def blocked_source() -> None:
    Path("c/small.c").unlink()
    Path("c/small.c").mkdir()


UNWRITABLE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "a path below a file": (
        (*QUANTIZE[:3], "small.onnx/x/q.onnx", *DATA),
        ("small.onnx/x/q.onnx",),
    ),
    "a folder": ((*QUANTIZE[:3], "c", *DATA), ("c is a directory",)),
    "the model itself": ((*QUANTIZE[:3], "small.onnx", *DATA), ("is the model that is read",)),
    "a canonical file below a file": (
        ("convert", "small.onnx", "-o", "small.onnx/c.onnx"),
        ("small.onnx",),
    ),
    "C in a file": (("compile", "small.int8.onnx", "-o", "small.onnx"), ("small.onnx", "folder")),
    "C below a file": (("compile", "small.int8.onnx", "-o", "small.onnx/c"), ("small.onnx",)),
    "a report in a file": (
        ("report", "small.onnx", "--data", "calibration.npy", "-o", "small.onnx"),
        ("small.onnx",),
    ),
    "a report below a file": (
        ("report", "small.onnx", "--data", "calibration.npy", "-o", "small.onnx/r"),
        ("small.onnx",),
    ),
    "a recipe below a file": (
        ("init", "small.onnx", "-o", "small.onnx/r.yaml"),
        ("small.onnx/r.yaml",),
    ),
    "a recipe in a folder": (("init", "small.onnx", "-o", "c", "--force"), ("c is a directory",)),
    "training below a file": (("train", "resnet8-cifar10", "-o", "small.onnx/t"), ("small.onnx",)),
    "the demo in a file": (("demo", "--quick", "-o", "small.onnx"), ("small.onnx",)),
    "dynamic below a file": (
        (*QUANTIZE[:3], "small.onnx/q.onnx", "--mode", "dynamic"),
        ("small.onnx/q.onnx",),
    ),
}


@pytest.mark.parametrize("output", UNWRITABLE)
def test_an_output_that_cannot_be_written_is(output: str, refused: Refused) -> None:
    arguments, words = UNWRITABLE[output]
    refused(*arguments, words=words)


def test_no_model_is_left_without_its_parameters(refused: Refused, here: Path) -> None:
    blocked_parameters()
    refused(*QUANTIZE[:3], "new.int8.onnx", *DATA, words=("new.quant.json", "directory"))
    refused(*QUANTIZE[:3], "new.onnx", "--mode", "dynamic", words=("new.quant.json", "directory"))


def test_a_folder_of_c_is_replaced_as_a_whole_or_not_at_all(refused: Refused, here: Path) -> None:
    blocked_source()
    refused(*COMPILE, words=("small.c",))


OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no calibration data": ((*QUANTIZE[:4],), ("No calibration data", "--calib-data")),
    "two kinds of data": ((*QUANTIZE, "--random-calib"), ("exclude each other",)),
    "data for a mode without": ((*QUANTIZE, "--mode", "dynamic"), ("takes no calibration data",)),
    "a misspelt node": ((*QUANTIZE, "--nodes-to-exclude", "cnv"), ("'cnv'", "'conv'")),
    "a node without a neighbour": ((*QUANTIZE, "--nodes-to-exclude", "zzz"), ("'zzz'", "inspect")),
    "a misspelt operator": ((*QUANTIZE, "--op-types-to-quantize", "Cnov"), ("'Cnov'", "'Conv'")),
    "a misspelt method": ((*QUANTIZE, "--calibration-method", "minmix"), ("minmix", "minmax")),
    "a misspelt option": ((*QUANTIZE, "--sample", "4"), ("--sample", "--samples")),
    "no samples": ((*QUANTIZE, "--samples", "0"), ("--samples", "0")),
    "fewer than no samples": ((*QUANTIZE, "--samples", "-3"), ("--samples", "-3")),
    "a seed that is no number": ((*QUANTIZE, "--seed", "lucky"), ("--seed", "lucky")),
    "a negative seed": ((*QUANTIZE, "--seed", "-1"), ("--seed", "-1")),
    "an unknown type": ((*QUANTIZE, "--io-type", "int4"), ("int4", "int8")),
    "an unknown mode": ((*QUANTIZE, "--mode", "magic"), ("magic", "static")),
    "a shape for no input": ((*QUANTIZE, "--input-shape", "z=1,2,6,6"), ("'z'", "'x'")),
    "a shape that does not fit": ((*QUANTIZE, "--input-shape", "x=1,3,6,6"), ("x=1,3,6,6",)),
    "a shape of another rank": ((*QUANTIZE, "--input-shape", "x=1,2,6"), ("x=1,2,6",)),
    "a shape of words": ((*QUANTIZE, "--input-shape", "x=a,b"), ("x=a,b", "NAME=1,3,224,224")),
    "a huge shape": ((*QUANTIZE, "--input-shape", "x=99999999999,2,6,6"), ("'x'", "too large")),
    "a quantized model and another type": (
        ("quantize", "small.int8.onnx", "-o", "again.onnx", *DATA, "--activation-type", "int8"),
        ("small.int8.onnx is quantized already", "--activation-type", "give the float model"),
    ),
    "codes from a float output": (
        (*QUANTIZE, "--io-type", "int8", "--nodes-to-exclude", "softmax"),
        ("--io-type int8", "'y'", "not quantized"),
    ),
    "a name that begins with a digit": ((*COMPILE, "--name", "1net"), ("'1net'", "try 'net'")),
    "a name with a dash": ((*COMPILE, "--name", "my-net"), ("'my-net'", "'my_net'")),
    "a name with other letters": ((*COMPILE, "--name", "größe"), ("'größe'",)),
    "an empty name": ((*COMPILE, "--name", ""), ("--name ''",)),
    "a keyword of C": ((*COMPILE, "--name", "register"), ("'register'",)),
    "a keyword of C23": ((*COMPILE, "--name", "constexpr"), ("'constexpr'",)),
    "a keyword of C++": ((*COMPILE, "--name", "class"), ("'class'",)),
    "a path as name": ((*COMPILE, "--name", "../net"), ("'../net'",)),
    "a target that is none": ((*COMPILE, "--target", "cortex-m99"), ("cortex-m99", "host", "c99")),
    "too few chunks": (("bench", "small.int8.onnx", "--chunks", "1"), ("--chunks",)),
    "no C to verify": (("verify", "small.int8.onnx", "--c", "nowhere"), ("nowhere",)),
    "a file as C to verify": (("verify", "small.int8.onnx", "--c", "small.onnx"), ("small.onnx",)),
    "no data to verify on": (("verify", "small.int8.onnx", "--data", "no.npy"), ("no.npy",)),
    "no such recipe": (("train", "no-such-net", "-o", "t"), ("no-such-net", "resnet8-cifar10")),
    "a recipe that is no YAML": (("train", "small.onnx", "-o", "t"), ("small.onnx",)),
    "a config that is missing": ((*QUANTIZE, "--config", "no.yaml"), ("no.yaml",)),
    "a config that is no text": ((*QUANTIZE, "--config", "small.onnx"), ("small.onnx",)),
    "no command": (("qantize", "small.onnx"), ("qantize", "'quantize'")),
}


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_option_that_cannot_be_is_refused(mistake: str, refused: Refused) -> None:
    arguments, words = OPTIONS[mistake]
    refused(*arguments, words=words)


def test_compile_names_the_node_and_what_to_do(refused: Refused, here: Path) -> None:
    square = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 3))]
    number = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))]
    graph = helper.make_graph(
        [helper.make_node("Det", ["x"], ["y"], "volume")], "g", square, number
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "det.onnx")
    line = refused("compile", "det.onnx", "-o", "c", words=("volume (Det)",))
    assert "rewrite it with supported operators" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_told(refused: Refused, here: Path) -> None:
    Path("closed").mkdir(mode=0o555)
    refused(*QUANTIZE[:3], "closed/q.onnx", *DATA, words=("closed/q.onnx", "permission"))
