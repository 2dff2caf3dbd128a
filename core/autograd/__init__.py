"""Automatic differentiation: the graph, the backward pass, custom functions and checks.

Layers: modes, node, hooks and views know no Tensor when they are loaded; tensor.py builds on
them; engine, function, gradcheck and checkpoint build on Tensor.
"""

from midge.core.autograd.checkpoint import checkpoint
from midge.core.autograd.engine import backward, grad
from midge.core.autograd.function import Function, once_differentiable
from midge.core.autograd.gradcheck import gradcheck, gradgradcheck
from midge.core.autograd.hooks import RemovableHandle
from midge.core.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "RemovableHandle",
    "backward",
    "checkpoint",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]
