"""Recurrent layers, integers and selections in C, with sanitizers and compilers that make FMAs.

Each step of C is held against NumPy on what C itself computed before it.
"""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from midge.convert.build import host_program
from midge.convert.compile import random_inputs
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.target import runtime_folder
from midge.convert.verify_float import Judge
from midge.core.native import cpu_features, find_compiler

f32 = np.float32
SAMPLES = 3
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FUSED = ("-O3", "-mavx2", "-mfma", "-ffp-contract=fast")
BUILDS = [("gcc", SANITIZERS), ("gcc", FUSED), ("clang", FUSED)]

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
net (float[5,2,3] x, float[2,2,4] h, float[2,2,4] c, int64[2,3] i, float[2,6,5,4] v)
 => (float[5,2,2,4] a, float[2,2,4] ah, float[2,2,4] ac, float[5,1,2,4] b, float[1,2,4] bh,
     float[5,1,2,4] d, float[5,1,2,4] e, bool[2,6,5,4] f, float[2,6,5,4] g, int64[2,3] m,
     int64[2,6,1,4] n, float[2,3,2] o, float[2,6,5,4] p, float[2,6,10,4] q, int64[2,3] r,
     float[2,6,5,4] y, float[2,6,3,4] ta, int64[2,6,3,4] tb, float[2,6,5,2] tc, int64[2,6,5,2] td,
      int64[2,6,1,4] aa, int64[2,1,5,4] ab)
{
    a, ah, ac = LSTM<hidden_size=4, direction="bidirectional">(x, w4, r4, , , h, c)
    b, bh = GRU<hidden_size=4, linear_before_reset=1>(x, w3, r3, b3)
    d = GRU<hidden_size=4, direction="reverse">(x, w3, r3)
    e = RNN<hidden_size=4>(x, w1, r1)
    z = Floor(v)
    t = Cast<to=7>(z)
    f = LessOrEqual(z, s)
    l = Less(z, s)
    g = Where(l, v, s)
    k = Mul(i, three)
    m = Mod(k, seven)
    n = ArgMax<axis=2>(z)
    o = Gather(table, i)
    j = Max(t, three)
    p = GatherElements<axis=1>(v, t)
    q = Resize<mode="cubic">(v, , scales)
    u = Div(k, seven)
    y = Sin(v)
    r = Sub(u, i)
    ta, tb = TopK<axis=2>(z, ktop)
    tc, td = TopK<largest=0>(v, two)
    vq = QuantizeLinear(v, half, zero)
    vd = DequantizeLinear(vq, half, zero)
    aa = ArgMax<axis=2>(vd)
    ab = ArgMin<axis=1, select_last_index=1>(vd)
}
"""


def weights(rng):
    """The constants of TEXT."""
    shapes = {"w4": (2, 16, 3), "r4": (2, 16, 4), "w3": (1, 12, 3), "r3": (1, 12, 4)}
    shapes |= {"b3": (1, 24), "w1": (1, 4, 3), "r1": (1, 4, 4), "s": (6, 1, 1), "table": (9, 2)}
    arrays = {k: rng.normal(0, 0.5, shape).astype(f32) for k, shape in shapes.items()}
    arrays["s"] = np.floor(arrays["s"])  # what Floor(v) gives: pairs that are equal
    whole = {"three": np.array(3), "seven": np.array([-7])}
    whole |= {"ktop": np.array([3]), "two": np.array([2])}
    whole |= {"half": np.array(0.5, f32), "zero": np.array(100, np.uint8)}  # codes that are equal
    return arrays | whole | {"scales": np.array([1, 1, 2, 1], f32)}


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The Plan, samples for it, and its folder of C."""
    model = onnx.parser.parse_model(TEXT)
    constants = weights(np.random.default_rng(8))
    model.graph.initializer.extend(numpy_helper.from_array(a, k) for k, a in constants.items())
    plan = lower(ir.from_proto(onnx.shape_inference.infer_shapes(model)), name="net")
    place(plan)
    inputs = random_inputs(plan, SAMPLES, seed=1)
    directory = tmp_path_factory.mktemp("general")
    emit(plan, directory, "net", golden=(inputs, Executor(plan).run_batch(inputs)))
    return plan, inputs, directory


@pytest.mark.parametrize(("name", "flags"), BUILDS)
def test_every_step_gives_the_bits_or_stays_within_its_bound(network, name, flags):
    if flags == FUSED and not {"avx2", "fma"} <= cpu_features():
        pytest.skip("this processor has no FMA")
    plan, inputs, directory = network
    raw = [np.ascontiguousarray(x).reshape(SAMPLES, -1).view(np.uint8) for x in inputs]
    compiler = find_compiler(name)
    program = host_program(directory, "net", compiler=compiler, flags=flags, trace=True)
    written = np.frombuffer(program.run(np.concatenate(raw, axis=1).tobytes()), np.uint8)
    sizes = [plan.tensors[op.output].bytes for op in plan.ops]
    rows = np.split(written.reshape(SAMPLES, -1), np.cumsum(sizes)[:-1], axis=1)
    _, wanted = Judge(plan).expected(inputs, rows)
    wrong = [op for op, a, b in zip(plan.ops, rows, wanted, strict=True) if np.any(a != b)]
    assert wrong == []


def test_every_kernel_of_the_header_is_in_the_network(network):
    declared = (runtime_folder() / "include" / "midge_model_general.h").read_text()
    kernels = {p.name for p in (runtime_folder() / "src").glob("*.c") if p.stem + "(" in declared}
    assert len(kernels) == 14
    assert kernels <= {path.name for path in network[2].glob("*.c")}
