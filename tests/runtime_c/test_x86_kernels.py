"""Every kernel of every instruction set against the portable one, behind guard pages."""

import itertools

import numpy as np
import pytest

from midge.convert.emit_add import find_form
from midge.convert.plan import Add
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams

f32 = np.float32
EXTREMES = (-128, 127, 3)  # zero-points
RAMP = 2.0  # octaves that multipliers of one layer span


class Forms:
    """Calls portable kernels, and vector forms: this processor's own, or emulated.

    Args:
        own: calls what this processor has.
        emulated: calls what it has not, or None.
    """

    def __init__(self, own, emulated):
        self.own, self.emulated = own, emulated

    def of(self, base):
        """Return (name, what calls it) of every vector form of `base`."""
        names = self.own.levels(base)
        more = self.emulated.levels(base) if self.emulated else []
        return [(n, self.own) for n in names] + [(n, self.emulated) for n in more if n not in names]


@pytest.fixture(scope="module")
def calls(kernel_calls, emulated_calls):
    """Forms of this processor, and of more levels where they can be emulated."""
    return Forms(kernel_calls, emulated_calls)


def compare(calls, base, words, buffers, data=b"", **options):
    """Run `base` and its vector forms on one record; returns what they agree on."""
    forms = calls.of(base)
    if not forms:
        pytest.skip(f"no vector form of {base} runs on this processor")
    want = calls.own(base, words, buffers, data, **options)
    for name, call in forms:
        got = call(name, words, buffers, data, **options)
        for buffer in want:
            ours, theirs = (np.frombuffer(r[buffer], np.int8) for r in (got, want))
            wrong = np.flatnonzero(ours != theirs)
            assert not len(wrong), f"{name}: {buffer} differs at {wrong[:9]} with {words}"
    return want


def codes_of(rng, kind, shape):
    """Random codes, the two extreme ones only, or one extreme everywhere."""
    if kind == "random":
        return rng.integers(-128, 128, shape).astype(np.int8)
    if kind == "extreme":
        return rng.choice(np.array([-128, 127], np.int8), shape)
    return np.full(shape, kind, np.int8)


def multipliers(rng, channels, largest):
    """Multipliers that spread sums up to `largest` over the codes and beyond, and exact ties."""
    m = 2.0 ** rng.uniform(-RAMP, RAMP, channels) * 128 / largest
    m[::5] = 2.0 ** np.floor(np.log2(m[::5]))
    return m.astype(f32)


class Window:
    """A depthwise convolution or pool of one random shape.

    Args:
        rng: decides what is not given.
        channels: of X and Y.
        kernel, stride, pads (top, left, bottom, right), dilation: of the window.
        size: height and width of X.
    """

    def __init__(self, rng, channels, kernel, stride, pads, size, *, dilation=(1, 1), images=1):
        self.rng, self.channels, self.kernel, self.stride = rng, channels, kernel, stride
        self.pads, self.size, self.dilation, self.images = pads, size, dilation, images
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        self.out = tuple(
            (n + pads[i] + pads[i + 2] - span) // s + 1
            for i, (n, span, s) in enumerate(zip(size, spans, stride, strict=True))
        )

    def buffers(self, kind, rings=(0, 0)):
        """X with codes of this kind, and Y with others; rings hold fewer rows."""
        rows = [self.images * n[0] for n in (self.size, self.out)]
        rows = [ring or n for ring, n in zip(rings, rows, strict=True)]
        x = codes_of(self.rng, kind, (rows[0], self.size[1], self.channels))
        y = codes_of(self.rng, "random", (rows[1], self.out[1], self.channels))
        return {"MIDGE_OP_X": x, "MIDGE_OP_Y": y}


def depthwise(calls, codes, window, kind="random", weights="random", limits=(-128, 127), **options):
    """Compare a depthwise convolution, and one by weights with a zero-point, drawn as the rest."""
    for base in ("midge_depthwise_conv2d_s8", "midge_conv2d_asymmetric_s8"):
        depthwise_by(base, calls, codes, window, kind, weights, limits, **options)


def depthwise_by(base, calls, codes, window, kind, weights, limits, **options):
    """Compare the forms of one kernel of depthwise convolutions."""
    w, rng = window, window.rng
    zero_points = [int(z) for z in rng.choice([*EXTREMES, -20], 2)]
    rings = options.pop("rings", (0, 0))
    words = {
        "MIDGE_CONV_X_SIZE": w.size,
        "MIDGE_CONV_Y_SIZE": w.out,
        "MIDGE_CONV_CHANNELS": (w.channels, w.channels),
        "MIDGE_CONV_KERNEL": w.kernel,
        "MIDGE_CONV_STRIDE": w.stride,
        "MIDGE_CONV_DILATION": w.dilation,
        "MIDGE_CONV_PADS": w.pads[:2],
        "MIDGE_CONV_GROUPS": (w.images, w.channels),
        "MIDGE_CONV_CODES": codes(*zero_points, *limits),
        "MIDGE_OP_RINGS": rings,
    }
    if "asymmetric" in base:
        words["MIDGE_CONV_W_ZERO_POINT"] = int(rng.choice([*EXTREMES, -90]))
    taps = w.kernel[0] * w.kernel[1]
    bias = rng.integers(-3000, 3000, w.channels).astype(np.int32)
    weight = codes_of(rng, weights, (taps, w.channels))
    m = multipliers(rng, w.channels, taps * 255 * 64)
    data = b"".join(a.tobytes() for a in (bias, m, weight)) + b"\0" * (-weight.size % 4)
    rows = options.pop("rows", (0, w.images * w.out[0]))
    buffers = w.buffers(kind, rings)
    scratch = w.kernel[1] * w.channels
    compare(calls, base, words, buffers, data, rows=rows, scratch=scratch, **options)


CHANNELS = (*range(1, 19), 24, 31, 32, 33, 47, 48, 64, 70)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_depthwise_3_by_3_of_every_number_of_channels(calls, kernel_call, stride):
    rng = np.random.default_rng(stride)
    for channels in CHANNELS:
        size, pads = rng.integers(3, 9, 2).tolist(), rng.integers(0, 3, 4).tolist()
        window = Window(rng, channels, (3, 3), (stride, stride), pads, size)
        kind = rng.choice(["random", "extreme"])
        depthwise(calls, kernel_call.codes, window, kind)


@pytest.mark.parametrize("kernel", [(1, 1), (5, 5), (3, 5), (1, 3), (4, 2), (7, 7), (9, 1), (3, 3)])
def test_depthwise_of_other_windows(calls, kernel_call, kernel):
    rng = np.random.default_rng(kernel[0] * 10 + kernel[1])
    for channels in (3, 8, 16, 21, 40):
        pads = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
        stride, dilation = rng.integers(1, 4, 2).tolist(), rng.integers(1, 3, 2).tolist()
        size = [(k - 1) * 2 + 1 + int(rng.integers(0, 4)) for k in kernel]
        window = Window(rng, channels, kernel, stride, pads, size, dilation=dilation, images=2)
        depthwise(calls, kernel_call.codes, window, "extreme")


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 2), (3, 1), (2, 13)])
def test_depthwise_of_images_smaller_than_the_window(calls, kernel_call, size):
    rng = np.random.default_rng(size[1])
    for channels, stride, pads in ((5, 1, 1), (16, 1, 2), (17, 2, 1), (8, 2, 2), (8, 1, 2)):
        window = Window(rng, channels, (3, 3), (stride, stride), [pads] * 4, size)
        depthwise(calls, kernel_call.codes, window)


@pytest.mark.parametrize("x", [-128, 127])
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_of_extreme_codes_everywhere(calls, kernel_call, x, weight, stride):
    rng = np.random.default_rng(7)
    for channels, limits in ((7, (-128, 127)), (16, (-128, 127)), (25, (-3, 90)), (32, (-128, 0))):
        window = Window(rng, channels, (3, 3), (stride, 1), (1, 1, 1, 1), (5, 6))
        depthwise(calls, kernel_call.codes, window, x, weight, limits)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [6, 16, 37])
def test_depthwise_makes_only_its_rows_of_rings(calls, kernel_call, stride, channels):
    rng = np.random.default_rng(channels)
    for rows in ((0, 1), (1, 4), (5, 6), (4, 6)):
        window = Window(rng, channels, (3, 3), (stride, stride), (1, 1, 1, 1), (6 * stride, 7))
        rings = (2 + stride * (rows[1] - rows[0]), rows[1] - rows[0])
        depthwise(calls, kernel_call.codes, window, rings=rings, rows=rows)


def test_depthwise_of_many_rows_is_cut_into_blocks(calls, kernel_call):
    rng = np.random.default_rng(0)
    for stride in (1, 2):
        window = Window(rng, 40, (3, 3), (stride, stride), (1, 1, 1, 1), (40, 33))
        depthwise(calls, kernel_call.codes, window)


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_of_few_channels_and_every_width(calls, kernel_call, stride):
    rng = np.random.default_rng(stride)
    for channels, width, left in itertools.product((1, 3, 7, 8, 15), range(1, 11), range(3)):
        window = Window(rng, channels, (3, 3), (stride, stride), (1, left, 1, 2), (3, width))
        depthwise(calls, kernel_call.codes, window)


def add_words(a, b, y, count, rings=(0, 0), b_ring=0, subtract=False):
    """The record of an Add or Sub: its definition and, where there is one, its integer form."""
    params = Add(a, b, y, subtract)
    ra, rb, c = arithmetic.add_coefficients(a, b, y, subtract=subtract)
    form = find_form(params)
    words = {
        "MIDGE_ADD_COUNT": count,
        "MIDGE_OP_RINGS": rings,
        "MIDGE_ADD_B_RING": b_ring,
        "MIDGE_ADD_RA": f32(ra),
        "MIDGE_ADD_RB": f32(rb),
        "MIDGE_ADD_C": f32(c),
        "MIDGE_ADD_OFFSET": 128 if y.dtype == "uint8" else 0,
    }
    if form is None:
        return "midge_add_exact_s8", words
    words |= {"MIDGE_ADD_SHIFT": form.shift, "MIDGE_ADD_MA": form.ma, "MIDGE_ADD_MB": form.mb}
    words |= {"MIDGE_ADD_K": form.k, ("MIDGE_ADD_K", 1): form.k >> 32}
    return "midge_add_s8" if form.bits == 32 else "midge_add_wide_s8", words


# Ties and an integer form of 32 bits; one of 64; none; sums far outside; a term that vanishes.
ADD_SCALES = (
    (0.5, 0.25, 0.5),
    (0.357, 0.011, 0.068),
    (0.02, 0.05, 0.06),
    (1e6, 3e5, 1e-3),
    (1.0, 1e-7, 1.0),
)


@pytest.mark.parametrize(
    ("scales", "dtype"), [(s, ("uint8", "int8")[i % 2]) for i, s in enumerate(ADD_SCALES)]
)
@pytest.mark.parametrize("subtract", [False, True])
def test_every_form_of_add_on_every_pair_of_codes(calls, scales, dtype, subtract):
    zero_points = np.array([50, 128, 190]) - (128 if dtype == "int8" else 0)
    a, b, y = (QuantParams(f32(s), int(z), dtype) for s, z in zip(scales, zero_points, strict=True))
    name, words = add_words(a, b, y, 256, subtract=subtract)
    pairs = np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2)
    buffers = {
        "MIDGE_OP_X": pairs[0],
        "MIDGE_ADD_B": pairs[1],
        "MIDGE_OP_Y": np.zeros_like(pairs[0]),
    }
    exact = compare(calls, "midge_add_exact_s8", words, buffers, rows=(0, 256))
    offset = 128 if dtype == "uint8" else 0
    formula = arithmetic.sub if subtract else arithmetic.add
    want = formula(*(p.astype(np.int32) + offset for p in pairs), a, b, y)
    want = (want.astype(np.int32) - offset).astype(np.int8)
    assert exact["MIDGE_OP_Y"] == want.tobytes()
    assert compare(calls, name, words, buffers, rows=(0, 256)) == exact


def test_add_of_every_length_leaves_its_neighbours_alone_and_works_in_place(calls):
    rng = np.random.default_rng(3)
    params = [QuantParams(f32(s), z, "int8") for s, z in ((0.5, -3), (0.25, 100), (0.5, -128))]
    for count in (*range(1, 18), 31, 32, 33, 63, 65, 100):
        name, words = add_words(*params, count, (3, 2), 4)
        a, b, y = (codes_of(rng, "random", (rows, count)) for rows in (3, 4, 2))
        buffers = {"MIDGE_OP_X": a, "MIDGE_ADD_B": b}
        compare(calls, name, words, {**buffers, "MIDGE_OP_Y": y}, rows=(2, 4))
        words["MIDGE_OP_RINGS"] = (3, 3)
        in_place = [("MIDGE_OP_Y", "MIDGE_OP_X")]
        compare(calls, name, words, buffers, rows=(1, 3), same=in_place)


@pytest.mark.parametrize("shift", [16, 32, 48])
def test_add_may_write_below_what_it_reads(calls, shift):
    rng = np.random.default_rng(shift)
    params = [QuantParams(f32(s), z, "int8") for s, z in ((0.5, -3), (0.25, 100), (0.5, -128))]
    for count in (7, 32, 40, 100):
        name, words = add_words(*params, count)
        shared, b = codes_of(rng, "random", shift + 3 * count), codes_of(rng, "random", 3 * count)
        buffers = {"MIDGE_OP_Y": shared, "MIDGE_ADD_B": b}
        above = [("MIDGE_OP_X", "MIDGE_OP_Y", shift)]
        compare(calls, name, words, buffers, rows=(0, 3), same=above)


def pool(calls, codes, window, kind, x, counts=0, **options):
    """Compare a pool; its zero-points and multipliers are drawn."""
    w, rng = window, window.rng
    zero_points = [int(z) for z in rng.choice([*EXTREMES, -20], 2)]
    rings = options.pop("rings", (0, 0))
    words = {
        "MIDGE_POOL_X_SIZE": w.size,
        "MIDGE_POOL_Y_SIZE": w.out,
        "MIDGE_POOL_CHANNELS": (w.images, w.channels),
        "MIDGE_POOL_KERNEL": w.kernel,
        "MIDGE_POOL_STRIDE": w.stride,
        "MIDGE_POOL_PADS": w.pads[:2],
        "MIDGE_POOL_DILATION": w.dilation,
        "MIDGE_POOL_COUNTS": counts,
        "MIDGE_POOL_CODES": codes(*zero_points, -100 if kind == "average" else -128, 120),
        "MIDGE_OP_RINGS": rings,
    }
    taps = np.arange(1, w.kernel[0] * w.kernel[1] + 1)
    m = (rng.uniform(0.4, 3) / taps).astype(f32)
    data = m if counts else m[-1:]
    rows = options.pop("rows", (0, w.images * w.out[0]))
    base = f"midge_{kind}_pool_s8"
    return compare(calls, base, words, w.buffers(x, rings), data, rows=rows, **options)


POOLS = [
    ((2, 2), (2, 2), (0, 0, 0, 0), (5, 6)),
    ((3, 3), (2, 2), (1, 1, 1, 1), (6, 7)),
    ((3, 2), (1, 1), (2, 1, 0, 1), (4, 5)),
    ((1, 4), (1, 3), (0, 0, 0, 3), (1, 9)),
    ((3, 2), (2, 1), (2, 2, 1, 0), (9, 8), (2, 3)),
]


@pytest.mark.parametrize("shape", POOLS)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_pools_of_every_number_of_channels(calls, kernel_call, kind, shape):
    rng = np.random.default_rng(len(kind))
    for channels in (*range(1, 19), 31, 32, 33, 50):
        dilation = shape[4] if shape[4:] else (1, 1)
        window = Window(rng, channels, *shape[:4], dilation=dilation, images=2)
        counts = int(kind == "average" and channels % 2)
        pool(calls, kernel_call.codes, window, kind, rng.choice(["random", "extreme"]), counts)


@pytest.mark.parametrize("x", [-128, 127, "random"])
def test_sums_of_large_windows_do_not_wrap(calls, kernel_call, x):
    rng = np.random.default_rng(1)
    for channels, size in ((16, (16, 16)), (17, (16, 17)), (5, (1, 700)), (33, (40, 20))):
        window = Window(rng, channels, size, (1, 1), (0, 0, 0, 0), size)
        pool(calls, kernel_call.codes, window, "average", x)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_pools_make_only_their_rows_of_rings(calls, kernel_call, kind):
    rng = np.random.default_rng(2)
    for channels, rows in ((7, (0, 2)), (16, (2, 3)), (40, (1, 4))):
        window = Window(rng, channels, (3, 3), (2, 2), (1, 1, 1, 1), (8, 6))
        rings = (3 + 2 * (rows[1] - rows[0]), rows[1] - rows[0])
        pool(calls, kernel_call.codes, window, kind, "random", rings=rings, rows=rows)


def mul(calls, codes, rng, a, b, constant=False, in_place=False, m=None):
    """Compare a product of two shapes [d0, d1, d2, d3], of which the larger is Y's."""
    shape = np.maximum(a, b).tolist()
    pitches = []
    for s in (a, b):
        pitch = np.cumprod([1, *s[:0:-1]])[::-1]
        pitches.append([int(n) if size > 1 else 0 for n, size in zip(pitch, s, strict=True)])
    x, z = (codes_of(rng, rng.choice(["random", "extreme"]), s) for s in (a, b))
    zero_points = [int(v) for v in rng.choice([*EXTREMES, -20], 3)]
    words = {"MIDGE_MUL_STEP": (pitches[0][3], pitches[1][3])}
    words |= {("MIDGE_MUL_SHAPE", i): n for i, n in enumerate(shape)}
    words |= {("MIDGE_MUL_A_PITCH", i): n for i, n in enumerate(pitches[0][:3])}
    words |= {("MIDGE_MUL_B_PITCH", i): n for i, n in enumerate(pitches[1][:3])}
    scale = f32(2.0 ** rng.uniform(-10, -4)) if m is None else f32(m)
    limits = [(-128, 127), (-100, 99)][int(rng.integers(2))]
    numbers = [scale.view(np.int32), codes(zero_points[0], zero_points[1], *limits)]
    data = np.array([*numbers, zero_points[2], int(constant)], np.int64).astype(np.uint32).tobytes()
    buffers = {"MIDGE_OP_X": x}
    if constant:
        data += z.tobytes() + b"\0" * (-z.size % 4)
    else:
        buffers["MIDGE_MUL_B"] = z
    same = [("MIDGE_OP_Y", "MIDGE_OP_X")] if in_place else []
    if not in_place:
        buffers["MIDGE_OP_Y"] = np.zeros(shape, np.int8)
    compare(calls, "midge_mul_s8", words, buffers, data, same=same)


def test_products_of_every_length_repeated_axes_and_constants(calls, kernel_call):
    rng = np.random.default_rng(5)
    for count in (*range(1, 19), 31, 32, 33, 50):
        whole, row = (2, 1, 3, count), (1, 1, 1, count)
        mul(calls, kernel_call.codes, rng, whole, whole, constant=bool(count % 2))
        mul(calls, kernel_call.codes, rng, whole, row, in_place=bool(count % 3))
        mul(calls, kernel_call.codes, rng, (2, 1, 3, 1), whole)
        mul(calls, kernel_call.codes, rng, whole, (1, 1, 3, 1), constant=True)
    for m in (2.0**-7, 3e7, 0.0):  # ties; far beyond the codes
        mul(calls, kernel_call.codes, rng, (1, 1, 4, 64), (1, 1, 4, 64), m=m)
