"""Writes a .tflite file from a description, for a Python that has ai-edge-litert but not midge.

usage: tflite_writer.py DESCRIPTION.json ARRAYS.npz OUT.tflite

x86_tflite.py makes the description: tensors (name, shape, dtype, scale, zero_point, array), inputs
and outputs (tensor indices), operators (op, inputs, outputs, options). `options` names a class of
the schema and the fields that differ from its defaults; a field whose value is a text names an
enumerator, as in "Padding.SAME".
"""

import json
import sys
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

FORMAT = 3  # version of the file format
IDENTIFIER = b"TFL3"


def enumerator(text: str) -> int:
    """Return the number of "Class.NAME"."""
    kind, _, name = text.partition(".")
    return int(getattr(getattr(schema, kind), name))


def tensor(entry: dict[str, Any], arrays: Any, buffers: list[Any]) -> Any:
    """Return a tensor; constants get a buffer of their own, all others share the empty one."""
    made = schema.TensorT()
    made.name, made.shape = entry["name"].encode(), entry["shape"]
    made.type = enumerator(f"TensorType.{entry['dtype'].upper()}")
    made.buffer = 0
    if entry["array"] is not None:
        made.buffer = len(buffers)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(arrays[entry["array"]].tobytes(), np.uint8)
        buffers.append(buffer)
    if entry["scale"] is not None:
        parameters = schema.QuantizationParametersT()
        parameters.scale = np.asarray(entry["scale"], np.float32)
        parameters.zeroPoint = np.full(len(entry["scale"]), entry["zero_point"], np.int64)
        parameters.quantizedDimension = entry.get("axis", 0)
        made.quantization = parameters
    return made


def operator(entry: dict[str, Any], codes: list[str]) -> Any:
    """Return an operator with its options."""
    made = schema.OperatorT()
    made.opcodeIndex = codes.index(entry["op"])
    made.inputs, made.outputs = entry["inputs"], entry["outputs"]
    if entry["options"]:
        kind, fields = entry["options"]
        made.builtinOptionsType = enumerator(f"BuiltinOptions.{kind}")
        made.builtinOptions = getattr(schema, f"{kind}T")()
        for name, value in fields.items():
            setattr(
                made.builtinOptions, name, enumerator(value) if isinstance(value, str) else value
            )
    return made


def model(description: dict[str, Any], arrays: Any) -> Any:
    """Return the whole model."""
    codes = sorted({entry["op"] for entry in description["operators"]})
    made, graph, buffers = schema.ModelT(), schema.SubGraphT(), [schema.BufferT()]
    graph.tensors = [tensor(entry, arrays, buffers) for entry in description["tensors"]]
    graph.inputs, graph.outputs = description["inputs"], description["outputs"]
    graph.operators = [operator(entry, codes) for entry in description["operators"]]
    made.version, made.subgraphs, made.buffers = FORMAT, [graph], buffers
    made.operatorCodes = []
    for name in codes:
        code = schema.OperatorCodeT()
        code.builtinCode = enumerator(f"BuiltinOperator.{name}")
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = description["versions"].get(name, 1)
        made.operatorCodes.append(code)
    return made


def main() -> None:
    """Write the file."""
    description, arrays, out = (Path(argument) for argument in sys.argv[1:])
    made = model(json.loads(description.read_text(encoding="utf-8")), np.load(arrays))
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(made.Pack(builder), file_identifier=IDENTIFIER)
    out.write_bytes(bytes(builder.Output()))


if __name__ == "__main__":
    main()
