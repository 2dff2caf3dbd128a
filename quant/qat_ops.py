"""How each traced operator runs in a QATModel: one function an operator, keyed by OpSpec name."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from midge.core.backend import to_numpy
from midge.core.errors import InputError
from midge.core.nn import functional as F
from midge.core.ops import concat, index_select, maximum, minimum
from midge.quant import arithmetic
from midge.quant.fake_quant import (
    AddCodes,
    AverageCodes,
    EncodeWeight,
    LayerArithmetic,
    QTensor,
    QuantizeInput,
    Requantize,
    Rescale,
    SoftmaxCodes,
    TableCodes,
)
from midge.quant.qat_graph import JOINED, Step
from midge.quant.scheme import QuantParams, WeightCodes, quantize_weights

if TYPE_CHECKING:
    from midge.quant.qat import QATModel

Env = dict[str, QTensor]


def limit(step: Step, low: float, high: float) -> tuple[float, float]:
    """Clamp a range to what a fused Relu or Clip lets through."""
    if step.low is not None:
        low, high = max(low, step.low), max(high, step.low)
    if step.high is not None:
        low, high = min(low, step.high), min(high, step.high)
    return low, high


def encode(model: "QATModel", step: Step, x: QuantParams) -> WeightCodes:
    """Integer weights of a layer as they stand now."""
    W, B = model.folded(step)
    bias = None if B is None else to_numpy(B.array)
    return quantize_weights(to_numpy(W.array), bias, x.scale, 0, model.per_channel)


def accumulate(model: "QATModel", step: Step, env: Env) -> QTensor:
    """Conv2d or Linear: exact sums, then R1."""
    x = env[step.node.inputs[0] or ""]
    W, B = model.folded(step)
    codes = model.frozen.get(step.output) or encode(model, step, x.params)
    dtype = np.dtype(arithmetic.accumulation_dtype(codes.weight, 0))
    weight = EncodeWeight.apply(W, codes, dtype)
    centred = x.centred if dtype == x.centred.dtype else x.centred.to(dtype)
    a = step.node.attributes
    if step.node.op == "conv2d":
        acc = F.conv2d(centred, weight, None, a["stride"], a["padding"], a["dilation"], a["groups"])
    else:
        acc = F.linear(centred, weight)
    _observe_sums(model, step, acc.array, codes, x.params)
    y = model.params_of(step.output)
    m = arithmetic.multiplier(x.params.scale, codes.scale, y.scale)
    return QTensor(Requantize.apply(acc, B, LayerArithmetic(codes, m, y)), y)


def _observe_sums(
    model: "QATModel", step: Step, acc: Any, codes: WeightCodes, x: QuantParams
) -> None:
    """Move the output range by the sums' extremes, channel by channel."""
    if not model.training:
        return
    axes = (0, 2, 3) if acc.ndim == 4 else tuple(range(acc.ndim - 1))
    scale = np.float64(x.scale) * codes.scale.astype(np.float64)
    ends = [to_numpy(acc.min(axis=axes)), to_numpy(acc.max(axis=axes))]
    if codes.bias is not None:
        ends = [e + codes.bias for e in ends]
    low, high = float((ends[0] * scale).min()), float((ends[1] * scale).max())
    model.observe(step.slot, *limit(step, low, high))


def operands(model: "QATModel", step: Step, env: Env) -> list[QTensor]:
    """Return what an operator reads as codes; a constant gets parameters of its own values."""
    found = []
    for name in step.node.inputs[:2]:
        if name in env:
            found.append(env[name])
            continue
        params = model.params_of(name or "")
        constant = model.constants()[name or ""]
        found.append(QTensor(QuantizeInput.apply(constant, params), params))
    return found


def add(model: "QATModel", step: Step, env: Env) -> QTensor:
    """Sum or difference, of two activations or of one and a constant."""
    subtract = step.node.op == "sub"
    a, b = operands(model, step, env)
    if model.training:
        A, B = (arithmetic.dequantize(t.codes, t.params) for t in (a, b))
        total = A - B if subtract else A + B
        model.observe(step.slot, *limit(step, float(total.min()), float(total.max())))
    y = model.params_of(step.output)
    shape = np.broadcast_shapes(a.centred.shape, b.centred.shape)
    wide = [t.centred.expand(*shape) for t in (a, b)]
    return QTensor(AddCodes.apply(*wide, a.params, b.params, y, subtract), y)


def multiply(model: "QATModel", step: Step, env: Env) -> QTensor:
    """Product element by element, or of matrices: exact, then R1."""
    a, b = operands(model, step, env)
    if step.node.op == "mul":
        acc = a.centred * b.centred
    else:
        # Products of centred codes are below 2^16: 256 of them sum up exactly in float32.
        dtype = np.float32 if a.centred.shape[-1] <= 256 else np.float64
        acc = a.centred.to(dtype) @ b.centred.to(dtype)
    if model.training:
        scale = float(a.params.scale) * float(b.params.scale)
        ends = float(acc.array.min()) * scale, float(acc.array.max()) * scale
        model.observe(step.slot, *limit(step, *ends))
    y = model.params_of(step.output)
    m = arithmetic.multiplier(a.params.scale, b.params.scale, y.scale)
    return QTensor(Rescale.apply(acc, m, y), y)


def average(model: "QATModel", step: Step, env: Env) -> QTensor:
    """Average pool, windowed or global, or a mean or sum over axes."""
    x = env[step.node.inputs[0] or ""]
    a = step.node.attributes
    if step.node.op == "global_avg_pool2d":
        mean = F.adaptive_avg_pool2d(x.centred, 1)
        count = np.array(x.centred.shape[2] * x.centred.shape[3])
    elif step.node.op in ("mean", "sum"):
        reduced = getattr(x.centred, step.node.op)(a["dim"], keepdim=a["keepdim"])
        mean, count = reduced, np.array(1)
        if step.node.op == "mean":
            count = np.array(np.prod([x.centred.shape[d] for d in a["dim"]]))
    else:
        args = (a["kernel_size"], a["stride"], a["padding"])
        mean = F.avg_pool2d(x.centred, *args, count_include_pad=a["count_include_pad"])
        count = _counts(a, x.centred.shape, mean.shape)
    if model.training:
        ends = float(mean.array.min()), float(mean.array.max())
        scale = float(x.params.scale)
        model.observe(step.slot, ends[0] * scale, ends[1] * scale)
    y = model.params_of(step.output)
    return QTensor(AverageCodes.apply(mean, count, x.params, y), y)


def _counts(a: dict[str, Any], x_shape: Any, y_shape: Any) -> Any:
    """Elements that each window of an average pool counts: a scalar, or [H', W'] at borders."""
    window = a["kernel_size"][0] * a["kernel_size"][1]
    if a["count_include_pad"] or not any(a["padding"]):
        return np.array(window)
    per_axis = []
    for axis in range(2):
        start = np.arange(y_shape[2 + axis]) * a["stride"][axis] - a["padding"][axis]
        end = np.minimum(start + a["kernel_size"][axis], x_shape[2 + axis])
        per_axis.append(end - np.maximum(start, 0))
    return per_axis[0][:, None] * per_axis[1][None, :]


def softmax(model: "QATModel", step: Step, env: Env) -> QTensor:
    """Softmax with its fixed output scale."""
    x = env[step.node.inputs[0] or ""]
    out = SoftmaxCodes.apply(x.centred, x.params, step.node.attributes["dim"])
    return QTensor(out, model.params_of(step.output))


def table(model: "QATModel", step: Step, env: Env) -> QTensor:
    """A function of one tensor by its 256 codes."""
    assert step.region is not None
    x, function = env[step.region.source], model.function(step)
    with np.errstate(all="ignore"):
        finite = np.isfinite(function(arithmetic.reals(x.params))).all()
    if not finite:
        low, high = arithmetic.reals(x.params)[[0, -1]]
        raise InputError(
            f"{step.output}: its function is no finite number somewhere in {low:.4g}..{high:.4g}, "
            "the range of its input in 8 bits; bound that input, by clip for example."
        )
    real = step.region.real(x.dequantize(), model.constants())
    model.observe(step.slot, float(real.array.min()), float(real.array.max()))
    y = model.params_of(step.output)
    codes = arithmetic.table(function, x.params, y)
    return QTensor(TableCodes.apply(real, x.codes, codes, x.params, y), y)


def same_scale(function: Callable[..., Any]) -> Callable[["QATModel", Step, Env], QTensor]:
    """An operator that moves codes: it runs on the centred codes as on real values."""

    def run(model: "QATModel", step: Step, env: Env) -> QTensor:
        constants = [model.constants()[n] for n in step.node.inputs if n and n not in env]
        joined = step.node.op in JOINED
        if joined and constants:
            ends = [(float(c.array.min()), float(c.array.max())) for c in constants]
            model.observe(step.slot, min(e[0] for e in ends), max(e[1] for e in ends))
        params = model.params_of(step.output)
        inputs = []
        for name in filter(None, step.node.inputs):
            if name in env:
                inputs.append(env[name].under(params))
            elif joined:
                inputs.append(QuantizeInput.apply(model.constants()[name], params))
            else:
                inputs.append(model.constants()[name])
        out = function(inputs, step.node.attributes, params)
        return QTensor(out, params)

    return run


def _clip(inputs: list[Any], a: dict[str, Any], params: QuantParams) -> Any:
    """Clip between the codes of its bounds."""
    return inputs[0].clip(*_bounds(a.get("min"), a.get("max"), params))


def _bounds(low: float | None, high: float | None, params: QuantParams) -> list[float | None]:
    """Return two limits as centred codes."""
    limits = [None if v is None else np.array([v], np.float32) for v in (low, high)]
    codes = [None if v is None else arithmetic.quantize(v, params)[0] for v in limits]
    return [None if q is None else float(q) - params.zero_point for q in codes]


def _pad(inputs: list[Any], a: dict[str, Any], params: QuantParams) -> Any:
    """Pad with the code of the pad value."""
    value = np.array([a.get("value", 0.0)], np.float32)
    code = float(arithmetic.quantize(value, params)[0]) - params.zero_point
    return F.pad(inputs[0], a["pads"], value=code)


def _slice(inputs: list[Any], a: dict[str, Any], params: QuantParams) -> Any:
    """Slice every axis."""
    ends = zip(a["starts"], a["stops"], a["steps"], strict=True)
    return inputs[0][tuple(slice(*row) for row in ends)]


def _expand(inputs: list[Any], a: dict[str, Any], params: QuantParams) -> Any:
    """Repeat, for the batch that is there."""
    return inputs[0].expand(*a["shape"])


def run(model: "QATModel", step: Step, env: Env) -> QTensor:
    """Run one step, and clip at a fused limit that lies inside of a range shared with others."""
    y = (table if step.region is not None else RUN[step.node.op])(model, step, env)
    low, high = _bounds(step.low, step.high, y.params)
    below = low is not None and low + y.params.zero_point > y.params.qmin
    above = high is not None and high + y.params.zero_point < y.params.qmax
    return QTensor(y.centred.clip(low, high), y.params) if below or above else y


RUN: dict[str, Callable[["QATModel", Step, Env], QTensor]] = {
    "add": add,
    "amax": same_scale(lambda t, a, p: t[0].amax(a["dim"], a["keepdim"])),
    "amin": same_scale(lambda t, a, p: t[0].amin(a["dim"], a["keepdim"])),
    "avg_pool2d": average,
    "clip": same_scale(_clip),
    "concat": same_scale(lambda t, a, p: concat(t, a["dim"])),
    "conv2d": accumulate,
    "expand": same_scale(_expand),
    "global_avg_pool2d": average,
    "index_select": same_scale(lambda t, a, p: index_select(t[0], a["dim"], t[1])),
    "linear": accumulate,
    "matmul": multiply,
    "max_pool2d": same_scale(
        lambda t, a, p: F.max_pool2d(t[0], a["kernel_size"], a["stride"], a["padding"])
    ),
    "maximum": same_scale(lambda t, a, p: maximum(t[0], t[1])),
    "mean": average,
    "minimum": same_scale(lambda t, a, p: minimum(t[0], t[1])),
    "mul": multiply,
    "pad": same_scale(_pad),
    "permute": same_scale(lambda t, a, p: t[0].permute(*a["dims"])),
    "relu": same_scale(lambda t, a, p: t[0].relu()),
    "reshape": same_scale(lambda t, a, p: t[0].reshape(t[0].shape[0], *a["shape"][1:])),
    "slice": same_scale(_slice),
    "softmax": softmax,
    "sub": add,
    "sum": average,
}
