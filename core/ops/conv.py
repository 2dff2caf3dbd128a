"""Convolution and its two gradients, each an operator whose own gradient is one of the three."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array
from midge.core.errors import InputError
from midge.core.kernels import conv as kernels
from midge.core.kernels.window import Pair, Sides, Window
from midge.core.ops import reduce
from midge.core.ops.layout import check_images, nchw, nhwc, pair, sides
from midge.core.ops.operands import as_tensor, result_type
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor


def _window(kernel: Any, stride: Pair, padding: Sides, dilation: Pair) -> Window:
    return Window(tuple(kernel), stride, padding, dilation)


def _save(ctx: Node, first: bool, second: bool) -> None:
    """Save of two factors those that the other one's gradient needs."""
    ctx.facts = first, second
    ctx.save(*([0] if second else []), *([1] if first else []))


def _saved(ctx: Node) -> tuple[Tensor | None, Tensor | None]:
    """Return the two factors, None for one that was not saved."""
    first, second = ctx.facts
    saved = iter(ctx.saved_tensors)
    return next(saved) if second else None, next(saved) if first else None


def _conv2d(
    ctx: Node,
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    stride: Pair,
    padding: Sides,
    dilation: Pair,
    groups: int,
) -> Array:
    _save(ctx, *ctx.needs_input_grad[:2])
    window = _window(weight.shape[2:], stride, padding, dilation)
    out = window.output_size(x.shape[2], x.shape[3], "conv2d")
    return nchw(kernels.conv2d(nhwc(x), nhwc(weight), bias, out, window, groups))


def _conv2d_backward(ctx: Node, grad: Tensor) -> Gradients:
    need_x, need_weight, need_bias = ctx.needs_input_grad
    x, weight = _saved(ctx)
    gx = gweight = gbias = None
    if need_x and weight is not None:
        gx = conv2d_grad_input(grad, weight, ctx.input_shape(0), ctx.attributes)
    if need_weight and x is not None:
        gweight = conv2d_grad_weight(x, grad, ctx.input_shape(1)[2:], ctx.attributes)
    if need_bias:
        gbias = reduce.sum(grad, (0, 2, 3))
    return gx, gweight, gbias


def _grad_input(
    ctx: Node,
    grad: Array,
    weight: Array,
    *,
    shape: tuple[int, ...],
    stride: Pair,
    padding: Sides,
    dilation: Pair,
    groups: int,
) -> Array:
    _save(ctx, *ctx.needs_input_grad)
    n, c, h, w = shape
    window = _window(weight.shape[2:], stride, padding, dilation)
    return nchw(kernels.conv2d_grad_input(nhwc(grad), nhwc(weight), (n, h, w, c), window, groups))


def _grad_input_backward(ctx: Node, cotangent: Tensor) -> Gradients:
    need_grad, need_weight = ctx.needs_input_grad
    grad, weight = _saved(ctx)
    geometry = _geometry(ctx.attributes)
    ggrad = gweight = None
    if need_grad and weight is not None:
        ggrad = apply(CONV2D, (cotangent, weight, None), geometry)
    if need_weight and grad is not None:
        gweight = conv2d_grad_weight(cotangent, grad, ctx.input_shape(1)[2:], geometry)
    return ggrad, gweight


def _grad_weight(
    ctx: Node,
    x: Array,
    grad: Array,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Sides,
    dilation: Pair,
    groups: int,
) -> Array:
    _save(ctx, *ctx.needs_input_grad)
    window = _window(kernel, stride, padding, dilation)
    return nchw(kernels.conv2d_grad_weight(nhwc(x), nhwc(grad), window, groups))


def _grad_weight_backward(ctx: Node, cotangent: Tensor) -> Gradients:
    need_x, need_grad = ctx.needs_input_grad
    x, grad = _saved(ctx)
    geometry = _geometry(ctx.attributes)
    gx = ggrad = None
    if need_x and grad is not None:
        gx = conv2d_grad_input(grad, cotangent, ctx.input_shape(0), geometry)
    if need_grad and x is not None:
        ggrad = apply(CONV2D, (x, cotangent, None), geometry)
    return gx, ggrad


# Shape of x, shape of weight, stride, padding, dilation, groups.
_SAMPLES: tuple[tuple[Any, ...], ...] = (
    ((2, 3, 4, 5), (2, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 2, 5, 4), (3, 2, 2, 3), (2, 1), (0, 1, 1, 2), (1, 1), 1),
    ((2, 3, 3, 2), (4, 3, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 4, 5, 5), (4, 2, 2, 2), (1, 2), (1, 0, 0, 1), (2, 1), 2),
    ((2, 3, 4, 4), (3, 1, 3, 3), (2, 2), (0, 0, 1, 1), (1, 1), 3),
    ((1, 2, 3, 3), (4, 1, 2, 2), (1, 1), (0, 0, 0, 0), (1, 1), 2),
)


def _geometries(
    rng: np.random.Generator,
) -> Iterator[tuple[Array, Array, Array, dict[str, Any]]]:
    """Yield x, weight, an output gradient and the attributes of each sample."""
    for shape, kernel, stride, padding, dilation, groups in _SAMPLES:
        window = _window(kernel[2:], stride, padding, dilation)
        out = window.output_size(shape[2], shape[3], "sample")
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        grad = distinct(rng, shape[0], kernel[0], *out, gap=0.02)
        yield distinct(rng, *shape, gap=0.02), distinct(rng, *kernel, gap=0.02), grad, geometry


def _conv2d_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for index, (x, weight, _, geometry) in enumerate(_geometries(rng)):
        yield Sample((x, weight, distinct(rng, len(weight)) if index % 2 else None), geometry)


def _grad_input_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for x, weight, grad, geometry in _geometries(rng):
        yield Sample((grad, weight), {"shape": x.shape, **geometry})


def _grad_weight_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for x, weight, grad, geometry in _geometries(rng):
        yield Sample((x, grad), {"kernel": weight.shape[2:], **geometry})


CONV2D = register(OpSpec("conv2d", "Conv", _conv2d, _conv2d_backward, _conv2d_samples))
CONV2D_GRAD_INPUT = register(
    OpSpec("conv2d_grad_input", "", _grad_input, _grad_input_backward, _grad_input_samples)
)
CONV2D_GRAD_WEIGHT = register(
    OpSpec("conv2d_grad_weight", "", _grad_weight, _grad_weight_backward, _grad_weight_samples)
)


def _geometry(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that the three operators share."""
    return {name: attributes[name] for name in ("stride", "padding", "dilation", "groups")}


def conv2d_grad_input(
    grad: Tensor, weight: Tensor, shape: tuple[int, ...], attributes: Mapping[str, Any]
) -> Tensor:
    """Return the gradient of conv2d by its input: the transposed convolution of `grad`.

    Args:
        grad: [N, O, H', W'].
        weight: [O, C / groups, kh, kw].
        shape: shape of the input [N, C, H, W].
        attributes: stride, padding, dilation and groups of the convolution.
    """
    return apply(CONV2D_GRAD_INPUT, (grad, weight), {"shape": shape, **_geometry(attributes)})


def conv2d_grad_weight(
    x: Tensor, grad: Tensor, kernel: tuple[int, ...], attributes: Mapping[str, Any]
) -> Tensor:
    """Return the gradient of conv2d by its weight, [O, C / groups, kh, kw].

    Args:
        x: [N, C, H, W].
        grad: [N, O, H', W'].
        kernel: kh and kw.
        attributes: stride, padding, dilation and groups of the convolution.
    """
    return apply(CONV2D_GRAD_WEIGHT, (x, grad), {"kernel": kernel, **_geometry(attributes)})


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Return the cross-correlation of x with the weight, plus the bias.

    y[n, o, i, j] = bias[o] + sum over c, ky, kx of
        x[n, c, i * stride - top + ky * dilation, j * stride - left + kx * dilation]
        * weight[o, c, ky, kx]

    Args:
        x: [N, C, H, W].
        weight: [O, C / groups, kh, kw].
        bias: [O] or None.
        stride: one int or (y, x).
        padding: zeros around x: one int, (y, x), (top, left, bottom, right), "valid" or "same".
        dilation: one int or (y, x).
        groups: number of groups of channels that see each other.

    Raises:
        InputError: shapes or options that do not fit.
    """
    tensors = [as_tensor(t) for t in (x, weight, bias) if t is not None]
    x, weight = tensors[:2]
    check_images(x, "conv2d")
    _check(x, weight, tensors[2] if len(tensors) == 3 else None, groups)
    steps, spread = pair(stride, "conv2d: stride"), pair(dilation, "conv2d: dilation")
    geometry = {
        "stride": steps,
        "padding": _padding(padding, weight.shape[2:], steps, spread),
        "dilation": spread,
        "groups": groups,
    }
    dtype = result_type(*tensors)
    tensors = [t if t.dtype == dtype else t.to(dtype) for t in tensors]
    return apply(CONV2D, tensors if len(tensors) == 3 else [*tensors, None], geometry)


def _check(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    """Check the shapes against each other."""
    if weight.ndim != 4:
        raise InputError(
            f"conv2d: the weight has shape {list(weight.shape)}; [O, C / groups, kh, kw] is needed."
        )
    outputs, inside = weight.shape[:2]
    if groups < 1 or x.shape[1] != inside * groups or outputs % groups:
        raise InputError(
            f"conv2d: the input has {x.shape[1]} channels, the weight {list(weight.shape)} with "
            f"groups={groups} needs {inside * groups} and a multiple of {groups} outputs."
        )
    if bias is not None and bias.shape != (outputs,):
        raise InputError(f"conv2d: the bias is {list(bias.shape)}; [{outputs}] is needed.")


def _padding(padding: Any, kernel: tuple[int, ...], stride: Pair, dilation: Pair) -> Sides:
    """Return (top, left, bottom, right); "same" puts the odd zero below and to the right."""
    if padding == "valid":
        return 0, 0, 0, 0
    if padding == "same":
        if stride != (1, 1):
            raise InputError(
                f"conv2d: padding='same' needs stride 1, got {stride}; give the four sides instead."
            )
        total_y, total_x = (d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
        return total_y // 2, total_x // 2, total_y - total_y // 2, total_x - total_x // 2
    if isinstance(padding, str):
        raise InputError(f"conv2d: padding {padding!r} is unknown; use 'same', 'valid' or ints.")
    return sides(padding, "conv2d: padding")
