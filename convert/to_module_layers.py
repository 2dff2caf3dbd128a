"""Rows of layers that accumulate: Conv, ConvTranspose, Gemm, MatMul."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import product

from midge.convert.to_module_call import Call, Ints, Table, plain
from midge.core import ops
from midge.core.ops.conv import conv2d_grad_input
from midge.core.ops.shape import SLICE_GRAD
from midge.core.opspec import apply
from midge.core.tensor import Tensor

SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class Sliding:
    """Where a window slides, one entry per spatial axis.

    Args:
        kernel: elements of the window.
        strides: steps of the window.
        dilations: distance of its elements.
        before: elements of padding at the start.
        after: elements of padding at the end.
    """

    kernel: Ints
    strides: Ints
    dilations: Ints
    before: Ints
    after: Ints

    @property
    def reach(self) -> Ints:
        """Elements from the first to the last of the window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def outputs(self, sizes: Ints, *, ceil: bool = False) -> Ints:
        """Return how many places the window takes; `ceil` adds one that is only partly inside."""
        found = []
        for n, r, s, b, a in zip(
            sizes, self.reach, self.strides, self.before, self.after, strict=True
        ):
            room = n + b + a - r
            places = (-(-room // s) if ceil else room // s) + 1
            if ceil and (places - 1) * s >= n + b:
                places -= 1  # it would start in the padding at the end
            found.append(places)
        return tuple(found)

    def taps(self, out: Ints) -> Iterator[tuple[Ints, tuple[slice, ...]]]:
        """Yield each element of the window and where it lies in padded input, for all places."""
        for at in product(*map(range, self.kernel)):
            yield (
                at,
                tuple(
                    slice(k * d, k * d + (n - 1) * s + 1, s)
                    for k, d, n, s in zip(at, self.dilations, out, self.strides, strict=True)
                ),
            )


def sliding(call: Call, sizes: Ints, kernel: Ints) -> Sliding:
    """Return the window of a Conv or pool on an input of these sizes.

    Raises:
        UnsupportedError: a pad is negative.
    """
    ones = (1,) * len(sizes)
    strides, dilations = call.get("strides", ones), call.get("dilations", ones)
    pads, auto = call.get("pads", (0,) * 2 * len(sizes)), call.get("auto_pad", "NOTSET")
    if auto == "VALID":
        pads = (0,) * 2 * len(sizes)
    half = len(sizes)
    window = Sliding(kernel, strides, dilations, pads[:half], pads[half:])
    if auto in SAME:
        totals = [
            max((-(-n // s) - 1) * s + r - n, 0)
            for n, s, r in zip(sizes, strides, window.reach, strict=True)
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        sides = (small, large) if auto == "SAME_UPPER" else (large, small)
        window = Sliding(kernel, strides, dilations, *sides)
    if min((*window.before, *window.after), default=0) < 0:
        raise call.fail("a pad is negative", "cut the input with Slice instead")
    return window


def padded(x: Tensor, before: Ints, after: Ints, value: float = 0.0) -> Tensor:
    """Return x with its last axes surrounded by a constant."""
    if not any((*before, *after)):
        return x
    pairs = [p for pair in zip(reversed(before), reversed(after), strict=True) for p in pair]
    return ops.pad(x, pairs, value)


def _conv(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    window = sliding(call, x.shape[2:], weight.shape[2:])
    groups = call.get("group", 1)
    if x.ndim == 3:
        geometry = _as_2d(window)
        y = ops.conv2d(ops.unsqueeze(x, 2), ops.unsqueeze(weight, 2), bias, *geometry, groups)
        return ops.squeeze(y, 2)
    if x.ndim == 4:
        return ops.conv2d(x, weight, bias, *_as_2d(window), groups)
    return _conv_by_taps(x, weight, bias, window, groups)


def _as_2d(window: Sliding) -> tuple[Ints, Ints, Ints]:
    """Return strides, sides and dilations of two axes; a missing first one has size 1."""
    one = len(window.kernel) == 1
    before, after = ((0, *side) if one else side for side in (window.before, window.after))
    lead = (1,) if one else ()
    return (*lead, *window.strides), (*before, *after), (*lead, *window.dilations)


def _conv_by_taps(
    x: Tensor, weight: Tensor, bias: Tensor | None, window: Sliding, groups: int
) -> Tensor:
    """Return a convolution over any number of axes: a matrix product for each element of W."""
    out = window.outputs(x.shape[2:])
    wide = padded(x, window.before, window.after)
    n, outputs = x.shape[0], weight.shape[0]
    total: Tensor | None = None
    for at, place in window.taps(out):
        part = ops.reshape(wide[(..., *place)], (n, groups, x.shape[1] // groups, -1))
        w = weight[(slice(None), slice(None), *at)]
        y = ops.matmul(ops.reshape(w, (groups, outputs // groups, -1)), part)
        total = y if total is None else total + y
    assert total is not None
    total = ops.reshape(total, (n, outputs, *out))
    return total if bias is None else total + ops.reshape(bias, (-1, *(1 for _ in out)))


def _conv_transpose(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the transposed convolution: the gradient of a Conv by its input."""
    axes = x.ndim - 2
    ones = (1,) * axes
    strides, dilations = call.get("strides", ones), call.get("dilations", ones)
    groups, kernel = call.get("group", 1), weight.shape[2:]
    extra = call.get("output_padding", (0,) * axes)
    full = tuple(
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)
    )
    before, out = _cut(call, x.shape[2:], strides, full, extra)
    y = _transposed(x, weight, Sliding(kernel, strides, dilations, ones, ones), full, groups)
    short = tuple(max(b + n - f, 0) for b, n, f in zip(before, out, full, strict=True))
    lead = tuple(max(-b, 0) for b in before)
    y = padded(y, lead, short)
    start = [max(b, 0) for b in before]
    y = y[(..., *(slice(b, b + n) for b, n in zip(start, out, strict=True)))]
    return y if bias is None else y + ops.reshape(bias, (-1, *ones))


def _transposed(x: Tensor, weight: Tensor, window: Sliding, full: Ints, groups: int) -> Tensor:
    """Return all that the windows reach, [N, outputs, *full]."""
    n, outputs = x.shape[0], weight.shape[1] * groups
    if x.ndim == 3:
        wide = Sliding(*((1, *side) for side in astuple(window)))
        x, weight = ops.unsqueeze(x, 2), ops.unsqueeze(weight, 2)
        return ops.squeeze(_transposed(x, weight, wide, (1, *full), groups), 2)
    if x.ndim == 4:
        geometry = {
            "stride": window.strides,
            "padding": (0, 0, 0, 0),
            "dilation": window.dilations,
            "groups": groups,
        }
        return conv2d_grad_input(x, weight, (n, outputs, *full), geometry)
    rows = ops.reshape(x, (n, groups, x.shape[1] // groups, -1))
    total: Tensor | None = None
    for at, place in window.taps(x.shape[2:]):
        w = ops.reshape(weight[(slice(None), slice(None), *at)], (groups, -1, weight.shape[1]))
        part = ops.matmul(ops.transpose(w, 1, 2), rows)
        where = {
            "shape": (n, outputs, *full),
            "starts": (0, 0, *(p.start for p in place)),
            "stops": (n, outputs, *(p.stop for p in place)),
            "steps": (1, 1, *(p.step for p in place)),
        }
        y = apply(SLICE_GRAD, (ops.reshape(part, (n, outputs, *x.shape[2:])),), where)
        total = y if total is None else total + y
    assert total is not None
    return total


def _cut(call: Call, sizes: Ints, strides: Ints, full: Ints, extra: Ints) -> tuple[Ints, Ints]:
    """Return how many elements of the full result are cut off in front, and the output's sizes."""
    auto, shape = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    pads = call.get("pads", (0,) * 2 * len(sizes))
    if shape is None and auto not in SAME:
        if auto == "VALID":
            pads = (0,) * 2 * len(sizes)
        before, after = pads[: len(sizes)], pads[len(sizes) :]
        out = tuple(f + e - b - a for f, e, b, a in zip(full, extra, before, after, strict=True))
        return before, out
    if shape is None:
        shape = [n * s for n, s in zip(sizes, strides, strict=True)]
    out = tuple(shape[-len(sizes) :])
    totals = [f + e - n for f, e, n in zip(full, extra, out, strict=True)]
    upper = auto == "SAME_UPPER"
    return tuple(t // 2 if upper else t - t // 2 for t in totals), out


def _gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Return alpha * op(A) @ op(B) + beta * C."""
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    if a.dtype.kind == "f" and not call.get("transA", 0) and alpha == 1:
        weight = b if call.get("transB", 0) else ops.transpose(b, 0, 1)
        row = c is not None and beta == 1 and c.shape == weight.shape[:1]
        y = ops.linear(a, weight, c if row else None)
        if row or c is None:
            return y
    else:
        left = ops.transpose(a, 0, 1) if call.get("transA", 0) else a
        right = ops.transpose(b, 0, 1) if call.get("transB", 0) else b
        y = ops.matmul(left, right)
        y = y if alpha == 1 else ops.cast(y * alpha, a.dtype)
    if c is None:
        return y
    return y + (c if beta == 1 else ops.cast(c * beta, a.dtype))


LAYERS: Table = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": plain(ops.matmul),
}
