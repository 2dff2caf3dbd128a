"""A program with every operator of the C runtime, and what NumPy says that it must give."""

import importlib.util
import itertools
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from midge.convert.plan import (
    Add,
    Concat,
    Constant,
    Conv2d,
    Dequantize,
    FlipSign,
    FullyConnected,
    MatMul,
    Mul,
    Pad,
    Plan,
    PlanOp,
    PlanTensor,
    Pool2d,
    Quantize,
    Requantization,
    Slice,
    Softmax,
    Table,
    Transpose,
)
from midge.convert.target import runtime_folder
from midge.core.native import cpu_features
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

f32 = np.float32
SEED = 20
SAMPLES = 2
# One for each kernel: power-of-two scales tie in 32 bits, the next needs 64, the last has no form.
ADD_SCALES = ((0.5, 0.25, 0.5), (0.357, 0.011, 0.068), (0.02, 0.05, 0.06))


def beside(name):
    """Return the module of this name in this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Reference = beside("reference_kernels").Reference


def int8(scale=1.0, zero_point=0):
    return QuantParams(f32(scale), zero_point, "int8")


class Network:
    """Builds a Plan whose operators each read their own inputs and write an output of the model."""

    def __init__(self, seed=SEED):
        self.rng = np.random.default_rng(seed)
        self.tensors, self.ops, self.inputs, self.outputs = [], [], [], []
        self.feeds, self.wants = [], []

    def codes(self, *shape):
        """Random int8 codes with both extremes."""
        x = self.rng.integers(-128, 128, (SAMPLES, *shape)).astype(np.int8)
        x.reshape(-1)[:2] = -128, 127
        return x

    def tensor(self, stem, array):
        index = len(self.tensors)
        shape, dtype = array.shape[1:], str(array.dtype)
        self.tensors.append(PlanTensor(f"{stem}_{index}", shape, dtype, index))
        return index

    def op(self, params, *feeds, want=None):
        """Append one operator on new inputs, each [SAMPLES, ...]."""
        inputs = tuple(self.tensor("x", feed) for feed in feeds)
        self.inputs += inputs
        self.feeds += feeds
        if want is None:
            want = np.stack([Reference.run(params, *(f[s] for f in feeds)) for s in range(SAMPLES)])
        output = self.tensor("y", want)
        self.outputs.append(output)
        self.wants.append(want)
        self.ops.append(PlanOp(f"{type(params).__name__}_{len(self.ops)}", params, inputs, output))

    def plan(self, gap=0):
        """The Plan, every tensor in its own place, `gap` unused bytes after each."""
        sizes = [t.bytes for t in self.tensors]
        steps = [-(-size // 16) * 16 + gap for size in sizes]
        offsets = [int(n) for n in np.cumsum([0, *steps])]
        plan = Plan("zoo", self.tensors, self.ops, tuple(self.inputs), tuple(self.outputs), sizes)
        plan.offsets, plan.arena_bytes = offsets[:-1], offsets[-1]
        return plan

    @property
    def samples(self):
        """Standard input of NAME_main."""
        return b"".join(f[s].tobytes() for s in range(SAMPLES) for f in self.feeds)

    @property
    def results(self):
        """Expected standard output of NAME_main."""
        return b"".join(w[s].tobytes() for s in range(SAMPLES) for w in self.wants)

    def requantization(self, channels, depth, low=-128, high=127, per_channel=True):
        """Multipliers that spread a typical accumulator over the codes, and some that do not."""
        m = 2.0 ** self.rng.uniform(-3, 1, channels if per_channel else 1) / (37 * depth**0.5)
        m[::5] = 2.0 ** np.floor(np.log2(m[::5]))  # exact ties
        zero_point = int(self.rng.choice([-128, 127, 0, int(self.rng.integers(-128, 128))]))
        return Requantization(m.astype(f32), zero_point, max(low, -128), high)

    def conv(self, shape, kernel, out, **options):
        """Append a Conv2d on a random input of this NHWC shape."""
        per_group = shape[3] // options.get("groups", 1)
        depth = kernel[0] * kernel[1] * per_group
        weight = self.rng.integers(-127, 128, (out, *kernel, per_group)).astype(np.int8)
        weight[0] = 127 if out % 2 else -128  # extreme sums; -128 occurs in imported files
        given = {
            "stride": (1, 1),
            "pads": (0, 0, 0, 0),
            "dilation": (1, 1),
            "groups": 1,
            "x_zero_point": int(self.rng.choice([-128, 127, 3])),
            **options,
        }
        bias = self.rng.integers(-2000, 2000, out).astype(np.int32)
        params = Conv2d(weight, bias, requantization=self.requantization(out, depth), **given)
        self.op(params, self.codes(*shape))

    def matrix(self, rows, depth, out, weight_zero_point=0, **limits):
        """Append a FullyConnected."""
        weight = self.rng.integers(-127, 128, (out, depth)).astype(np.int8)
        bias = self.rng.integers(-(2**20), 2**20, out).astype(np.int32)
        r = self.requantization(out, depth, **limits)
        x_zero_point = int(self.rng.integers(-128, 128))
        params = FullyConnected(weight, bias, x_zero_point, r, weight_zero_point)
        self.op(params, self.codes(rows, depth))

    def mul(self, a, b, constant=False, **limits):
        """Append a Mul of shapes that broadcast, the second one's a constant if asked for."""
        zero_points = [int(z) for z in self.rng.integers(-128, 128, 2)]
        codes = [self.codes(*a), self.codes(*b)]
        r = self.requantization(1, 37, per_channel=False, **limits)
        params = Mul(*zero_points, r, codes.pop()[0] if constant else None)
        self.op(params, *codes)

    def matmul(self, a, b, y_order=(0, 1, 2), a_order=(0, 1, 2), b_order=(0, 1, 2)):
        """Append a MatMul of [batch, rows, depth] and [batch, depth, columns], stored in orders."""
        zero_points = [int(z) for z in self.rng.integers(-128, 128, 2)]
        r = self.requantization(1, 37 * a[2], per_channel=False)
        params = MatMul(*zero_points, r, a_order, b_order, y_order, (max(a[0], b[0]), a[1], b[2]))
        shapes = [
            [shape[order.index(axis)] for axis in range(3)]
            for shape, order in ((a, a_order), (b, b_order))
        ]
        self.op(params, *(self.codes(*shape) for shape in shapes))

    def pool(self, shape, kernel, stride, pads, kind, counted=False, dilation=(1, 1)):
        """Append a Pool2d."""
        x_scale, y_scale = self.rng.uniform(0.01, 0.03, 2).astype(f32)
        m = arithmetic.average_multiplier(x_scale, y_scale, kernel[0] * kernel[1]).reshape(1)
        zero_points = [int(z) for z in self.rng.integers(-128, 128, 2)]
        r = Requantization(m, zero_points[1]) if kind == "average" else None
        self.op(
            Pool2d(
                *(kind, kernel, stride, pads, zero_points[0]),
                *(counted, x_scale, y_scale, r, dilation),
            ),
            self.codes(*shape),
        )

    def softmax(self, rows, depth, scale):
        """Append a Softmax."""
        x = self.codes(rows, depth)
        want = arithmetic.softmax(x, int8(scale)).astype(np.int32) - 128
        table = arithmetic.softmax_table(f32(scale), depth)
        self.op(Softmax(table), x, want=want.astype(np.int8))


def add_convolutions(net):
    for channels in range(1, 18):
        net.conv((1, 4, 5, channels), (3, 3), 18 - channels, pads=(1, 1, 1, 1))
        net.conv((1, 4, 4, channels), (3, 2), channels, groups=channels, pads=(1, 0, 2, 1))
        net.conv((1, 3, 3, channels), (1, 1), channels % 7 + 1)
        net.matrix(channels % 3 + 1, channels, 18 - channels)
    net.conv((2, 9, 7, 6), (3, 3), 8, stride=(2, 1), pads=(0, 1, 1, 2), dilation=(2, 3))
    net.conv((1, 9, 9, 6), (4, 4), 9, stride=(2, 2), pads=(1, 1, 2, 2), groups=3)
    net.conv((1, 7, 7, 4), (2, 3), 8, stride=(3, 2), dilation=(1, 2), groups=2)
    net.conv((1, 1, 30, 5), (1, 9), 4, stride=(1, 2), pads=(0, 4, 0, 4))
    net.conv((1, 5, 5, 3), (1, 1), 4, stride=(2, 2))
    net.conv((1, 3, 3, 3), (1, 1), 4, pads=(1, 1, 1, 1))
    net.conv((1, 2, 2, 3), (5, 5), 4, pads=(4, 4, 4, 4))  # windows that lie in the padding only
    net.conv((1, 9, 4, 1), (5, 4), 24, stride=(2, 2), pads=(2, 1, 2, 1))
    net.conv((2, 6, 6, 3), (3, 3), 27, groups=3, dilation=(2, 2), pads=(2, 2, 2, 2))
    net.conv((1, 6, 6, 17), (3, 3), 17, groups=17, stride=(2, 2), pads=(0, 0, 1, 1))
    net.conv((2, 6, 5, 6), (3, 2), 8, stride=(2, 1), pads=(1, 1, 0, 1), weight_zero_point=29)
    net.conv((1, 5, 5, 6), (3, 3), 6, groups=6, pads=(1, 1, 1, 1), weight_zero_point=-128)
    net.conv((1, 6, 6, 4), (2, 2), 6, groups=2, dilation=(2, 3), weight_zero_point=127)
    net.conv((1, 3, 3, 5), (1, 1), 4, weight_zero_point=-1)
    net.conv((2, 7, 9, 8), (3, 3), 33, stride=(1, 2), pads=(1, 1, 1, 1), weight_zero_point=-128)
    net.conv((1, 6, 6, 35), (3, 3), 35, groups=35, pads=(1, 1, 1, 1), weight_zero_point=127)
    net.conv((1, 6, 9, 18), (4, 5), 18, groups=18, dilation=(1, 2), weight_zero_point=-60)
    net.conv((1, 5, 5, 3), (3, 3), 9, groups=3, weight_zero_point=-100)
    net.conv((1, 5, 5, 1), (3, 3), 7, pads=(1, 1, 1, 1), weight_zero_point=100)
    net.matrix(3, 70, 5, weight_zero_point=77)
    net.matrix(1, 70, 18, weight_zero_point=-128)
    net.matrix(1, 1, 5, weight_zero_point=127)
    net.matrix(1, 900, 5)
    net.matrix(4, 33, 10, low=-20, high=31)
    net.matrix(2, 20, 6, per_channel=False)


def add_products(net):
    for columns in range(1, 18):
        net.matmul((1, 3, columns % 5 + 1), (1, columns % 5 + 1, columns))
    for orders in itertools.product(itertools.permutations(range(3)), repeat=2):
        net.matmul((2, 3, 5), (2, 5, 11), (1, 0, 2), *orders)
    net.matmul((4, 6, 9), (1, 9, 8), (0, 1, 2))
    net.matmul((1, 6, 9), (4, 9, 16), (1, 0, 2))
    net.matmul((1, 2, 2000), (1, 2000, 3), b_order=(0, 2, 1))


def add_elementwise(net):
    for scales, dtype, subtract in itertools.product(ADD_SCALES, ("uint8", "int8"), (False, True)):
        zero_points = np.array([50, 128, 190]) - (128 if dtype == "int8" else 0)
        params = [
            QuantParams(f32(s), int(z), dtype) for s, z in zip(scales, zero_points, strict=True)
        ]
        net.op(Add(*params, subtract), net.codes(999), net.codes(999))
    for constant in (False, True):
        net.mul((300,), (300,), constant)
        net.mul((2, 3, 5, 7), (2, 1, 1, 7), constant)
        net.mul((2, 1, 5, 1), (1, 3, 1, 4), constant, low=-20, high=90)
    value = net.codes(2, 3)[0]
    net.op(Constant(value), want=np.stack([value] * SAMPLES))
    net.op(Table(net.codes(256)[0]), net.codes(300))
    net.op(FlipSign(), net.codes(257).view(np.uint8))
    net.op(FlipSign(), net.codes(255))
    x = net.rng.normal(0, 3, (SAMPLES, 400)).astype(f32)
    x[:, :9] = 0, -0.0, 1e30, -1e30, np.inf, -np.inf, 1e-45, 0.5 / 16, 1.5 / 16
    net.op(Quantize(int8(1 / 16, -7)), x)
    net.op(Quantize(int8(0.037, 127)), x)
    net.op(Quantize(QuantParams(f32(0.05), 130)), x, want=arithmetic.quantize(x, int8(0.05, 2)))
    net.op(Quantize(int8(1, -3)), np.full((SAMPLES, 1), np.nan, f32), want=np.int8([[-128]] * 2))
    net.op(Dequantize(int8(0.037, 100)), net.codes(260))
    for rows, depth, scale in ((3, 10, 0.1), (1, 1, 0.5), (2, 17, 1e-4), (1, 1001, 0.3)):
        net.softmax(rows, depth, scale)


def add_pools(net):
    for channels, kind in itertools.product((1, 7, 8, 17), ("max", "average")):
        net.pool((1, 6, 7, channels), (3, 2), (2, 1), (1, 1, 1, 0), kind)
    net.pool((2, 5, 5, 3), (2, 2), (2, 2), (0, 0, 1, 1), "average", True)
    net.pool((1, 5, 5, 9), (3, 3), (1, 1), (1, 1, 1, 1), "average", True)
    net.pool((1, 8, 8, 16), (8, 8), (1, 1), (0, 0, 0, 0), "average")
    net.pool((1, 1, 40, 3), (1, 4), (1, 4), (0, 0, 0, 0), "max")
    for kind in ("max", "average"):
        net.pool((2, 9, 8, 5), (3, 2), (2, 1), (2, 1, 1, 2), kind, dilation=(2, 3))


def add_moves(net):
    net.op(Pad((0, 1, 2, 0), (0, 2, 0, 0), -5), net.codes(2, 3, 4, 5))
    net.op(Pad((1, 0, 1, 2), (0, 0, 3, 1), 127), net.codes(2, 3, 1, 1))
    net.op(Pad((3,), (2,), -128), net.codes(5))
    net.op(Concat(3), net.codes(1, 2, 3, 4), net.codes(1, 2, 3, 1), net.codes(1, 2, 3, 7))
    net.op(Concat(1), net.codes(2, 1, 5), net.codes(2, 4, 5))
    net.op(Concat(0), net.codes(3).astype(f32), net.codes(4).astype(f32))
    for perm in ((0, 3, 1, 2), (0, 2, 3, 1), (3, 2, 1, 0), (0, 1, 2, 3), (1, 0, 2, 3)):
        net.op(Transpose(perm), net.codes(2, 3, 4, 5))
    net.op(Transpose((0, 3, 1, 2)), net.codes(1, 3, 4, 2).astype(f32))
    net.op(Transpose((0, 2, 3, 1)), net.codes(1, 3, 4, 5))
    net.op(Transpose((5, 3, 1, 0, 2, 4)), net.codes(2, 3, 2, 3, 2, 3))
    x = net.codes(2, 9, 8, 3)
    net.op(Slice((0, 1, 6, 0), (1, 2, -3, 1)), x, want=x[:, :, 1:8:2, 6::-3, :][:, :, :3])
    net.op(Slice((1, 8, 0, 2), (1, -1, 1, -2)), x, want=x[:, 1:, ::-1, :, 2::-2])
    x = net.codes(2, 1, 5, 1)
    net.op(Slice((0,) * 4, (1, 0, 1, 0)), x, want=np.tile(x, (1, 1, 3, 1, 4)))
    f = net.codes(2, 9, 8, 3).astype(f32)
    net.op(Slice((0, 0, 7, 0), (1, 4, -7, 1)), f, want=f[:, :, ::4, ::-7])


@pytest.fixture(scope="session")
def kernel_call():
    """The module beside this file that calls one C kernel."""
    return beside("kernel_call")


@pytest.fixture(scope="session")
def kernel_calls(kernel_call):
    """A KernelCall of the runtime."""
    calls = kernel_call.KernelCall(runtime_folder())
    yield calls
    calls.close()


@pytest.fixture(scope="session")
def emulated_calls(kernel_call, kernel_calls):
    """A KernelCall of levels that this processor lacks, by SIMDe on AVX2, or None."""
    header = Path(__file__).with_name("emulated_avx512.h")
    folders = Path("/usr/include"), Path("/usr/local/include")
    able = any((folder / "simde/x86/avx512.h").exists() for folder in folders)
    if not (able and shutil.which("gcc") and kernel_call.LEVELS["avx2"] <= cpu_features()):
        yield None
        return
    flags = "-std=c99", "-O1", "-ffp-contract=off", "-mavx2", "-mfma"
    flags += (f'-DMIDGE_INTRINSICS="{header}"',)
    calls = kernel_call.KernelCall(kernel_calls.runtime, flags, pretend=True)
    yield calls
    calls.close()


@pytest.fixture(scope="session")
def network():
    """The class that builds programs by hand."""
    return Network


@pytest.fixture(scope="session")
def zoo():
    """A Network with every operator in many shapes."""
    net = Network()
    add_convolutions(net)
    add_products(net)
    add_elementwise(net)
    add_pools(net)
    add_moves(net)
    return net


@pytest.fixture
def run_on_board(tmp_path):
    """A function (folder, name, board, requantization form) that returns (status, output)."""
    return partial(beside("boards").run, tmp_path)
