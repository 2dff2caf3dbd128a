"""Operators that move elements and change none: reshape, permute, expand, concat, slice, pad."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from midge.core.autograd.node import Node
from midge.core.backend import Array, inverse, layout_copies, xp_of
from midge.core.errors import InputError
from midge.core.ops.operands import as_tensor, dim_index, result_type
from midge.core.ops.samples import distinct
from midge.core.opspec import Gradients, OpSpec, Sample, apply, register
from midge.core.tensor import Tensor

Ints = tuple[int, ...]


def _reshape(ctx: Node, x: Array, *, shape: Ints) -> Array:
    y = x.reshape(shape)
    if y.size and not xp_of(x).may_share_memory(x, y):
        layout_copies.add()
    return y


def _reshape_backward(ctx: Node, grad: Tensor) -> Gradients:
    return reshape(grad, ctx.input_shape(0))


def _reshape_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 6),), {"shape": (3, 4)})
    yield Sample((distinct(rng, 2, 6),), {"shape": (12,)})
    yield Sample((distinct(rng, 1, 1),), {"shape": ()})
    yield Sample((distinct(rng, 2, 3, 2, 2),), {"shape": (2, 12)})
    yield Sample((distinct(rng, 0, 3),), {"shape": (3, 0)})


def _permute(ctx: Node, x: Array, *, dims: Ints) -> Array:
    return x.transpose(dims)


def _permute_backward(ctx: Node, grad: Tensor) -> Gradients:
    return permute(grad, inverse(ctx.attributes["dims"]))


def _permute_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng),), {"dims": ()})
    yield Sample((distinct(rng, 2, 3),), {"dims": (1, 0)})
    yield Sample((distinct(rng, 2, 3, 4),), {"dims": (1, 2, 0)})
    yield Sample((distinct(rng, 2, 3, 1, 2),), {"dims": (0, 2, 3, 1)})


def _expand(ctx: Node, x: Array, *, shape: Ints) -> Array:
    return xp_of(x).broadcast_to(x, shape)


def _expand_backward(ctx: Node, grad: Tensor) -> Gradients:
    return grad  # the engine sums it back


def _expand_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng),), {"shape": (2, 3)})
    yield Sample((distinct(rng, 3),), {"shape": (2, 3)})
    yield Sample((distinct(rng, 2, 1, 3),), {"shape": (2, 4, 3)})
    yield Sample((distinct(rng, 1, 3),), {"shape": (0, 3)})


def _concat(ctx: Node, *xs: Array, dim: int) -> Array:
    ctx.facts = [x.shape[dim] for x in xs]
    return xp_of(*xs).concatenate(xs, axis=dim)


def _concat_backward(ctx: Node, grad: Tensor) -> Gradients:
    dim = ctx.attributes["dim"]
    grads: list[Tensor | None] = []
    start = 0
    for size, needed in zip(ctx.facts, ctx.needs_input_grad, strict=True):
        grads.append(narrow(grad, dim, start, size) if needed else None)
        start += size
    return tuple(grads)


def _concat_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3), distinct(rng, 4, 3)), {"dim": 0})
    yield Sample((distinct(rng, 2, 3), distinct(rng, 2, 0), distinct(rng, 2, 1)), {"dim": 1})
    yield Sample((distinct(rng, 2, 3, 2, 2), distinct(rng, 2, 1, 2, 2)), {"dim": 1})


def _slice(ctx: Node, x: Array, *, starts: Ints, stops: Ints, steps: Ints) -> Array:
    return x[tuple(map(slice, starts, stops, steps))]


def _slice_backward(ctx: Node, grad: Tensor) -> Gradients:
    return apply(SLICE_GRAD, (grad,), {"shape": ctx.input_shape(0), **ctx.attributes})


def _slice_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 4, 5),), {"starts": (1, 0), "stops": (3, 5), "steps": (1, 2)})
    yield Sample((distinct(rng, 4, 5),), {"starts": (0, 2), "stops": (4, 2), "steps": (3, 1)})
    yield Sample((distinct(rng),), {"starts": (), "stops": (), "steps": ()})


def _slice_grad(
    ctx: Node, grad: Array, *, shape: Ints, starts: Ints, stops: Ints, steps: Ints
) -> Array:
    """Put the gradient of a slice into zeros of the input's shape and memory order."""
    x = xp_of(grad).zeros(shape, grad.dtype)
    if grad.ndim == 4 and not grad.flags.c_contiguous:
        x = x.reshape([shape[d] for d in (0, 2, 3, 1)]).transpose(0, 3, 1, 2)
    x[tuple(map(slice, starts, stops, steps))] = grad
    return x


def _slice_grad_backward(ctx: Node, grad: Tensor) -> Gradients:
    at = ctx.attributes
    keys = {key: at[key] for key in ("starts", "stops", "steps")}
    return apply(SLICE, (grad,), keys)


def _slice_grad_samples(rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _slice_samples(rng):
        x: Array = sample.inputs[0]
        at = sample.attributes
        part = x[tuple(map(slice, at["starts"], at["stops"], at["steps"]))]
        yield Sample((part,), {"shape": x.shape, **at})


def _pad(ctx: Node, x: Array, *, pads: tuple[Ints, ...], value: float) -> Array:
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, pads, strict=True))
    inner = tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, pads, strict=True))
    if x.ndim == 4 and not x.flags.c_contiguous:  # keep N, H, W, C memory
        memory = [shape[d] for d in (0, 2, 3, 1)]
        y = xp_of(x).full(memory, value, x.dtype).transpose(0, 3, 1, 2)
    else:
        y = xp_of(x).full(shape, value, x.dtype)
    y[inner] = x
    return y


def _pad_backward(ctx: Node, grad: Tensor) -> Gradients:
    shape, pads = ctx.input_shape(0), ctx.attributes["pads"]
    starts = tuple(before for before, _ in pads)
    stops = tuple(before + n for n, (before, _) in zip(shape, pads, strict=True))
    steps = (1,) * len(shape)
    return apply(SLICE, (grad,), {"starts": starts, "stops": stops, "steps": steps})


def _pad_samples(rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((distinct(rng, 2, 3),), {"pads": ((0, 0), (1, 2)), "value": 0.0})
    pads = ((0, 0), (0, 1), (1, 1), (2, 0))
    yield Sample((distinct(rng, 1, 2, 2, 3),), {"pads": pads, "value": -1.5})


RESHAPE = register(
    OpSpec("reshape", "Reshape", _reshape, _reshape_backward, _reshape_samples, view=True)
)
PERMUTE = register(
    OpSpec("permute", "Transpose", _permute, _permute_backward, _permute_samples, view=True)
)
EXPAND = register(OpSpec("expand", "Expand", _expand, _expand_backward, _expand_samples, view=True))
CONCAT = register(OpSpec("concat", "Concat", _concat, _concat_backward, _concat_samples))
SLICE = register(OpSpec("slice", "Slice", _slice, _slice_backward, _slice_samples, view=True))
SLICE_GRAD = register(
    OpSpec("slice_grad", "", _slice_grad, _slice_grad_backward, _slice_grad_samples)
)
PAD = register(OpSpec("pad", "Pad", _pad, _pad_backward, _pad_samples))


def reshape(x: Any, shape: Sequence[int]) -> Tensor:
    """Return x in another shape, C order of the logical dims; one size may be -1.

    Shares memory where the strides allow it.
    """
    tensor = as_tensor(x)
    wanted = tuple(int(n) for n in shape)
    if wanted == tensor.shape:
        return tensor
    known = prod([n for n in wanted if n != -1])
    size = prod(tensor.shape)
    if wanted.count(-1) == 1 and known and size % known == 0:
        wanted = tuple(size // known if n == -1 else n for n in wanted)
        known = size
    if known != size or -1 in wanted:
        raise InputError(
            f"reshape: {list(tensor.shape)} has {size} elements and cannot become {list(shape)}."
        )
    return apply(RESHAPE, (tensor,), {"shape": wanted})


def permute(x: Any, dims: Sequence[int]) -> Tensor:
    """Return a view with the dims in another order."""
    x = as_tensor(x)
    order = tuple(dim_index(d, x.ndim, "permute") for d in dims)
    if sorted(order) != list(range(x.ndim)):
        raise InputError(f"permute: {list(dims)} is no permutation of {x.ndim} dims.")
    return apply(PERMUTE, (x,), {"dims": order})


def transpose(x: Any, dim0: int, dim1: int) -> Tensor:
    """Return a view with two dims exchanged."""
    x = as_tensor(x)
    order = list(range(x.ndim))
    a, b = dim_index(dim0, x.ndim, "transpose"), dim_index(dim1, x.ndim, "transpose")
    if order:
        order[a], order[b] = b, a
    return permute(x, order)


def expand(x: Any, shape: Sequence[int]) -> Tensor:
    """Return a view repeated along dims of size 1 and new leading dims; -1 keeps a size."""
    x = as_tensor(x)
    lead = len(shape) - x.ndim
    old = (1,) * lead + x.shape
    wanted = tuple(old[i] if n == -1 and i >= lead else int(n) for i, n in enumerate(shape))
    if lead < 0 or any(o not in (1, n) for o, n in zip(old, wanted, strict=True)):
        raise InputError(f"expand: {list(x.shape)} cannot be repeated to {list(shape)}.")
    return x if wanted == x.shape else apply(EXPAND, (x,), {"shape": wanted})


def squeeze(x: Any, dim: int | Sequence[int] | None = None) -> Tensor:
    """Return x without dims of size 1: all of them, or those named if their size is 1."""
    x = as_tensor(x)
    if dim is None:
        dims = set(range(x.ndim))
    else:
        named = (dim,) if isinstance(dim, int) else dim
        dims = {dim_index(d, x.ndim, "squeeze") for d in named}
    return reshape(x, [n for d, n in enumerate(x.shape) if n != 1 or d not in dims])


def unsqueeze(x: Any, dim: int) -> Tensor:
    """Return x with a dim of size 1 inserted at `dim`."""
    x = as_tensor(x)
    at = dim_index(dim, x.ndim + 1, "unsqueeze")
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Return x with the dims start_dim..end_dim joined into one."""
    x = as_tensor(x)
    start = dim_index(start_dim, x.ndim, "flatten")
    stop = dim_index(end_dim, x.ndim, "flatten") + 1
    if start >= stop:
        raise InputError(f"flatten: start_dim {start_dim} lies behind end_dim {end_dim}.")
    joined = prod(x.shape[start:stop])
    return reshape(x, (*x.shape[:start], joined, *x.shape[stop:]))


def concat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Join tensors along an existing dim."""
    xs = [as_tensor(t) for t in tensors]
    if not xs:
        raise InputError("concat: there is no tensor to join.")
    at = dim_index(dim, xs[0].ndim, "concat")
    rest = {(*x.shape[:at], *x.shape[at + 1 :]) for x in xs}
    if len(rest) > 1 or xs[0].ndim == 0:
        shapes = ", ".join(str(list(x.shape)) for x in xs)
        raise InputError(f"concat: shapes {shapes} must agree in every dim but {at}.")
    dtype = result_type(*xs)
    return apply(CONCAT, [x.to(dtype) for x in xs], {"dim": at})


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Join tensors of one shape along a new dim."""
    xs = [as_tensor(t) for t in tensors]
    if len({x.shape for x in xs}) > 1:
        shapes = ", ".join(str(list(x.shape)) for x in xs)
        raise InputError(f"stack: shapes {shapes} must be the same.")
    return concat([unsqueeze(x, dim) for x in xs], dim)


def narrow(x: Any, dim: int, start: int, length: int) -> Tensor:
    """Return a view of `length` elements from `start` along one dim."""
    x = as_tensor(x)
    at = dim_index(dim, x.ndim, "narrow")
    if not 0 <= start <= start + length <= x.shape[at]:
        raise InputError(
            f"narrow: {start}..{start + length} lies outside dim {at} of {list(x.shape)}."
        )
    starts, stops = [0] * x.ndim, list(x.shape)
    starts[at], stops[at] = start, start + length
    attributes = {"starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * x.ndim}
    return apply(SLICE, (x,), attributes)


def split(x: Any, size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of `size` elements each (the last may be smaller), or of the listed sizes."""
    x = as_tensor(x)
    total = x.shape[dim_index(dim, x.ndim, "split")]
    if isinstance(size, int):
        sizes = [min(size, total - start) for start in range(0, total, max(size, 1))]
    else:
        sizes = list(size)
    if sum(sizes) != total:
        raise InputError(f"split: sizes {sizes} do not add up to {total}.")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(narrow(x, dim, start, n) for start, n in zip(starts, sizes, strict=True))


def chunk(x: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return at most `chunks` views of equal size (the last may be smaller)."""
    x = as_tensor(x)
    total = x.shape[dim_index(dim, x.ndim, "chunk")]
    return split(x, max(-(-total // chunks), 1), dim)


def pad(x: Any, pads: Sequence[int], value: float = 0.0) -> Tensor:
    """Surround x by a constant.

    Args:
        x: tensor.
        pads: (before, after) of the last dim, then of the one before it, ..., as PyTorch.
        value: the constant.
    """
    x = as_tensor(x)
    if len(pads) % 2 or len(pads) > 2 * x.ndim or any(p < 0 for p in pads):
        raise InputError(
            f"pad: {list(pads)} must be pairs >= 0 for at most {x.ndim} dims, last dim first."
        )
    pairs = [(int(pads[i]), int(pads[i + 1])) for i in range(0, len(pads), 2)]
    pairs += [(0, 0)] * (x.ndim - len(pairs))
    return apply(PAD, (x,), {"pads": tuple(reversed(pairs)), "value": float(value)})
