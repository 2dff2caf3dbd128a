"""Pooling: maximum, average and global average, with gradients of every order."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, contiguous, xp_of
from midge.core.errors import InputError, UnsupportedError
from midge.core.kernels import pool as kernels
from midge.core.kernels.window import Pair, Sides, Window
from midge.core.ops.layout import check_images, nchw, nhwc, pair, sides
from midge.core.ops.operands import as_tensor
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor

Ints = tuple[int, ...]


def _inside(shape: Ints) -> Ints:
    """Return the shape [N, H, W, C] of an [N, C, H, W] array."""
    n, c, h, w = shape
    return n, h, w, c


def _max_pool2d(
    ctx: Node, x: Array, *, kernel_size: Pair, stride: Pair, padding: Sides, dilation: Pair
) -> Array:
    window = Window(kernel_size, stride, padding, dilation)
    out = window.output_size(x.shape[2], x.shape[3], "max_pool2d")
    y, index = kernels.max_pool(nhwc(x), out, window)
    if ctx.needs_input_grad[0]:
        ctx.index = index
    return nchw(y)


def _max_pool2d_backward(ctx: Node, grad: Tensor) -> Gradients:
    attributes = {**ctx.attributes, "shape": ctx.input_shape(0)}
    return apply(MAX_POOL2D_SCATTER, (grad, Tensor(ctx.index)), attributes)


def _scatter(
    ctx: Node,
    grad: Array,
    index: Array,
    *,
    shape: Ints,
    kernel_size: Pair,
    stride: Pair,
    padding: Sides,
    dilation: Pair,
) -> Array:
    ctx.save(1)
    window = Window(kernel_size, stride, padding, dilation)
    return nchw(kernels.max_pool_scatter(nhwc(grad), contiguous(index), _inside(shape), window))


def _scatter_backward(ctx: Node, cotangent: Tensor) -> Gradients:
    (index,) = ctx.saved_tensors
    return apply(MAX_POOL2D_GATHER, (cotangent, index), ctx.attributes), None


def _gather(ctx: Node, x: Array, index: Array, **attributes: Any) -> Array:
    ctx.save(1)
    return nchw(kernels.max_pool_gather(nhwc(x), index))


def _gather_backward(ctx: Node, grad: Tensor) -> Gradients:
    (index,) = ctx.saved_tensors
    return apply(MAX_POOL2D_SCATTER, (grad, index), ctx.attributes), None


def _avg_pool2d(
    ctx: Node,
    x: Array,
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Sides,
    count_include_pad: bool,
) -> Array:
    window = Window(kernel_size, stride, padding)
    out = window.output_size(x.shape[2], x.shape[3], "avg_pool2d")
    return nchw(kernels.avg_pool(nhwc(x), out, window, count_include_pad))


def _avg_pool2d_backward(ctx: Node, grad: Tensor) -> Gradients:
    return apply(AVG_POOL2D_GRAD, (grad,), {**ctx.attributes, "shape": ctx.input_shape(0)})


def _avg_pool2d_grad(
    ctx: Node,
    grad: Array,
    *,
    shape: Ints,
    kernel_size: Pair,
    stride: Pair,
    padding: Sides,
    count_include_pad: bool,
) -> Array:
    window = Window(kernel_size, stride, padding)
    return nchw(kernels.avg_pool_grad(nhwc(grad), _inside(shape), window, count_include_pad))


def _avg_pool2d_grad_backward(ctx: Node, cotangent: Tensor) -> Gradients:
    attributes = {name: v for name, v in ctx.attributes.items() if name != "shape"}
    return apply(AVG_POOL2D, (cotangent,), attributes)


def _global_avg_pool2d(ctx: Node, x: Array) -> Array:
    x = nhwc(x)
    n, h, w, c = x.shape
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
    total = x.reshape(n, h * w, c).sum(axis=1, dtype=wide)
    return (total / total.dtype.type(h * w)).astype(x.dtype, copy=False).reshape(n, c, 1, 1)


def _global_avg_pool2d_backward(ctx: Node, grad: Tensor) -> Gradients:
    return apply(GLOBAL_AVG_POOL2D_GRAD, (grad,), {"shape": ctx.input_shape(0)})


def _global_avg_pool2d_grad(ctx: Node, grad: Array, *, shape: Ints) -> Array:
    n, h, w, c = _inside(shape)
    share = (grad / grad.dtype.type(h * w)).reshape(n, 1, 1, c)
    return nchw(xp_of(grad).broadcast_to(share, (n, h, w, c)).copy())


def _global_avg_pool2d_grad_backward(ctx: Node, cotangent: Tensor) -> Gradients:
    return apply(GLOBAL_AVG_POOL2D, (cotangent,))


# Shape of x, then kernel, stride and padding.
_SAMPLES: tuple[tuple[Any, ...], ...] = (
    ((2, 3, 4, 4), (2, 2), (2, 2), (0, 0, 0, 0)),
    ((1, 2, 5, 4), (3, 2), (2, 1), (1, 0, 1, 1)),
    ((1, 3, 4, 3), (2, 3), (1, 1), (0, 1, 1, 1)),
)


def _windows(rng: np.random.Generator) -> Iterator[tuple[Array, dict[str, Any]]]:
    for shape, kernel, stride, padding in _SAMPLES:
        geometry = {"kernel_size": kernel, "stride": stride, "padding": padding}
        yield distinct(rng, *shape), geometry


def _max_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for x, geometry in _windows(rng):
        yield Sample((x,), {**geometry, "dilation": (1, 1)})
    dilated = {"kernel_size": (2, 2), "stride": (1, 2), "padding": (1, 0, 0, 1), "dilation": (2, 2)}
    yield Sample((distinct(rng, 1, 2, 4, 5),), dilated)


def _index_samples(gather: bool) -> Any:
    """Return the samples of max_pool2d_gather or max_pool2d_scatter."""

    def samples(rng: np.random.Generator) -> Iterator[Sample]:
        for sample in _max_samples(rng):
            x = sample.inputs[0]
            assert x is not None
            window = Window(*(sample.attributes[k] for k in _WINDOW))
            out = window.output_size(x.shape[2], x.shape[3], "sample")
            y, index = kernels.max_pool(nhwc(x), out, window)
            first = x if gather else nchw(rng.permutation(y))
            yield Sample((first, index), {**sample.attributes, "shape": x.shape})

    return samples


def _avg_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for x, geometry in _windows(rng):
        for include in (True, False):
            yield Sample((x,), {**geometry, "count_include_pad": include})


def _avg_grad_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _avg_samples(rng):
        x = sample.inputs[0]
        assert x is not None
        window = Window(*(sample.attributes[k] for k in _WINDOW[:3]))
        out = window.output_size(x.shape[2], x.shape[3], "sample")
        grad = distinct(rng, *x.shape[:2], *out)
        yield Sample((grad,), {**sample.attributes, "shape": x.shape})


def _global_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3, 4, 2),))
    yield Sample((distinct(rng, 1, 2, 1, 1),))


def _global_grad_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3, 1, 1),), {"shape": (2, 3, 4, 2)})


_WINDOW = ("kernel_size", "stride", "padding", "dilation")
MAX_POOL2D = register(
    OpSpec("max_pool2d", "MaxPool", _max_pool2d, _max_pool2d_backward, _max_samples)
)
MAX_POOL2D_SCATTER = register(
    OpSpec("max_pool2d_scatter", "", _scatter, _scatter_backward, _index_samples(False))
)
MAX_POOL2D_GATHER = register(
    OpSpec("max_pool2d_gather", "", _gather, _gather_backward, _index_samples(True))
)
AVG_POOL2D = register(
    OpSpec("avg_pool2d", "AveragePool", _avg_pool2d, _avg_pool2d_backward, _avg_samples)
)
AVG_POOL2D_GRAD = register(
    OpSpec("avg_pool2d_grad", "", _avg_pool2d_grad, _avg_pool2d_grad_backward, _avg_grad_samples)
)
GLOBAL_AVG_POOL2D = register(
    OpSpec(
        "global_avg_pool2d",
        "GlobalAveragePool",
        _global_avg_pool2d,
        _global_avg_pool2d_backward,
        _global_samples,
    )
)
GLOBAL_AVG_POOL2D_GRAD = register(
    OpSpec(
        "global_avg_pool2d_grad",
        "",
        _global_avg_pool2d_grad,
        _global_avg_pool2d_grad_backward,
        _global_grad_samples,
    )
)


def _attributes(
    what: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1
) -> dict[str, Any]:
    """Return the canonical attributes.

    Raises:
        InputError: a window could lie in the padding as a whole.
    """
    kernel = pair(kernel_size, f"{what}: kernel_size")
    spread = pair(dilation, f"{what}: dilation")
    around = sides(padding, f"{what}: padding")
    for axis in range(2):
        reach = (kernel[axis] - 1) * spread[axis] + 1
        if max(around[axis], around[axis + 2]) >= reach > 0:
            raise InputError(
                f"{what}: padding {around} must be smaller than the window {kernel}, or a window "
                "could lie in the padding as a whole."
            )
    return {
        "kernel_size": kernel,
        "stride": kernel if stride is None else pair(stride, f"{what}: stride"),
        "padding": around,
        "dilation": spread,
    }


def max_pool2d(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1
) -> Tensor:
    """Return the largest value of each window; the first of equal values gets the gradient.

    Args:
        x: [N, C, H, W].
        kernel_size: one int or (y, x).
        stride: one int or (y, x); default `kernel_size`.
        padding: -inf around x: one int, (y, x) or (top, left, bottom, right).
        dilation: one int or (y, x).
    """
    x = as_tensor(x)
    check_images(x, "max_pool2d")
    attributes = _attributes("max_pool2d", kernel_size, stride, padding, dilation)
    return apply(MAX_POOL2D, (x,), attributes)


def avg_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    *,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window.

    Args:
        x: [N, C, H, W].
        kernel_size: one int or (y, x).
        stride: one int or (y, x); default `kernel_size`.
        padding: zeros around x: one int, (y, x) or (top, left, bottom, right).
        count_include_pad: divide by the size of the window, or by its elements inside x.
    """
    x = as_tensor(x)
    check_images(x, "avg_pool2d")
    attributes = _attributes("avg_pool2d", kernel_size, stride, padding)
    del attributes["dilation"]
    return apply(AVG_POOL2D, (x,), {**attributes, "count_include_pad": bool(count_include_pad)})


def global_avg_pool2d(x: Any) -> Tensor:
    """Return the mean over height and width, [N, C, 1, 1]."""
    x = as_tensor(x)
    check_images(x, "global_avg_pool2d")
    if not x.shape[2] * x.shape[3]:
        raise InputError(f"global_avg_pool2d: the input {list(x.shape)} has no pixels.")
    return apply(GLOBAL_AVG_POOL2D, (x,))


def adaptive_avg_pool2d(x: Any, output_size: Any) -> Tensor:
    """Return the means of `output_size` equal windows.

    Args:
        x: [N, C, H, W].
        output_size: one int or (y, x); each must divide H or W.

    Raises:
        UnsupportedError: windows would have different sizes.
    """
    x = as_tensor(x)
    rows, columns = pair(output_size, "adaptive_avg_pool2d: output_size")
    if (rows, columns) == (1, 1):
        return global_avg_pool2d(x)
    check_images(x, "adaptive_avg_pool2d")
    height, width = x.shape[2:]
    if rows < 1 or columns < 1 or height % rows or width % columns:
        raise UnsupportedError(
            f"adaptive_avg_pool2d: a {height}x{width} input cannot be cut into {rows}x{columns} "
            "equal windows; use a size that divides it, or avg_pool2d."
        )
    return avg_pool2d(x, (height // rows, width // columns))
