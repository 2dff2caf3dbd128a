"""Reading ONNX files: any file in, a checked graph with inferred shapes out, or one clear line.

The model that comes out has opset 13 or newer, no local functions, no initializers among its
inputs, a name on every node, and only known dimensions apart from a leading batch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.defs
import onnx.external_data_helper
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.large_models import check_external, put_back, set_aside
from midge.convert.onnx_check import STANDARD, check_message, check_operators, check_text
from midge.convert.onnx_extents import check_extents
from midge.convert.onnx_functions import expand_functions
from midge.convert.onnx_qoperators import spell_out
from midge.convert.onnx_values import Values, bind_values
from midge.convert.ort import one_line
from midge.core.errors import InputError, UnsupportedError, did_you_mean

OPSET = 13  # the first with per-channel DequantizeLinear
SCAN = 9  # the first whose Scan has no batch axis
DOMAINS = ("", "ai.onnx", "com.microsoft")  # whose operators may occur
NOTICES = "midge.notices"  # key of Model.meta: lines that the user must see
FLOAT16 = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
Shapes = Mapping[str, Sequence[int]]


def read_model(
    path: str | Path,
    input_shapes: Shapes | None = None,
    *,
    input_values: Values | None = None,
    dynamic: bool = False,
) -> ir.Model:
    """Read an ONNX file.

    Args:
        path: the file; external data are looked for beside it.
        input_shapes: full shapes for inputs whose dimensions are unknown, by input name.
        input_values: numbers that inputs hold throughout, by input name; they become constants.
        dynamic: accept unknown dimensions other than the leading one.

    Returns:
        The model. Lines that the user must see are in `notices(model)`.

    Raises:
        InputError: no ONNX model can be had from the file, or it needs `input_shapes`.
    """
    path = Path(path)
    proto, large = _parse(path)
    check_text(proto, str(path))
    _check_opsets(proto, path)
    check_operators(proto, str(path), DOMAINS)
    check_message(proto, str(path))
    lines: list[str] = []
    proto = _inline(proto, path)
    _drop_initializer_inputs(proto.graph)
    proto = _raise_opset(proto, path, lines)
    spell_out(proto.graph, str(path))
    _name_nodes(proto.graph)
    _state_axes(proto.graph)
    _check(proto, path)
    _forget_negative_dims(proto.graph)
    _bind(proto.graph, input_shapes or {}, path)
    bind_values(proto.graph, input_values or {}, path)
    check_extents(proto, str(path), large)
    proto = _expand_functions(_infer(proto, path), path, lines)
    try:
        model = ir.from_proto(proto)
    except Exception as error:  # of onnx_ir: it wraps errors of any kind
        raise InputError(f"{path}: the model contradicts itself: {one_line(error)}.") from error
    put_back(model, large, path.parent)
    _forget_elements(model, input_shapes or {}, lines)
    if not dynamic:
        require_known_dims(model, path)
    model.meta[NOTICES] = lines
    return model


def notices(model: ir.Model) -> list[str]:
    """Return the lines that reading the model gave."""
    return list(model.meta.get(NOTICES, []))


def _parse(path: Path) -> tuple[onnx.ModelProto, dict[str, onnx.TensorProto]]:
    """Return the message, and the tensors that it is too large with."""
    if not path.exists():
        folder = path.parent if path.parent.is_dir() else Path()
        known = (p.name for p in folder.glob("*.onnx"))
        raise InputError(f"{path}: no such file.{did_you_mean(path.name, known)}")
    if path.is_dir():
        raise InputError(f"{path} is a directory; give the .onnx file in it.")
    if not path.is_file():
        raise InputError(f"{path} is no regular file; write the model to one.")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}.") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(raw)
    except Exception as error:  # protobuf's DecodeError has moved between releases
        raise InputError(f"{path} is no ONNX model: {_what_it_is(raw)}.") from error
    if not proto.graph.node and not proto.graph.output:
        raise InputError(f"{path} is no ONNX model: {_what_it_is(raw)}.")
    try:
        large = set_aside(proto)
        onnx.external_data_helper.load_external_data_for_model(proto, str(path.parent))
        check_external(large.values(), path.parent)
    except Exception as error:
        raise InputError(f"{path}: its external data cannot be read: {one_line(error)}") from error
    return proto, large


def _what_it_is(raw: bytes) -> str:
    if not raw:
        return "it is empty"
    if raw.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; fetch the file itself with 'git lfs pull'"
    if raw[4:8] == b"TFL3":
        return "it is a TensorFlow Lite file"
    try:
        text = raw[:512].decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return "it looks like a text file"
    return "the file is damaged, cut short or of another kind"


def _check_opsets(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse opsets that the installed onnx does not know."""
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest:
            raise InputError(
                f"{path}: opset {entry.version} is unknown to the installed onnx, whose newest is "
                f"{newest}; update onnx or export with opset {newest}."
            )
    if not any(entry.domain in ("", "ai.onnx") for entry in proto.opset_import):
        raise InputError(f"{path}: the model imports no ONNX opset.")


def _inline(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    if not proto.functions:
        return proto
    try:
        return onnx.inliner.inline_local_functions(proto)
    except Exception as error:
        raise InputError(
            f"{path}: a local function cannot be inlined: {one_line(error)}"
        ) from error


def _expand_functions(proto: onnx.ModelProto, path: Path, lines: list[str]) -> onnx.ModelProto:
    """Spell operators that midge lacks by those that define them."""
    expanded, replaced = expand_functions(proto)
    if not replaced:
        return proto
    lines.append(f"{', '.join(replaced)}: read as the operators that ONNX defines it by.")
    return _infer(expanded, path)


def _drop_initializer_inputs(graph: onnx.GraphProto) -> None:
    """Make constants of initializers that are also inputs (the style of IR version 3)."""
    constants = {i.name for i in graph.initializer}
    kept = [i for i in graph.input if i.name not in constants]
    del graph.input[:]
    graph.input.extend(kept)


def _raise_opset(proto: onnx.ModelProto, path: Path, lines: list[str]) -> onnx.ModelProto:
    old = next(e.version for e in proto.opset_import if e.domain in ("", "ai.onnx"))
    if old >= OPSET:
        return proto
    scan = next((n for n in proto.graph.node if n.op_type == "Scan" and old < SCAN), None)
    if scan is not None:
        raise UnsupportedError(
            f"{path}: node {scan.name or scan.output[0]!r} is a Scan of opset {old}, whose batch "
            f"axis onnx loses on the way to {OPSET}; export the model with opset {SCAN} or newer."
        )
    proto.ir_version = max(
        proto.ir_version, 7
    )  # the converter wants initializers apart from inputs
    try:
        converted = onnx.version_converter.convert_version(proto, OPSET)
    except Exception as error:
        raise InputError(
            f"{path}: opset {old} cannot be raised to {OPSET}: {one_line(error)}; "
            f"export the model with opset {OPSET} or newer."
        ) from error
    lines.append(f"opset raised from {old} to {OPSET}.")
    return converted


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a name of its own; names that are there and unique stay."""
    used: set[str] = set()
    given = {n.name for n in graph.node}
    for index, node in enumerate(graph.node):
        if not node.name or node.name in used:
            stem = node.name or f"{node.op_type}_{index}"
            while stem in used or stem in given:
                stem += "_"
            node.name = stem
        used.add(node.name)


def _state_axes(graph: onnx.GraphProto) -> None:
    """Write the default axes of MeanVarianceNormalization out.

    onnx infers its shape from a body that has a Constant of these axes, and no default for them.
    """
    for node in graph.node:
        plain = node.domain in STANDARD and node.op_type == "MeanVarianceNormalization"
        if plain and not any(a.name == "axes" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("axes", [0, 2, 3]))


def _check(proto: onnx.ModelProto, path: Path) -> None:
    try:
        onnx.checker.check_model(proto)
    except ValueError as error:  # over 2 GB: the checker then needs a path
        if "2GB" not in str(error).replace(" ", ""):
            raise InputError(f"{path} is not valid ONNX: {one_line(error)}") from error
    except Exception as error:
        raise InputError(f"{path} is not valid ONNX: {one_line(error)}") from error
    for value in proto.graph.input:
        if value.type.tensor_type.elem_type in FLOAT16:
            raise InputError(
                f"{path}: input {value.name!r} is float16; midge reads float32 models: "
                "export the model in float32."
            )


def _forget_negative_dims(graph: onnx.GraphProto) -> None:
    """Make a size of -1, as some exporters write it, an unknown dimension."""
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.Clear()


def _bind(graph: onnx.GraphProto, shapes: Shapes, path: Path) -> None:
    """Write the user's shapes into the graph's inputs."""
    inputs = {i.name: i for i in graph.input}
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(
                f"{path} has no input {name!r}; its inputs are {', '.join(map(repr, inputs))}."
                f"{did_you_mean(name, inputs)}"
            )
        tensor = inputs[name].type.tensor_type
        text = ",".join(map(str, shape))
        if tensor.HasField("shape"):
            known = tensor.shape.dim
            clash = len(known) != len(shape) or any(
                d.dim_value not in (0, s) for d, s in zip(known, shape, strict=False)
            )
            if clash:
                raise InputError(
                    f"{path}: --input-shape {name}={text} does not fit the input's shape "
                    f"{_shape_text(known)}."
                )
        if any(s < 0 for s in shape):
            raise InputError(f"--input-shape {name}={text}: every dimension must be 0 or more.")
        del tensor.shape.dim[:]
        for size in shape:
            tensor.shape.dim.add().dim_value = size
    if shapes:
        del graph.value_info[:]


def _forget_elements(model: ir.Model, shapes: Shapes, lines: list[str]) -> None:
    """Let a constant stand for each input that the user says has no elements: the first state."""
    names = g.Names(model.graph)
    for value in model.graph.inputs:
        if 0 in shapes.get(g.name_of(value), ()) and value.dtype is not None:
            empty = np.zeros(g.static_dims(value) or (), value.dtype.numpy())
            made = g.add_constant(model.graph, names, f"{value.name}_empty", empty)
            ir.convenience.replace_all_uses_with(value, made)
            lines.append(f"input {value.name!r} has no elements: what only it feeds is constant.")


def _shape_text(known: Sequence[onnx.TensorShapeProto.Dimension]) -> str:
    return "[" + ", ".join(str(d.dim_value or d.dim_param or "?") for d in known) + "]"


def _infer(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(
            proto, check_type=True, strict_mode=True, data_prop=True
        )
    except Exception as error:
        raise InputError(
            f"{path}: the shapes of its tensors contradict each other: {one_line(error)}"
        ) from error


def require_known_dims(model: ir.Model, path: str | Path, hint: Shapes | None = None) -> None:
    """Refuse a model with an unknown dimension other than a leading one.

    Args:
        model: as read.
        path: its file, for the message.
        hint: example shapes for the remedy, by input name.
    """
    for value in model.graph.inputs:
        name, shape = g.name_of(value), g.dims(value)
        if shape is None or any(d is None for d in shape[1:]):
            example = (hint or {}).get(name) or [
                d or (1 if i == 0 else 224) for i, d in enumerate(shape or (1, 3, 224, 224))
            ]
            known = "unknown" if value.shape is None else str(value.shape)
            raise InputError(
                f"{path}: input {name!r} has shape {known}; say which, for example "
                f"--input-shape {name}={','.join(map(str, example))}."
            )
