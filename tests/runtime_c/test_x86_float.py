"""The float layers for AVX2 and AVX512F stay within their bounds and inside their buffers."""

import platform
from dataclasses import dataclass, replace

import numpy as np
import pytest

from midge.convert.executor_ops import Operands
from midge.convert.float_bounds import error_bound, reference
from midge.convert.pack_float import conv2d_panels, panels
from midge.convert.plan import PlanOp, PlanTensor
from midge.convert.plan_float import Conv2dF32, FullyConnectedF32, Limits, Pool2dF32

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="this machine is no x86-64"
)
SEED = 43
f32 = np.float32
WIDTHS = [*range(1, 18), 24, 31, 32, 33, 48, 79]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0], f32)


@dataclass(frozen=True)
class Layer:
    """A convolution of X [images, H, W, C]; `depthwise` has one group per channel."""

    images: int = 1
    size: tuple[int, int] = (5, 7)
    channels: tuple[int, int] = (5, 9)
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    groups: int = 1
    coded: bool = False
    limits: tuple[float, float] = (-np.inf, np.inf)

    @property
    def base(self):
        depthwise = self.groups == self.channels[0] > 1 and not self.coded
        return f"midge_{'depthwise_' * depthwise}conv2d_f32{'_s8' * self.coded}"

    @property
    def x_shape(self):
        return self.images, *self.size, self.channels[0]

    @property
    def y_shape(self):
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        pads = self.pads[0] + self.pads[2], self.pads[1] + self.pads[3]
        inputs = zip(self.size, pads, spans, self.stride, strict=True)
        height, width = ((n + p - span) // s + 1 for n, p, span, s in inputs)
        return self.images, height, width, self.channels[1]


@dataclass(frozen=True)
class Level:
    """An instruction set.

    Args:
        name: as kernels end.
        calls: what can run its kernels: this processor, or an emulation.
        own: what this processor can run.
    """

    name: str
    calls: object
    own: object

    def run(self, how, base, *arguments):
        """Y as the kernel for `base` leaves it: `how` calls it.

        Every sum is made in the same order on every level, so it must have the bits of AVX2.
        """
        y = how(self.calls, f"{base}_{self.name}", *arguments)
        if self.name != "avx2":
            want = how(self.own, f"{base}_avx2", *arguments)
            np.testing.assert_array_equal(y.view(np.uint32), want.view(np.uint32))
        return y

    def forms(self, base):
        """(what can call it, kernel) of the portable form and of this level's."""
        return (self.own, base), (self.calls, f"{base}_{self.name}")


@pytest.fixture(scope="module", params=["avx2", "avx512f"])
def level(request, kernel_calls, emulated_calls):
    """A Level: this processor's own, or emulated."""
    name, base = request.param, "midge_conv2d_f32"
    if f"{base}_{name}" in kernel_calls.levels(base):
        return Level(name, kernel_calls, kernel_calls)
    if name == "avx2" or emulated_calls is None:
        pytest.skip(f"this processor has no {name}, and AVX2, gcc and SIMDe to emulate it")
    return Level(name, emulated_calls, kernel_calls)


def parameters(layer, rng):
    """Random weights for a layer."""
    shape = (layer.channels[1], *layer.kernel, layer.channels[0] // layer.groups)
    weight, scale = rng.normal(0, 1, shape).astype(f32), None
    if layer.coded:
        weight = rng.integers(-128, 128, shape).astype(np.int8)
        scale = rng.uniform(0.001, 0.1, shape[0]).astype(f32)
    bias = rng.normal(0, 1, shape[0]).astype(f32)
    geometry = layer.stride, layer.pads, layer.dilation, layer.groups
    return Conv2dF32(weight, bias, *geometry, scale, Limits(*layer.limits))


def constants(p, weight):
    """Bytes of the data of a layer."""
    parts = [p.bias, *([] if p.scale is None else [p.scale]), weight]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def limit_words(p):
    return {"MIDGE_LIMIT_LOW": f32(p.limits.low), "MIDGE_LIMIT_HIGH": f32(p.limits.high)}


def convolve(calls, kernel, layer, p, x, rows=None):
    """Return Y as a kernel leaves it; 77 where it wrote nothing."""
    weight = conv2d_panels(p.weight, layer.groups)
    if "depthwise" in kernel:
        weight = np.moveaxis(p.weight[..., 0], 0, -1)
    y = np.full(layer.y_shape, 77, f32)
    words = {
        "MIDGE_CONV_X_SIZE": layer.size,
        "MIDGE_CONV_Y_SIZE": layer.y_shape[1:3],
        "MIDGE_CONV_CHANNELS": layer.channels,
        "MIDGE_CONV_KERNEL": layer.kernel,
        "MIDGE_CONV_STRIDE": layer.stride,
        "MIDGE_CONV_DILATION": layer.dilation,
        "MIDGE_CONV_PADS": layer.pads[:2],
        "MIDGE_CONV_GROUPS": (layer.images, layer.groups),
        **limit_words(p),
    }
    rows = rows or (0, layer.images * layer.y_shape[1])
    buffers = {"MIDGE_OP_X": x, "MIDGE_OP_Y": y}
    got = calls(kernel, words, buffers, constants(p, weight), rows=rows)
    return np.frombuffer(got["MIDGE_OP_Y"], f32).reshape(y.shape)


def multiply(calls, kernel, p, x, rows=None):
    """Return Y [rows, pixels, channels] of X [rows, pixels, depth]."""
    y = np.full((*x.shape[:2], len(p.weight)), 77, f32)
    words = {
        "MIDGE_FC_PIXELS": x.shape[1],
        "MIDGE_FC_DEPTH": x.shape[2],
        "MIDGE_FC_CHANNELS": len(p.weight),
        **limit_words(p),
    }
    buffers = {"MIDGE_OP_X": x, "MIDGE_OP_Y": y}
    got = calls(kernel, words, buffers, constants(p, panels(p.weight)), rows=rows or (0, len(x)))
    return np.frombuffer(got["MIDGE_OP_Y"], f32).reshape(y.shape)


def assert_within_bound(p, x, y):
    """Y is near enough to what float64 makes of X; both as stored."""
    tensors = [PlanTensor("x", x.shape, "float32", 0), PlanTensor("y", y.shape, "float32", 1)]
    op, o = PlanOp("layer", p, (0,), 1), Operands([x[None]], tensors[:1], tensors[1])
    truth = reference(op, o).reshape(y.shape)
    excess = np.abs(y - truth) - error_bound(op, o).reshape(y.shape)
    assert excess.max() <= 0, (p, excess.max())


def assert_same_kind(got, want):
    """NaN and infinities stand where they do in `want`."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    assert not np.isinf(got[np.isfinite(want)]).any()


def assert_convolves(level, layer, rng):
    p = parameters(layer, rng)
    x = rng.normal(0, 1, layer.x_shape).astype(f32)
    y = level.run(convolve, layer.base, layer, p, x)
    assert_within_bound(p, x, y)
    return p, x, y


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("out", WIDTHS)
def test_every_number_of_output_channels(level, out, coded):
    rng = np.random.default_rng([SEED, out])
    layer = Layer(channels=(4, out), coded=coded, limits=(-1, 2))
    assert_convolves(level, layer, rng)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("C", range(1, 18))
def test_every_number_of_input_channels(level, C, kernel):
    layer = Layer(channels=(C, 29), kernel=(kernel, kernel), pads=(kernel // 2,) * 4)
    assert_convolves(level, layer, np.random.default_rng([SEED, C]))


@pytest.mark.parametrize("kernel", [(3, 3), (1, 3), (3, 1), (2, 3), (5, 5)])
@pytest.mark.parametrize("C", range(2, 18))
def test_depthwise_of_every_number_of_channels(level, C, kernel):
    pads = (kernel[0] // 2, kernel[1] // 2) * 2
    rng = np.random.default_rng([SEED, C])
    for stride, size in (((1, 1), (5, 7)), ((2, 2), (6, 6)), ((1, 1), (1, 1)), ((1, 2), (2, 9))):
        layer = Layer(1, size, (C, C), kernel, stride, (1, 1), pads, C, limits=(-0.5, 2))
        assert_convolves(level, layer, rng)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("pixels", [*range(1, 18), 25])
def test_products_of_every_number_of_pixels(level, pixels, coded):
    rng = np.random.default_rng([SEED, pixels])
    for depth, out in ((pixels, 29), (33, pixels), (8, 112)):
        weight, scale = rng.normal(0, 1, (out, depth)).astype(f32), None
        if coded:
            weight = rng.integers(-128, 128, (out, depth)).astype(np.int8)
            scale = rng.uniform(0.001, 0.1, out).astype(f32)
        bias = rng.normal(0, 1, out).astype(f32)
        p = FullyConnectedF32(weight, bias, scale, Limits(-3, 4))
        x = rng.normal(0, 1, (2, pixels, depth)).astype(f32)
        y = level.run(multiply, f"midge_fully_connected_f32{'_s8' * coded}", p, x)
        assert_within_bound(p, x.reshape(-1, depth), y.reshape(-1, out))


@pytest.mark.parametrize("number", range(60))
def test_random_windows(level, number):
    rng = np.random.default_rng([SEED, number])
    layer = None
    while layer is None or min(layer.y_shape) < 1:
        choose = lambda low, high, n=2: tuple(int(v) for v in rng.integers(low, high, n))  # noqa: E731
        groups, each = choose(1, 5)
        layer = Layer(
            images=choose(1, 3, 1)[0],
            size=choose(1, 12),
            channels=(groups * each, groups * choose(1, 40, 1)[0]),
            kernel=choose(1, 5),
            stride=choose(1, 4),
            dilation=tuple(int(v) for v in rng.choice([1, 1, 1, 2, 3], 2)),
            pads=choose(0, 4, 4),
            groups=groups,
            coded=bool(number % 2),
            limits=(-2.0, 9.0),
        )
    assert_convolves(level, layer, rng)


STRIPS = [
    Layer(2, channels=(6, 53)),
    Layer(2, channels=(6, 53), coded=True),
    Layer(2, channels=(3, 8), stride=(2, 2), size=(9, 9)),
    Layer(2, channels=(11, 11), groups=11),
    Layer(2, channels=(6, 9), kernel=(5, 4), pads=(2, 2, 2, 1), groups=3),
]


@pytest.mark.parametrize("layer", STRIPS)
def test_strips_of_rows_give_the_same_bits_and_touch_nothing_else(level, layer):
    rng = np.random.default_rng(SEED)
    for calls, kernel in level.forms(layer.base):
        p = parameters(layer, rng)
        x = rng.normal(0, 1, layer.x_shape).astype(f32)
        whole = convolve(calls, kernel, layer, p, x).reshape(-1, *layer.y_shape[2:])
        for rows in ((0, 1), (1, 3), (2, 7), (4, 10), (9, 10)):
            part = convolve(calls, kernel, layer, p, x, rows).reshape(whole.shape)
            np.testing.assert_array_equal(part[slice(*rows)], whole[slice(*rows)])
            assert (part[: rows[0]] == 77).all()
            assert (part[rows[1] :] == 77).all()


def test_strips_of_a_product_give_the_same_bits(level):
    rng = np.random.default_rng(SEED)
    weight = rng.normal(0, 1, (125, 21)).astype(f32)
    p = FullyConnectedF32(weight, rng.normal(0, 1, 125).astype(f32))
    x = rng.normal(0, 1, (9, 5, 21)).astype(f32)
    for calls, kernel in level.forms("midge_fully_connected_f32"):
        whole = multiply(calls, kernel, p, x)
        for first, last in ((0, 1), (1, 4), (2, 9)):
            part = multiply(calls, kernel, p, x, (first, last))
            np.testing.assert_array_equal(part[first:last], whole[first:last])
            assert (part[:first] == 77).all()
            assert (part[last:] == 77).all()


KINDS = [
    Layer(channels=(3, 29), limits=(0.0, np.inf)),
    Layer(channels=(3, 29), coded=True),
    Layer(channels=(13, 13), groups=13, limits=(-1e30, 1e30)),
    Layer(channels=(13, 13), groups=13, kernel=(4, 2)),
]


@pytest.mark.parametrize("layer", KINDS)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e30, 1e-45])
def test_nan_and_infinities_pass_as_in_portable_c(level, layer, special):
    rng = np.random.default_rng(SEED)
    p = parameters(layer, rng)
    x = rng.normal(0, 1, layer.x_shape).astype(f32)
    x[0, 1, 2] = special
    x[0, 4, 6, 0] = -special
    want = convolve(level.own, layer.base, layer, p, x)
    assert_same_kind(convolve(level.calls, f"{layer.base}_{level.name}", layer, p, x), want)
    if np.isnan(special):
        assert np.isnan(want).any()


def pool(calls, kernel, p, size, x, rows=None):
    """Return Y of a pool of X [N, H, W, C] as a kernel leaves it."""
    y = np.full((len(x), *size, x.shape[3]), 77, f32)
    words = {
        "MIDGE_POOL_X_SIZE": x.shape[1:3],
        "MIDGE_POOL_Y_SIZE": size,
        "MIDGE_POOL_CHANNELS": (len(x), x.shape[3]),
        "MIDGE_POOL_KERNEL": p.kernel,
        "MIDGE_POOL_STRIDE": p.stride,
        "MIDGE_POOL_PADS": p.pads[:2],
        "MIDGE_POOL_DILATION": p.dilation,
        "MIDGE_POOL_COUNTS": int(p.kind == "average" and not p.count_include_pad),
    }
    buffers = {"MIDGE_OP_X": x, "MIDGE_OP_Y": y}
    got = calls(kernel, words, buffers, rows=rows or (0, len(x) * size[0]))
    return np.frombuffer(got["MIDGE_OP_Y"], f32).reshape(y.shape)


@pytest.mark.parametrize(("kind", "counted"), [("max", False), ("average", 0), ("average", 1)])
@pytest.mark.parametrize("C", [*range(1, 18), 31, 32, 41])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_pools_give_the_bits_of_portable_c(level, C, kind, counted, dilation):
    rng = np.random.default_rng([SEED, C])
    base = f"midge_{kind}_pool_f32"
    pads = (dilation[0], dilation[1], dilation[0], 0)
    p = Pool2dF32(kind, (3, 2), (2, 1), pads, bool(counted), dilation)
    x = rng.normal(0, 1, (2, 6, 7, C)).astype(f32)
    x[1, 2, :, 0] = SPECIAL
    want = pool(level.own, base, p, (3, 7), x)
    np.testing.assert_array_equal(level.run(pool, base, p, (3, 7), x), want)
    assert_within_bound(p, x[:1], want[:1])
    part = level.run(pool, base, p, (3, 7), x, (2, 5)).reshape(6, 7, C)
    np.testing.assert_array_equal(part[2:5], want.reshape(6, 7, C)[2:5])
    assert (part[[0, 1, 5]] == 77).all()


def test_a_depthwise_layer_may_make_several_channels_from_one(level):
    layer = replace(STRIPS[3], channels=(5, 15), groups=5)
    assert_convolves(level, layer, np.random.default_rng(SEED))
