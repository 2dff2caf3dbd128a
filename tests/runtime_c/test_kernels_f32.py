"""Every float kernel, in every build, stays within its bound; steps that must be exact are."""

import itertools
import platform
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from midge.convert.build import host_program
from midge.convert.emit import emit
from midge.convert.executor import compute
from midge.convert.executor_functions import UNARY
from midge.convert.executor_ops import Operands
from midge.convert.float_bounds import UNARY_BOUNDS, error_bound, is_exact, reference, within_bound
from midge.convert.plan import Concat, PlanOp, PlanTensor, Slice, Transpose
from midge.convert.plan_float import (
    DYNAMIC_HEADER,
    BinaryF32,
    ConstantF32,
    Conv2dDynamic,
    Conv2dF32,
    DynamicQuantize,
    FullyConnectedDynamic,
    FullyConnectedF32,
    Limits,
    MatMulF32,
    PadF32,
    Pool2dF32,
    ReduceF32,
    SoftmaxF32,
    UnaryF32,
)
from midge.convert.target import X86_64, fit_scratch, runtime_folder
from midge.core.native import cpu_features, find_compiler

f32 = np.float32
SAMPLES = 2
STRICT = [
    *("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wdouble-promotion"),
    *("-Wshadow", "-Wstrict-prototypes", "-Wundef", "-Wcast-align", "-Wvla", "-Werror"),
]
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# A compiler that may join products and sums into FMAs must not change the steps that are exact.
FUSED = ("-O3", "-mavx2", "-mfma", "-ffp-contract=fast")
BUILDS = [("gcc", ("-O2",)), ("clang", ("-O3",)), ("gcc", SANITIZERS)]
BUILDS += [("gcc", FUSED), ("clang", FUSED)]
ALPHAS = {"elu": (1.3, 0), "celu": (0.7, 0), "selu": (1.67326, 1.05070), "swish": (1.5, 0)}
ALPHAS |= {"hard_sigmoid": (0.2, 0.5), "leaky_relu": (0.01, 0), "thresholded_relu": (0.8, 0)}
ALPHAS |= {"clip": (-1.5, 2.5), "shrink": (1.2, 0.3)}


class FloatNetwork:
    """Collects float steps, each on inputs of its own."""

    def __init__(self, network):
        self.net = network(seed=11)
        self.rng = self.net.rng

    def real(self, *shape, scale=1.0):
        """Random values with zeros of both signs, a large and a small one."""
        x = self.rng.normal(0, scale, (SAMPLES, *shape)).astype(f32)
        flat = x.reshape(-1)
        if flat.size > 8:
            flat[:4] = 0.0, -0.0, 30 * scale, -30 * scale
        return x

    def op(self, params, *feeds, shape=None):
        """Append a step; what it must give comes from NumPy."""
        tensors = [PlanTensor("x", x.shape[1:], str(x.dtype), i) for i, x in enumerate(feeds)]
        if shape is None:
            shape = np.broadcast_shapes(*(x.shape[1:] for x in feeds))
        dtype = "uint8" if isinstance(params, DynamicQuantize) else "float32"
        y = PlanTensor("y", tuple(shape), dtype, len(feeds))
        op = PlanOp("step", params, tuple(range(len(feeds))), len(feeds))
        plan = replace(self.net.plan(), tensors=[*tensors, y])
        want = np.broadcast_to(compute(plan, op, feeds), (SAMPLES, *shape))
        self.net.op(params, *feeds, want=np.ascontiguousarray(want))

    def conv(self, x, kernel, out, *, coded=False, limits=(), **options):
        """Append a convolution, with float or int8 weights."""
        given = {
            "stride": (1, 1),
            "pads": (0, 0, 0, 0),
            "dilation": (1, 1),
            "groups": 1,
            **options,
        }
        shape = (out, *kernel, x.shape[-1] // given["groups"])
        weight = self.rng.normal(0, 0.3, shape).astype(f32)
        scale = None
        if coded:
            weight = self.rng.integers(-127, 128, shape).astype(np.int8)
            scale = self.rng.uniform(0.001, 0.01, out).astype(f32)
        bias = self.rng.normal(0, 1, out).astype(f32)
        size = [
            (x.shape[2 + i] + given["pads"][i] + given["pads"][i + 2] - d * (k - 1) - 1) // s + 1
            for i, (k, s, d) in enumerate(
                zip(kernel, given["stride"], given["dilation"], strict=True)
            )
        ]
        params = Conv2dF32(weight, bias, scale=scale, limits=Limits(*limits), **given)
        self.op(params, x, shape=(x.shape[1], *size, out))

    def dynamic_conv(self, x, kernel, out, size, **options):
        """Append a convolution of codes that the feed holds behind their header."""
        given = {"stride": (1, 1), "pads": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, **options}
        weight = self.rng.integers(
            -127, 128, (out, *kernel, x.shape[-1] // given["groups"])
        ).astype(np.int8)
        scale = self.rng.uniform(0.001, 0.01, out).astype(f32)
        bias = self.rng.normal(0, 1, out).astype(f32)
        params = Conv2dDynamic(weight, scale, bias, x.shape[1:], **given)
        self.op(params, self.codes(x), shape=(x.shape[1], *size, out))

    def codes(self, x):
        """What DynamicQuantize makes of real values."""
        n = DYNAMIC_HEADER + x[0].size
        tensors = [PlanTensor("x", x.shape[1:], "float32", 0), PlanTensor("y", (n,), "uint8", 1)]
        plan = replace(self.net.plan(), tensors=tensors)
        return compute(plan, PlanOp("q", DynamicQuantize(), (0,), 1), [x])


def add_layers(net):
    for channels in (1, 2, 3, 5, 7, 9, 15, 17, 31):
        net.conv(net.real(1, 4, 5, channels), (3, 3), 34 - channels, pads=(1, 1, 1, 1))
        net.conv(net.real(1, 4, 4, channels), (3, 2), channels, groups=channels, pads=(1, 0, 2, 1))
    for coded in (False, True):
        net.conv(net.real(2, 9, 7, 6), (3, 3), 8, stride=(2, 1), dilation=(2, 3), coded=coded)
        net.conv(net.real(1, 9, 9, 6), (4, 4), 9, groups=3, pads=(1, 1, 2, 2), coded=coded)
        net.conv(net.real(1, 3, 3, 5), (1, 1), 21, limits=(0,), coded=coded)
        net.conv(net.real(1, 2, 2, 3), (5, 5), 4, pads=(4, 4, 4, 4), limits=(0, 1), coded=coded)
        net.conv(net.real(1, 6, 6, 4), (3, 3), 4, groups=4, pads=(1, 1, 1, 1), coded=coded)
    net.conv(net.real(1, 9, 4, 1), (5, 4), 24, stride=(2, 2), pads=(2, 1, 2, 1))
    net.conv(net.real(2, 6, 6, 3), (3, 3), 27, groups=3, dilation=(2, 2), pads=(2, 2, 2, 2))
    for rows, depth, out in ((1, 900, 5), (3, 33, 30), (2, 1, 1), (4, 17, 16)):
        weight = net.rng.normal(0, 1, (out, depth)).astype(f32)
        bias = net.rng.normal(0, 1, out).astype(f32)
        x = net.real(rows, depth)
        net.op(FullyConnectedF32(weight, bias, limits=Limits(-3, 4)), x, shape=(rows, out))
        codes = net.rng.integers(-128, 128, (out, depth)).astype(np.int8)
        scale = net.rng.uniform(0.001, 0.01, out).astype(f32)
        net.op(FullyConnectedF32(codes, bias, scale), x, shape=(rows, out))
        params = FullyConnectedDynamic(codes, scale, bias, Limits(0))
        net.op(params, net.codes(x), shape=(rows, out))
    for a, b in (((1, 3, 5), (4, 5, 9)), ((2, 7, 8), (2, 8, 17)), ((3, 1, 4), (1, 4, 1))):
        shape = (max(a[0], b[0]), a[1], b[2])
        net.op(MatMulF32(), net.real(*a), net.real(*b), shape=shape)


def add_dynamic(net):
    for x in (net.real(5, 7), net.real(300, scale=1e-3), net.real(40) + 100, -np.abs(net.real(33))):
        net.op(DynamicQuantize(), x, shape=(DYNAMIC_HEADER + x[0].size,))
    special = np.zeros((SAMPLES, 12), f32)
    special[1, :6] = np.nan, 1, -2, 1e-45, 3e38, -3e38
    net.op(DynamicQuantize(), special, shape=(DYNAMIC_HEADER + 12,))
    ties = (np.arange(-20, 236)[None] + [[0.5], [0.0]]).astype(f32)
    net.op(DynamicQuantize(), ties, shape=(DYNAMIC_HEADER + 256,))
    net.dynamic_conv(net.real(1, 6, 5, 3), (3, 3), 7, (6, 5), pads=(1, 1, 1, 1))
    net.dynamic_conv(net.real(2, 6, 6, 8), (3, 3), 8, (2, 2), groups=8, stride=(2, 2))
    net.dynamic_conv(net.real(1, 7, 7, 6), (2, 3), 9, (6, 5), groups=3)
    net.dynamic_conv(net.real(1, 3, 4, 5), (1, 1), 6, (3, 4))


def add_elementwise(net):
    shapes = [((3, 4, 5), (3, 4, 5)), ((2, 1, 5), (1, 4, 5)), ((2, 3, 4, 5), (2, 3, 1, 1))]
    shapes += [((2, 3, 4, 5), (1, 3, 1, 5)), ((1, 1), (4, 6))]
    for kind, (a, b) in itertools.product(("add", "sub", "mul", "div", "max", "min"), shapes):
        divisor = net.real(*b)
        if kind == "div":  # the sign of the NaN that 0 / 0 gives is the processor's
            divisor += np.copysign(f32(0.5), divisor)
        net.op(BinaryF32(kind), net.real(*a), divisor)
    net.op(BinaryF32("prelu"), net.real(2, 3, 4), net.real(1, 1, 4))
    net.op(BinaryF32("pow"), np.abs(net.real(3, 5)), net.real(1, 5))
    for swapped, shape in itertools.product((False, True), ((1, 1, 7), (3, 1, 1), (1, 1, 1))):
        constant = net.rng.normal(0, 1, shape).astype(f32)
        net.op(BinaryF32("sub", constant, swapped), net.real(3, 2, 7))
        net.op(BinaryF32("pow", np.abs(constant), swapped), np.abs(net.real(3, 2, 7)))
    nan = net.real(1, 9)
    nan[:, 0, 3:6] = np.nan, np.inf, -np.inf
    for kind in ("max", "min"):
        net.op(BinaryF32(kind), nan, nan[:, :, ::-1].copy())
    edges = f32([[0.0, -0.0, 1e-40, 9, 7, -7, 6, -6, 5.5, -5.5, 3e38, -1e-20]])
    divisors = f32([[2, 2, 1e-41, 2, 3, 3, -3, -3, np.inf, np.inf, 0.7, 1]])
    for kind in ("fmod", "mod"):
        divisor = net.real(1, 50)
        divisor += np.copysign(f32(0.5), divisor)  # as above
        net.op(BinaryF32(kind), net.real(3, 50), divisor)
        net.op(BinaryF32(kind), np.stack([edges, -edges]), np.stack([divisors, divisors]))
    for kind in UNARY:
        x = net.real(331, scale=3)
        x = np.abs(x) + f32(1e-3) if kind in ("log", "sqrt") else x
        x = x + np.copysign(f32(0.5), x) if kind == "reciprocal" else x
        x = np.clip(x / 30, -1, 1) if kind in ("acos", "asin", "atanh") else x
        x = np.abs(x) + f32(1) if kind == "acosh" else x
        net.op(UnaryF32(kind, *ALPHAS.get(kind, (0, 0))), x)
        x = np.abs(x) if kind in ("acos", "asin", "atanh") else np.abs(x) + f32(1e-6)
        net.op(UnaryF32(kind, *ALPHAS.get(kind, (0, 0))), x)
    for log, (rows, depth) in itertools.product((False, True), ((3, 10), (1, 1), (2, 700))):
        net.op(SoftmaxF32(log), net.real(rows, depth, scale=4))


def add_reductions(net):
    for kind in ("sum", "mean", "max", "min", "prod"):
        net.op(ReduceF32(kind), net.real(3, 7, 5), shape=(3, 1, 5))
        net.op(ReduceF32(kind), net.real(2, 20, 1), shape=(2, 1, 1))
    for kind, counted in (("max", False), ("average", False), ("average", True)):
        pool = Pool2dF32(kind, (3, 2), (2, 1), (1, 1, 1, 0), counted)
        net.op(pool, net.real(1, 6, 7, 5), shape=(1, 3, 7, 5))
        pool = Pool2dF32(kind, (2, 2), (2, 2), (0, 0, 0, 0), counted)
        net.op(pool, net.real(2, 4, 4, 9), shape=(2, 2, 2, 9))
        pool = Pool2dF32(kind, (3, 2), (2, 1), (2, 1, 1, 2), counted, (2, 3))
        net.op(pool, net.real(2, 9, 8, 5), shape=(2, 4, 8, 5))


def add_moves(net):
    net.op(PadF32((0, 1, 2, 0), (0, 2, 0, 0), -2.5), net.real(2, 3, 4, 5), shape=(2, 6, 6, 5))
    net.op(PadF32((2,), (1,), 0.0), net.real(4), shape=(7,))
    net.op(Concat(1), net.real(2, 3), net.real(2, 1), shape=(2, 4))
    net.op(Transpose((0, 3, 1, 2)), net.real(1, 3, 4, 2), shape=(1, 2, 3, 4))
    net.op(Slice((0, 3), (1, -2)), net.real(4, 5), shape=(4, 2))
    net.op(ConstantF32(np.arange(6, dtype=f32).reshape(2, 3)), shape=(2, 3))


@pytest.fixture(scope="module")
def zoo(network):
    """Every float step in many shapes."""
    net = FloatNetwork(network)
    for add in (add_layers, add_dynamic, add_elementwise, add_reductions, add_moves):
        add(net)
    return net.net


@pytest.fixture(scope="module")
def folder(zoo, tmp_path_factory):
    directory = tmp_path_factory.mktemp("zoo_f32")
    emit(zoo.plan(), directory, "zoo", golden=(zoo.feeds, zoo.wants))
    return directory


def faults(zoo, raw):
    """Names of the steps that C got wrong, with the worst error in units of its bound."""
    wrong, tensors = {}, zoo.plan().tensors
    rows = np.frombuffer(raw, np.uint8).reshape(SAMPLES, -1)
    start, feeds = 0, iter(zoo.feeds)
    for op, want in zip(zoo.ops, zoo.wants, strict=True):
        size = want[0].nbytes
        got = rows[:, start : start + size].copy().view(want.dtype).reshape(want.shape)
        start += size
        operands = [next(feeds) for _ in op.inputs]
        if is_exact(op.params):
            if not np.array_equal(got.view(np.uint8), want.view(np.uint8)):
                wrong[op.name] = op.params
            continue
        o = Operands(operands, [tensors[i] for i in op.inputs], tensors[op.output])
        if not within_bound(op, o, got).all():
            with np.errstate(all="ignore"):
                excess = np.abs(got - reference(op, o)) / error_bound(op, o)
            wrong[op.name] = op.params, float(np.nanmax(excess))
    return wrong


@pytest.mark.parametrize(("name", "flags"), BUILDS)
def test_every_float_step_stays_within_its_bound(zoo, folder, name, flags):
    if flags == FUSED and not {"avx2", "fma"} <= cpu_features():
        pytest.skip("this processor has no FMA")
    program = host_program(folder, "zoo", compiler=find_compiler(name), flags=flags)
    assert not faults(zoo, program.run(zoo.samples))


@pytest.fixture(scope="module")
def x86_folder(zoo, tmp_path_factory):
    """The same for every instruction set of x86-64."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("this machine is no x86-64")
    plan = zoo.plan()
    fit_scratch(plan, X86_64)
    assert not any(plan.scratch_bytes)
    directory = tmp_path_factory.mktemp("zoo_f32_x86")
    emit(plan, directory, "zoo", target=X86_64)
    return directory


@pytest.mark.parametrize(("name", "flags"), BUILDS[:2])
def test_every_float_step_stays_within_its_bound_on_every_instruction_set(
    zoo, x86_folder, name, flags
):
    program = host_program(x86_folder, "zoo", compiler=find_compiler(name), flags=flags)
    for level in program.levels(len(X86_64.levels)):
        assert not faults(zoo, program.run(zoo.samples, level)), X86_64.levels[level]


def test_the_vector_kernels_compile_without_a_warning(x86_folder):
    for name in ("gcc", "clang"):
        sources = sorted(x86_folder.glob("midge_*f32*_avx2.c"))
        assert sources
        subprocess.run([name, *STRICT, f"-I{x86_folder}", "-fsyntax-only", *sources], check=True)


def test_the_golden_test_passes_and_compiles_without_a_warning(folder, tmp_path):
    for name in ("gcc", "clang"):
        for file in ("zoo.c", "host/zoo_main.c", "host/zoo_test.c"):
            command = [name, *STRICT, f"-I{folder}", "-fsyntax-only", folder / file]
            subprocess.run(command, check=True)
    make = ["make", "-C", folder, "CFLAGS=-O1", "CC=gcc", "test"]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert (done.returncode, "pass" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.board
@pytest.mark.parametrize(("board", "form"), [("cortex-m4", "FLOAT"), ("rv32imc", "INT")])
def test_every_float_step_passes_on_the_board(folder, run_on_board, board, form):
    assert run_on_board(folder, "zoo", board, form) == (0, "zoo: pass, 2 samples\n")


def test_every_float_kernel_is_emitted_and_linked_with_the_library(folder):
    declared = (runtime_folder() / "include" / "midge_model_f32.h").read_text()
    kernels = {p.name for p in (runtime_folder() / "src").glob("*.c") if p.stem + "(" in declared}
    assert kernels <= {path.name for path in folder.glob("*.c")}
    assert "-lm" in (folder / "Makefile").read_text()
    assert "PUBLIC m" in (folder / "CMakeLists.txt").read_text()


def test_every_function_has_a_bound_or_is_exact():
    assert set(UNARY_BOUNDS) <= set(UNARY)
    exact = {kind for kind in UNARY if is_exact(UnaryF32(kind))}
    assert exact == {
        *("abs", "ceil", "clip", "floor", "leaky_relu", "neg", "reciprocal", "round"),
        *("shrink", "sqrt", "square", "thresholded_relu"),
    }
