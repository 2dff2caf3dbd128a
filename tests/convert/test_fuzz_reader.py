"""Mutated models never crash, hang or eat the machine: each is read or refused in one line.

The suite runs some mutations; `python tests/convert/test_fuzz_reader.py --minutes 60` goes
on for an hour. A mutation is made from its seed alone: `--seed S --count 1` repeats one.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from midge.convert.calibration_data import RANDOM
from midge.convert.compile import read_plan
from midge.convert.pipeline import QuantizeOptions, quantize_file
from midge.core.errors import MidgeError

COUNT = 200  # in the suite
SLOW_S = 20.0  # no mutation of these small models may take longer
HANGS_S = 120.0  # then the child is ended
PEAK_KB = 5 << 20  # of resident memory: twice what all activations may take, and the rest
DEEP = 400
LARGEST = 500_000  # bytes of a model from a folder
INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    255,
    1 << 16,
    2**31 - 1,
    -(2**31),
    1 << 33,
    1 << 40,
    2**63 - 1,
    -(2**63),
)
STRINGS = ("", "x", "y", "N", "Conv", "Identity", "Loop", "SAME_UPPER", "\u2028", "a" * 5000)
rng = np.random.default_rng(0)


def model(text: str, opset: int = 17, **weights: Any) -> onnx.ModelProto:
    """Return a model from the text of a graph and its initializers."""
    graph = onnx.parser.parse_graph("g " + text)
    for name, array in weights.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def with_function() -> onnx.ModelProto:
    """Return a model that calls a local function."""
    made = model("(float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Mul", ["a", "a"], ["t"]), helper.make_node("Relu", ["t"], ["b"])]
    made.functions.append(helper.make_function("mine", "Act", ["a"], ["b"], body, opsets))
    made.opset_import.append(helper.make_opsetid("mine", 1))
    made.graph.node[0].op_type, made.graph.node[0].domain = "Act", "mine"
    return made


def seeds(folder: Path | None = None) -> list[bytes]:
    """Return the models that are mutated; those of a folder in place of generated ones."""
    if folder is not None:
        files = sorted(folder.rglob("*.onnx"))
        return [f.read_bytes() for f in files if f.stat().st_size < LARGEST]
    convolutions = """(float[N,3,8,8] x) => (float[N,5] y) {
        c = Conv <pads = [1,1,1,1]> (x, w, b) n = BatchNormalization(c, s, s, s, s)
        r = Relu(n) p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
        a = GlobalAveragePool(p) f = Flatten(a) g = Gemm <transB = 1> (f, v) y = Softmax(g) }"""
    attention = """(float[1,4,8] x) => (float[1,4,8] y) {
        q = MatMul(x, w) t = Transpose <perm = [0,2,1]> (x) l = MatMul(q, t) p = Softmax(l)
        o = MatMul(p, x) y = LayerNormalization(o, s, s) }"""
    shapes = """(float[N,2,6,6] x) => (float[N,72] y) {
        s = Shape(x) i = Constant <value = int64[1] {0}> () n = Gather(s, i) m = Constant
        <value = int64[1] {-1}> () t = Concat <axis = 0> (n, m) r = Reshape(x, t)
        k = ConstantOfShape(n) e = Cast <to = 1> (k) y = Add(r, h) }"""
    branch = """(float[2,3] x) => (float[2,3] y) {
        c = Constant <value = bool {1}> ()
        y = If (c) <then_branch = t () => (float[2,3] a) { a = Relu(x) },
                    else_branch = e () => (float[2,3] b) { b = Sigmoid(x) }> }"""
    recurrent = "(float[3,1,4] x) => (float[3,1,1,2] y) { y = LSTM <hidden_size = 2> (x, w, r) }"
    s = np.abs(normal(4)) + 1
    models = [
        model(convolutions, w=normal(4, 3, 3, 3), b=normal(4), s=s, v=normal(5, 4)),
        model(attention, w=normal(8, 8), s=normal(8)),
        model(shapes, h=normal(72)),
        model(branch),
        model(recurrent, w=normal(1, 8, 4), r=normal(1, 8, 2)),
        model(
            "(float[N,4] x) => (float[N,4] y) { a = Clip(x) y = Gemm(a, w) }", 11, w=normal(4, 4)
        ),
        with_function(),
    ]
    return [m.SerializeToString() for m in models]


def flip(raw: bytes, random: Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        changed[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(raw: bytes, random: Random) -> bytes:
    return raw[: random.randrange(len(raw))]


def splice(raw: bytes, random: Random) -> bytes:
    """Remove a part, double it, or put noise in its place."""
    first, last = sorted(random.randrange(len(raw)) for _ in range(2))
    last = min(last, first + random.choice((1, 4, 32, 256)))
    part = random.choice((b"", raw[first:last] * 2, random.randbytes(last - first)))
    return raw[:first] + part + raw[last:]


def parts(message: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (message, field) that is set, at any depth."""
    waiting = [message]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            yield message, field
            if field.type == field.TYPE_MESSAGE:
                waiting += list(value) if hasattr(value, "append") else [value]


def edit(raw: bytes, random: Random) -> bytes:
    """Change fields of the message: remove, repeat, exchange, or set them to extreme values."""
    proto = onnx.ModelProto.FromString(raw)
    for _ in range(random.choice((1, 1, 2, 4))):
        fields = list(parts(proto))
        if not fields:  # the edits before took everything
            break
        message, field = random.choice(fields)
        value = getattr(message, field.name)
        if hasattr(value, "append") or hasattr(value, "add"):
            edit_list(message, field, value, random)
        elif random.random() < 0.2:
            message.ClearField(field.name)
        elif field.type != field.TYPE_MESSAGE:
            setattr(message, field.name, other(field, value, random))
    return proto.SerializeToString()


def edit_list(message: Any, field: Any, value: Any, random: Random) -> None:
    index = random.randrange(len(value))
    match random.randrange(4):
        case 0:
            del value[index]
        case 1:
            value.extend([value[index]])
        case 2:
            items = list(value)
            random.shuffle(items)
            copies = (
                [type(i).FromString(i.SerializeToString()) for i in items]
                if (field.type == field.TYPE_MESSAGE)
                else items
            )
            message.ClearField(field.name)
            getattr(message, field.name).extend(copies)
        case _:
            if field.type != field.TYPE_MESSAGE:
                value[index] = other(field, value[index], random)


def other(field: Any, value: Any, random: Random) -> Any:
    """Return another value for a field."""
    if isinstance(value, str):
        return random.choice((*STRINGS, value + "_"))
    if isinstance(value, bytes):
        return random.choice((b"", value[:-1], value + b"\0", b"\xff" * len(value)))
    if isinstance(value, float):
        return random.choice((0.0, -1.0, 1e38, float("nan"), float("inf"), float("-inf")))
    if field.type == field.TYPE_ENUM:
        return random.choice([v.number for v in field.enum_type.values])
    if field.type == field.TYPE_INT32:
        return random.choice((0, 1, 2, 3, 7, 8, 9, 10, 11, 16, 17, 22))
    return random.choice(INTEGERS)


def nest(raw: bytes, random: Random) -> bytes:
    """Put the graph into branches of branches."""
    proto = onnx.ModelProto.FromString(raw)
    depth = random.choice((2, 10, 40, 60, DEEP))
    inner = b""
    for _ in range(depth):
        graph = onnx.GraphProto(name="g", node=[onnx.NodeProto(op_type="Loop", output=["z"])])
        tail = onnx.AttributeProto(name="body", type=onnx.AttributeProto.GRAPH).SerializeToString()
        attribute = tail + b"\x32" + varint(len(inner)) + inner  # field 6, the subgraph
        node = graph.node[0].SerializeToString()
        node += b"\x2a" + varint(len(attribute)) + attribute  # field 5, the attributes
        inner = b"\x0a" + varint(len(node)) + node  # field 1, the nodes
    return proto.SerializeToString() + b"\x3a" + varint(len(inner)) + inner  # field 7, the graph


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def enlarge(raw: bytes, random: Random) -> bytes:
    """Make a dimension of an input or of a tensor, or a number in a constant, huge."""
    proto = onnx.ModelProto.FromString(raw)
    size = random.choice(INTEGERS)
    if random.random() < 0.5:
        dims = proto.graph.input[0].type.tensor_type.shape.dim
        dims[random.randrange(len(dims))].dim_value = size
        return proto.SerializeToString()
    tensors = [*proto.graph.initializer, *(a.t for n in proto.graph.node for a in n.attribute)]
    tensor = random.choice(tensors) if tensors else TensorProto()
    if tensor.dims and random.random() < 0.5:
        tensor.dims[random.randrange(len(tensor.dims))] = size
    elif tensor.data_type == TensorProto.INT64:
        tensor.CopyFrom(numpy_helper.from_array(np.full(tuple(tensor.dims), size), tensor.name))
    return proto.SerializeToString()


MUTATIONS: list[Callable[[bytes, Random], bytes]] = [
    *(flip, cut, splice, enlarge, nest),
    *(edit,) * 5,
]


def mutate(seed: int, models: list[bytes]) -> bytes:
    """Return the mutation with this number."""
    random = Random(seed)
    return random.choice(MUTATIONS)(random.choice(models), random)


def attempt(raw: bytes, folder: Path) -> str:
    """Quantize and lower a model; return what became of it.

    Raises:
        Exception: other than a MidgeError: a fault of midge.
    """
    path, out = folder / "m.onnx", folder / "m.int8.onnx"
    path.write_bytes(raw)
    try:
        quantize_file(path, out, RANDOM, QuantizeOptions(samples=1))
        read_plan(out, "m")
        return "quantized"
    except MidgeError as error:
        if "\n" not in str(error).strip():
            return type(error).__name__
        raise ValueError(f"more than one line: {error}") from error


def run_here(first: int, count: int, folder_of_models: Path | None = None) -> int:
    """Try mutations and print every fault; return how many there were."""
    warnings.simplefilter("error")
    models, faults = seeds(folder_of_models), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            print(seed, flush=True)
            begin = time.monotonic()
            try:
                attempt(mutate(seed, models), Path(folder))
                fault = ""
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
            if time.monotonic() - begin > SLOW_S:
                fault = fault or f"{time.monotonic() - begin:.0f} s"
            if peak_kb() > PEAK_KB:
                print(f"FAULT {seed}: the peak of memory is above {PEAK_KB >> 20} GiB", flush=True)
                return faults + 1  # the peak stays: another process must go on
            if fault:
                faults += 1
                print(f"FAULT {seed}: {' '.join(fault.split())[:300]}", flush=True)
    return faults


def peak_kb() -> int:
    """Return the peak of this process's memory; ru_maxrss holds that of its parent too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run_apart(first: int, count: int, *more: str) -> list[str]:
    """Try mutations in processes of their own and return every fault, crashes and hangs too."""
    found, last = [], first + count
    while first < last:
        numbers = ["--seed", str(first), "--count", str(last - first)]
        command = [sys.executable, __file__, *numbers, *more]
        with tempfile.TemporaryFile("w+") as out:
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            status = watch(child, out)
            out.seek(0)
            lines = out.read().splitlines()
        tried = [int(line) for line in lines if line.isdigit()]
        found += [line for line in lines if line.startswith("FAULT")]
        if not tried:
            return [*found, f"no mutation was tried: {lines[-3:]}"]
        if status not in (0, 1):
            found.append(f"FAULT {tried[-1]}: the process ended with status {status}")
        first = tried[-1] + 1
    return found


def watch(child: "subprocess.Popen[bytes]", out: Any) -> int:
    """Wait for a child that prints something now and then; end it when it no longer does."""
    while True:
        size = out.seek(0, 2)
        try:
            return child.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            if out.seek(0, 2) == size:
                child.kill()
                child.wait()
                return -9


def test_mutated_models_are_read_or_refused() -> None:
    assert run_apart(0, COUNT) == []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="first mutation")
    parser.add_argument("--count", type=int, help="try so many in this process")
    parser.add_argument("--minutes", type=float, default=1, help="go on for so long")
    parser.add_argument("--models", type=Path, help="mutate the small .onnx files of this folder")
    options = parser.parse_args()
    if options.count:
        sys.exit(min(run_here(options.seed, options.count, options.models), 1))
    more = ["--models", str(options.models)] if options.models else []
    end, seed, found = time.monotonic() + 60 * options.minutes, options.seed, 0
    while time.monotonic() < end:
        faults = run_apart(seed, 1000, *more)
        seed, found = seed + 1000, found + len(faults)
        print(f"{seed - options.seed:,} mutations, {found} faults", *faults, sep="\n", flush=True)
    sys.exit(min(found, 1))


if __name__ == "__main__":
    main()
