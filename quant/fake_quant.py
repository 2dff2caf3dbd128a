"""Quantized operators for training: exact integer forward, straight-through gradient.

A quantized activation travels as a `QTensor`: centred codes q - zero_point in a float tensor (exact
integers) beside the parameters that give them meaning. Every forward calls quant.arithmetic, as the
integer executor does; every backward is the float operator's gradient in units of codes, zero where
a code saturated.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from midge.core import Tensor
from midge.core.autograd import Function, once_differentiable
from midge.core.backend import xp_of
from midge.quant import arithmetic
from midge.quant.scheme import QuantParams, WeightCodes

Array = Any


@dataclass(slots=True)
class QTensor:
    """A quantized activation.

    Args:
        centred: float tensor of q - zero_point, whole numbers.
        params: as the exported file will state them.
    """

    centred: Tensor
    params: QuantParams

    @property
    def codes(self) -> Array:
        """Integer codes in the file's dtype."""
        shifted = self.centred.array + np.float32(self.params.zero_point)
        return shifted.astype(self.params.dtype)

    def under(self, params: QuantParams) -> Tensor:
        """Return centred codes under other parameters, as a range that training moves needs."""
        if params == self.params:
            return self.centred
        moved: Tensor = QuantizeInput.apply(self.dequantize(), params)
        return moved

    def dequantize(self) -> Tensor:
        """Real values (q - zero_point) * scale, float32, with gradient."""
        real: Tensor = Scale.apply(self.centred, self.params.scale)
        return real


def centre(codes: Array, params: QuantParams) -> Array:
    """Return float32 q - zero_point."""
    return codes.astype(np.float32) - np.float32(params.zero_point)


def unsaturated(codes: Array, params: QuantParams) -> Array:
    """Return a float32 mask of the codes that do not sit at an end of the range."""
    return ((codes > params.qmin) & (codes < params.qmax)).astype(np.float32)


class Scale(Function):
    """x * scale with a constant float32 scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: np.float32) -> Tensor:
        """Multiply in float32, as DequantizeLinear does."""
        ctx.scale = scale
        return Tensor(x.array.astype(np.float32) * scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Scale the gradient alike."""
        return Tensor(grad.array * ctx.scale), None


class QuantizeInput(Function):
    """Real values to centred codes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, params: QuantParams) -> Tensor:
        """quant.arithmetic.quantize."""
        codes = arithmetic.quantize(x.array, params)
        ctx.params, ctx.mask = params, unsaturated(codes, params)
        return Tensor(centre(codes, params))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """1 / scale inside the range."""
        return Tensor(grad.array * ctx.mask / ctx.params.scale), None


class EncodeWeight(Function):
    """Real weights to their codes, held as floats of the dtype that accumulates exactly."""

    @staticmethod
    def forward(ctx: Any, W: Tensor, codes: WeightCodes, dtype: Any) -> Tensor:
        """Return the codes; they were chosen by quant.scheme.quantize_weights from W itself."""
        shape = [-1] + [1] * (W.array.ndim - 1)
        ctx.scale = codes.scale.reshape(shape)
        ctx.dtype = W.array.dtype
        xp = xp_of(W.array)
        return Tensor(xp.asarray(codes.weight).astype(dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """1 / scale: symmetric max scales leave nothing saturated."""
        xp = xp_of(grad.array)
        return Tensor((grad.array / xp.asarray(ctx.scale)).astype(ctx.dtype)), None, None


class Requantize(Function):
    """R1 with the bias added exactly: accumulators to centred output codes.

    Channels lie on axis 1 of a 4-D accumulator and on the last axis otherwise.
    """

    @staticmethod
    def forward(ctx: Any, acc: Tensor, B: Tensor | None, layer: "LayerArithmetic") -> Tensor:
        """quant.arithmetic.requantize on int64 sums."""
        xp = xp_of(acc.array)
        shape = (-1, 1, 1) if acc.array.ndim == 4 else (-1,)
        total = acc.array.astype(np.int64)
        if layer.codes.bias is not None:
            total = total + xp.asarray(layer.codes.bias.astype(np.int64)).reshape(shape)
        m = xp.asarray(layer.m).reshape(shape)
        codes = arithmetic.requantize(total, m, layer.y)
        mask = unsaturated(codes, layer.y)
        if layer.y.zero_point == layer.y.qmin:  # a fused Relu: code qmin is the real value 0
            mask = ((total > 0) & (codes < layer.y.qmax)).astype(np.float32)
        ctx.save = (m, mask, layer, None if B is None else B.array)
        return Tensor(centre(codes, layer.y))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """A code changes by m per unit of acc and by 1 / s_y per unit of bias."""
        m, mask, layer, B = ctx.save
        live = grad.array * mask
        if B is None:
            return Tensor(live * m), None, None
        axes = tuple(a for a in range(live.ndim) if a != (1 if live.ndim == 4 else live.ndim - 1))
        gB = live.sum(axis=axes) / layer.y.scale
        return Tensor(live * m), Tensor(gB.astype(B.dtype)), None


@dataclass(frozen=True, slots=True)
class LayerArithmetic:
    """The integer parameters of one accumulating layer at one step.

    Args:
        codes: weight and bias codes.
        m: float32 multipliers [channels] or [1].
        y: parameters of the output.
    """

    codes: WeightCodes
    m: Array
    y: QuantParams


class AddCodes(Function):
    """Quantized Add or Sub of two centred tensors of one shape."""

    @staticmethod
    def forward(
        ctx: Any,
        A: Tensor,
        B: Tensor,
        a: QuantParams,
        b: QuantParams,
        y: QuantParams,
        subtract: bool,
    ) -> Tensor:
        """quant.arithmetic.add on the codes as the file stores them."""
        A_codes = A.array + np.float32(a.zero_point)
        B_codes = B.array + np.float32(b.zero_point)
        codes = arithmetic.add(A_codes, B_codes, a, b, y, subtract=subtract)
        ctx.ratios = arithmetic.add_coefficients(a, b, y, subtract=subtract)[:2]
        ctx.mask = unsaturated(codes, y)
        return Tensor(centre(codes, y))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """The scale ratios, that of a subtracted operand negative, inside the range."""
        live = grad.array * ctx.mask
        return Tensor(live * ctx.ratios[0]), Tensor(live * ctx.ratios[1]), None, None, None, None


class AverageCodes(Function):
    """R1 of an average pool, from the float average of the centred codes.

    The average times its count is rounded back to the exact sum: |sum| < 2^22 keeps the error of
    the float32 average below one half.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, count: Array, x: QuantParams, y: QuantParams) -> Tensor:
        """quant.arithmetic.requantize with m = f32(s_x / f32(s_y * n))."""
        xp = xp_of(mean.array)
        total = np.rint(mean.array.astype(np.float64) * xp.asarray(count))
        m = xp.asarray(arithmetic.average_multiplier(x.scale, y.scale, count))
        codes = arithmetic.requantize(total, m, y)
        ctx.mask, ctx.ratio = unsaturated(codes, y), np.float32(x.scale / y.scale)
        return Tensor(centre(codes, y))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """s_x / s_y inside the range."""
        return Tensor(grad.array * ctx.mask * ctx.ratio), None, None, None


class Rescale(Function):
    """R1 of exact products of centred codes, by one multiplier."""

    @staticmethod
    def forward(ctx: Any, acc: Tensor, m: Array, y: QuantParams) -> Tensor:
        """quant.arithmetic.requantize."""
        codes = arithmetic.requantize(acc.array, m, y)
        ctx.mask, ctx.m = unsaturated(codes, y), m
        return Tensor(centre(codes, y))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """A code changes by m per unit, inside the range."""
        return Tensor(grad.array * ctx.mask * ctx.m), None, None


class SoftmaxCodes(Function):
    """Quantized Softmax over one axis."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, x: QuantParams, axis: int) -> Tensor:
        """quant.arithmetic.softmax."""
        codes = arithmetic.softmax(X.array + np.float32(x.zero_point), x, axis)
        ctx.save = codes.astype(np.float32) / np.float32(256), x.scale, axis
        return Tensor(codes.astype(np.float32))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """The Jacobian diag(p) - p p', in units of codes."""
        p, x_scale, axis = ctx.save
        inner = (grad.array * p).sum(axis=axis, keepdims=True)
        return Tensor(p * (grad.array - inner) * np.float32(256) * x_scale), None, None


class TableCodes(Function):
    """Any unary function by its table; the gradient is that of the float function."""

    @staticmethod
    def forward(
        ctx: Any, real: Tensor, codes: Array, table: Array, x: QuantParams, y: QuantParams
    ) -> Tensor:
        """Look the codes up; `real` carries the graph and is otherwise unused."""
        out = arithmetic.take(table, codes.astype(np.int64) - x.qmin)
        ctx.mask, ctx.y_scale = unsaturated(out, y), y.scale
        return Tensor(centre(out, y))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        """1 / s_y inside the range."""
        return Tensor(grad.array * ctx.mask / ctx.y_scale), None, None, None, None
