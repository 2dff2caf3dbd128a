"""Layers without state, under PyTorch's names: `from midge.core.nn import functional as F`."""

from midge.core.ops import (
    clip,
    cross_entropy,
    hardtanh,
    linear,
    log_softmax,
    mse_loss,
    pad,
    relu,
    relu6,
    sigmoid,
    softmax,
    tanh,
)
from midge.core.ops.conv import conv2d
from midge.core.ops.dropout import dropout
from midge.core.ops.norm import batch_norm
from midge.core.ops.pool import adaptive_avg_pool2d, avg_pool2d, global_avg_pool2d, max_pool2d

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "clip",
    "conv2d",
    "cross_entropy",
    "dropout",
    "global_avg_pool2d",
    "hardtanh",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "pad",
    "relu",
    "relu6",
    "sigmoid",
    "softmax",
    "tanh",
]
