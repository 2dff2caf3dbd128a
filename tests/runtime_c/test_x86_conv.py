"""The vector convolutions and matrix products make the bits of their portable twins."""

import itertools
import platform
from dataclasses import dataclass, replace

import numpy as np
import pytest

from midge.convert.pack import panels

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="this machine is no x86-64"
)
SEED = 41
CONV, PRODUCT = "midge_conv2d_c4n16_s8", "midge_fully_connected_c4n16_s8"
LEVELS = ("avx2", "avxvnni", "avx512vnni")
WHOLE = (3, -7, -128, 127)  # zero points of x and y, low, high
W_ZERO_POINTS = (0, -128, 127)
OVER_READ = 64  # bytes after the last weights that a kernel may read, as the emitter leaves them


@dataclass(frozen=True)
class Layer:
    """A convolution of X [images, H, W, C]; rings: rows of those of X and Y, 0 for none."""

    images: int = 1
    size: tuple[int, int] = (5, 7)
    channels: tuple[int, int] = (5, 9)
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    block: int = 6
    limits: tuple[int, int, int, int] = WHOLE
    rings: tuple[int, int] = (0, 0)
    w_zero_point: int = 0

    @property
    def depth(self):
        return self.kernel[0] * self.kernel[1] * self.channels[0]

    @property
    def out_size(self):
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        pads = self.pads[0] + self.pads[2], self.pads[1] + self.pads[3]
        inputs = zip(self.size, pads, spans, self.stride, strict=True)
        return tuple((n + p - span) // s + 1 for n, p, span, s in inputs)


def four_codes(*values):
    """Return the MIDGE_CODES of zero points of x and y, low, high."""
    return int.from_bytes(np.array(values, np.int8).tobytes(), "little")


@pytest.fixture(scope="module", params=LEVELS)
def level(request, kernel_calls, emulated_calls):
    """(name of a level, calls that can run it): this processor's own, or emulated."""
    name = request.param
    if f"{CONV}_{name}" in kernel_calls.levels(CONV):
        return name, kernel_calls
    if name == "avx2" or emulated_calls is None:
        pytest.skip(f"this processor has no {name}, and AVX2, gcc and SIMDe to emulate it")
    return name, emulated_calls


def constants(rng, weight, bias, m):
    """Return the data of a layer: bias [O], m [O], weight [O, K] in panels."""
    words = np.concatenate([bias.astype("<i4"), m.astype("<f4").view("<i4")])
    tail = rng.integers(0, 256, OVER_READ).astype(np.uint8).tobytes()
    return words.tobytes() + panels(weight).tobytes() + tail


def random_constants(rng, out, depth, w_zero_point=0, offset=128):
    """Weights with both extremes, and multipliers that spread the outputs over all codes.

    offset: of the codes that are multiplied, which biases take away again.
    """
    weight = rng.integers(-128, 128, (out, depth)).astype(np.int8)
    weight.reshape(-1)[:2] = (-128, 127)[: weight.size]
    centred = weight.astype(int) - w_zero_point
    bias = rng.integers(-(2**12), 2**12, out) - offset * centred.sum(axis=1)
    m = rng.uniform(0.2, 2, out) / np.sqrt(depth) / 60
    return constants(rng, weight, bias, m)


def convolve(calls, kernel, layer, x, data, rows=None, y=None):
    """Return Y [rows of all images or of the ring, W * O] as a kernel leaves it."""
    height, width = layer.out_size
    C, out = layer.channels
    all_rows = layer.images * height
    y = np.full((layer.rings[1] or all_rows, width * out), 77, np.int8) if y is None else y
    words = {
        "MIDGE_CONV_X_SIZE": layer.size,
        "MIDGE_CONV_Y_SIZE": layer.out_size,
        "MIDGE_CONV_CHANNELS": (C, out),
        "MIDGE_CONV_KERNEL": layer.kernel,
        "MIDGE_CONV_STRIDE": layer.stride,
        "MIDGE_CONV_DILATION": layer.dilation,
        "MIDGE_CONV_PADS": layer.pads[:2],
        "MIDGE_CONV_GROUPS": (layer.images, 1),
        "MIDGE_CONV_CODES": four_codes(*layer.limits),
        "MIDGE_CONV_BLOCK": (layer.block, layer.w_zero_point & 0xFFFF),
        "MIDGE_OP_RINGS": layer.rings,
    }
    scratch = 2 * layer.block * (-(-layer.depth // 4) * 4)
    got = calls(
        kernel,
        words,
        {"MIDGE_OP_X": x, "MIDGE_OP_Y": y},
        data,
        rows=rows or (0, all_rows),
        scratch=scratch,
    )
    return np.frombuffer(got["MIDGE_OP_Y"], np.int8).reshape(y.shape)


def multiply(calls, kernel, depth, channels, x, data, limits=WHOLE, rows=None, w_zero_point=0):
    """Return y [channels] as a kernel leaves it."""
    words = {
        "MIDGE_FC_PIXELS": 1,
        "MIDGE_FC_DEPTH": depth,
        "MIDGE_FC_CHANNELS": channels,
        "MIDGE_FC_CODES": four_codes(*limits),
        "MIDGE_FC_W_ZERO_POINT": w_zero_point,
    }
    y = np.full(channels, 77, np.int8)
    got = calls(
        kernel,
        words,
        {"MIDGE_OP_X": x, "MIDGE_OP_Y": y},
        data,
        rows=rows or (0, -(-channels // 16)),
        scratch=2 * (-(-depth // 4) * 4),
    )
    return np.frombuffer(got["MIDGE_OP_Y"], np.int8)


def assert_convolves(level, layer, rng, rows=None, x=None, data=None):
    """The kernel of a level makes the codes of the portable one, and not all the same."""
    name, calls = level
    if x is None:
        x = rng.integers(-128, 128, x_shape(layer)).astype(np.int8)
    data = data or random_constants(rng, layer.channels[1], layer.depth, layer.w_zero_point)
    want = convolve(calls, CONV, layer, x, data, rows)
    got = convolve(calls, f"{CONV}_{name}", layer, x, data, rows)
    np.testing.assert_array_equal(got, want, err_msg=str(layer))
    return want


def x_shape(layer):
    rows = layer.rings[0] or layer.images * layer.size[0]
    return rows, layer.size[1], layer.channels[0]


def assert_multiplies(level, depth, channels, x, data, **options):
    name, calls = level
    want = multiply(calls, PRODUCT, depth, channels, x, data, **options)
    got = multiply(calls, f"{PRODUCT}_{name}", depth, channels, x, data, **options)
    np.testing.assert_array_equal(got, want, err_msg=f"{depth} -> {channels}")
    return want


@pytest.mark.parametrize("out", [*range(1, 18), 24, 31, 32, 33, 47, 48, 64, 65])
def test_every_number_of_output_channels(level, out):
    rng = np.random.default_rng([SEED, out])
    for zero in W_ZERO_POINTS:
        codes = assert_convolves(level, Layer(channels=(4, out), w_zero_point=zero), rng)
        assert len(np.unique(codes)) > 10


@pytest.mark.parametrize("C", [*range(1, 18), 31, 32, 33])
@pytest.mark.parametrize("kernel", [1, 3])
def test_every_number_of_input_channels(level, C, kernel):
    layer = Layer(channels=(C, 9), kernel=(kernel, kernel), pads=(kernel // 2,) * 4)
    for zero in W_ZERO_POINTS:
        layer = replace(layer, w_zero_point=zero)
        assert_convolves(level, layer, np.random.default_rng([SEED, C]))


@pytest.mark.parametrize("pixels", range(1, 18))
@pytest.mark.parametrize("C", [3, 4])
def test_every_number_of_pixels(level, pixels, C):
    layer = Layer(size=(1, pixels), channels=(C, 5), kernel=(1, 1), pads=(0,) * 4, block=30)
    assert_convolves(level, layer, np.random.default_rng([SEED, pixels]))
    layer = replace(layer, kernel=(1, 3), pads=(0, 1, 0, 1), w_zero_point=pixels - 9)
    assert_convolves(level, layer, np.random.default_rng([SEED, pixels]))


@pytest.mark.parametrize("block", [1, 2, 5, 6, 7, 12, 24, 35])
@pytest.mark.parametrize("C", [3, 16])
def test_every_block_of_pixels(level, block, C):
    layer = Layer(images=2, channels=(C, 17), block=block, w_zero_point=-block)
    assert_convolves(level, layer, np.random.default_rng(SEED))


@pytest.mark.parametrize("number", range(80))
def test_random_windows(level, number):
    layer = None
    rng = np.random.default_rng([SEED, number])
    while layer is None or min(layer.out_size) < 1:
        choose = lambda low, high, n=2: tuple(int(v) for v in rng.integers(low, high, n))  # noqa: E731
        layer = Layer(
            images=choose(1, 3, 1)[0],
            size=choose(1, 12),
            channels=choose(1, 20),
            kernel=choose(1, 5),
            stride=choose(1, 4),
            dilation=tuple(int(v) for v in rng.choice([1, 1, 1, 2, 3], 2)),
            pads=choose(0, 4, 4),
            block=choose(1, 30, 1)[0],
            limits=(*choose(-128, 128), -128, 127),
            w_zero_point=int(rng.choice([0, -128, 127, rng.integers(-128, 128)])),
        )
    assert_convolves(level, layer, rng)


def test_weights_of_many_channels_are_met_in_parts(level):
    layer = Layer(size=(3, 5), channels=(64, 49), kernel=(3, 3), block=12, w_zero_point=90)
    assert_convolves(level, layer, np.random.default_rng(SEED))


@pytest.mark.parametrize(("first", "last"), [(0, 1), (1, 3), (2, 7), (5, 10), (9, 10)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_strips_of_rows_and_nothing_beside_them(level, first, last, kernel):
    layer = Layer(images=2, channels=(8, 9), kernel=(kernel, kernel), pads=(kernel // 2,) * 4)
    rng = np.random.default_rng(SEED)
    y = assert_convolves(level, replace(layer, block=20), rng, rows=(first, last))
    outside = [row for row in range(10) if not first <= row < last]
    assert (y[outside] == 77).all()


@pytest.mark.parametrize(("kernel", "C"), [(1, 8), (3, 8), (3, 3)])
def test_rows_of_rings(level, kernel, C):
    rng = np.random.default_rng(SEED)
    size = Layer(size=(9, 7), channels=(C, 9), kernel=(kernel, kernel), pads=(kernel // 2,) * 4)
    layer = replace(size, block=25, rings=(5, 3))
    whole = rng.integers(-128, 128, x_shape(size)).astype(np.int8)
    data = random_constants(rng, 9, layer.depth)
    want = convolve(level[1], CONV, size, whole, data)
    for first in range(0, 7):
        ring = np.full(x_shape(layer), 55, np.int8)
        for row in range(max(0, first - 1), min(9, first + 4)):
            ring[row % 5] = whole[row]
        got = convolve(level[1], f"{CONV}_{level[0]}", layer, ring, data, (first, first + 3))
        rows = range(first, first + 3)
        np.testing.assert_array_equal(got[[row % 3 for row in rows]], want[first : first + 3])


EXTREME_CODES = [-128, 127]
EXTREME_LIMITS = [
    (-128, -128, -128, 127),
    (127, 127, -128, 127),
    (-128, 127, -128, 127),
    (127, -128, -128, 127),
    (0, -128, -128, -128),
    (0, 127, 127, 127),
    (5, -3, -3, 50),
    (5, 100, -128, 101),
]


def extreme_constants(rng, out, depth, zero_point, w_zero_point):
    """Extreme weights, biases that bring the sums near the ends of int32, large multipliers."""
    weight = np.where(np.arange(out)[:, None] % 3 == 2, -128, 127) * np.ones((1, depth), int)
    weight[out // 2] = np.where(np.arange(depth) % 2, 127, -128)
    reach = 255 * (128 + abs(w_zero_point)) * depth
    top = 2**31 - 1 - reach
    bias = rng.integers(-reach, reach, out)
    bias[::4] = top
    bias[1::4] = -top
    folded = bias - zero_point * (weight - w_zero_point).sum(axis=1)
    folded = (folded + 2**31) % 2**32 - 2**31  # it may wrap
    m = np.exp2(rng.uniform(-24, 0, out)).astype(np.float32)
    m[::5] = np.float32(2.0) ** -24
    m[3::5] = 3e38
    return constants(rng, weight.astype(np.int8), folded, m)


@pytest.mark.parametrize("limits", EXTREME_LIMITS)
@pytest.mark.parametrize("code", EXTREME_CODES)
@pytest.mark.parametrize("zero", W_ZERO_POINTS)
def test_extreme_codes_sums_and_multipliers(level, limits, code, zero):
    rng = np.random.default_rng(SEED)
    layer = Layer(channels=(7, 33), limits=limits, w_zero_point=zero)
    x = np.full(x_shape(layer), code, np.int8)
    x[2] = -1 - code
    x[3, ::2] = -1 - code
    data = extreme_constants(rng, 33, layer.depth, limits[0] + 128, zero)
    assert_convolves(level, layer, rng, x=x, data=data)
    for depth in (1, 6, 40):
        v = np.resize(x[3], depth)
        data = extreme_constants(rng, 33, depth, limits[0], zero)
        assert_multiplies(level, depth, 33, v, data, limits=limits, w_zero_point=zero)


@pytest.mark.parametrize("channels", [*range(1, 18), 31, 32, 33, 48, 49, 64, 65])
def test_every_number_of_channels_of_a_product(level, channels):
    rng = np.random.default_rng([SEED, channels])
    for depth in (*range(1, 18), 31, 32, 33, 64):
        x = rng.integers(-128, 128, depth).astype(np.int8)
        for zero in W_ZERO_POINTS:
            data = random_constants(rng, channels, depth, zero, offset=0)
            assert_multiplies(level, depth, channels, x, data, w_zero_point=zero)


@pytest.mark.parametrize(("first", "last"), [*itertools.combinations(range(5), 2)])
def test_strips_of_panels_and_nothing_beside_them(level, first, last):
    rng = np.random.default_rng(SEED)
    x = rng.integers(-128, 128, 20).astype(np.int8)
    data = random_constants(rng, 60, 20, offset=0)
    y = assert_multiplies(level, 20, 60, x, data, rows=(first, last))
    assert (y[: 16 * first] == 77).all()
    assert (y[16 * last :] == 77).all()


def test_products_of_weights_of_minus_128_are_exact_too(level):
    rng = np.random.default_rng(SEED)
    weight = np.full((9, 8), -128, np.int8)
    words = np.concatenate([np.zeros(9, "<i4"), np.full(9, 1e-4, "<f4").view("<i4")])
    data = words.tobytes() + panels(weight).tobytes() + bytes(OVER_READ)
    for x in (-128, -1, 0, 127):
        assert_multiplies(level, 8, 9, np.full(8, x, np.int8), data)
        layer = Layer(size=(2, 2), channels=(8, 9), kernel=(1, 1), pads=(0,) * 4)
        assert_convolves(level, layer, rng, x=np.full((2, 2, 8), x, np.int8), data=data)
