"""Rows of normalizations: by running statistics, by a tensor's own mean, by its length."""

from typing import Any

from midge.convert.to_module_call import Call, Ints, Table, axis_of, root
from midge.core import ops
from midge.core.tensor import Tensor


def _batch(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Normalize by the statistics of the file; in train() mode by the batch's, and move them."""
    if call.get("training_mode", 0) or call.outputs > 1:
        raise call.fail("it is in training mode", "export the model for inference")
    return ops.batch_norm(
        x,
        mean,
        var,
        scale,
        bias,
        training=call.training,
        momentum=1 - call.get("momentum", 0.9),
        eps=call.get("epsilon", 1e-5),
    )


def _normalized(x: Tensor, dims: Ints, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x - mean) / sqrt(variance + epsilon) over some axes, the mean and 1 / the root."""
    mean = ops.mean(x, dims, keepdim=True)
    centred = x - mean
    spread = ops.sqrt(ops.mean(centred * centred, dims, keepdim=True) + epsilon)
    return centred / spread, mean, 1 / spread


def _layer(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    dims = tuple(range(axis_of(call, x.ndim, -1), x.ndim))
    y, mean, inverse = _normalized(x, dims, call.get("epsilon", 1e-5))
    y = y * scale if bias is None else y * scale + bias
    return (y, mean, inverse)[: call.outputs] if call.outputs > 1 else y


def _rms(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    dims = tuple(range(axis_of(call, x.ndim, -1), x.ndim))
    mean_square = ops.mean(x * x, dims, keepdim=True)
    return x / ops.sqrt(mean_square + call.get("epsilon", 1e-5)) * scale


def _channels(x: Tensor, ndim: int) -> Tensor:
    """Return one number per channel in a shape that broadcasts over [N, C, ...]."""
    return ops.reshape(x, (-1, *[1] * (ndim - 2)))


def _instance(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    y, *_ = _normalized(x, tuple(range(2, x.ndim)), call.get("epsilon", 1e-5))
    return y * _channels(scale, x.ndim) + _channels(bias, x.ndim)


def _group(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Normalize groups of channels; scale and bias count groups before opset 21, then channels."""
    groups, channels = int(call.get("num_groups")), x.shape[1]
    parts = ops.reshape(x, (x.shape[0], groups, channels // groups, *x.shape[2:]))
    y, *_ = _normalized(parts, tuple(range(2, parts.ndim)), call.get("epsilon", 1e-5))
    if scale.shape[0] == channels:
        y = ops.reshape(y, x.shape)
    y = y * _channels(scale, y.ndim) + _channels(bias, y.ndim)
    return ops.reshape(y, x.shape)


def _lp(call: Call, x: Tensor) -> Tensor:
    """Return x / its 1-norm or 2-norm along an axis; 0 where the norm is 0."""
    dim = axis_of(call, x.ndim, -1)
    if call.get("p", 2) == 1:
        length = ops.sum(ops.abs(x), dim, keepdim=True)
    else:
        length = root(ops.sum(x * x, dim, keepdim=True))
    return x / ops.where(ops.eq(length, 0), 1, length)


NORMS: Table = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LayerNormalization": _layer,
    "LpNormalization": _lp,
    "RMSNormalization": _rms,
}
