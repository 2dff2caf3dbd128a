"""What the records of convolutions and matrix products share, and those of panels of weights."""

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from midge.convert import pack
from midge.convert.emit_step import Record, Step, Words, image_rows, record, word
from midge.convert.plan import Conv2d, FullyConnected, Requantization
from midge.convert.target import PANEL, padded_depth

Array = npt.NDArray[Any]
_TITLE = "bias, multipliers, weights"


def codes_word(x_zero_point: int, r: Requantization) -> str:
    """Return the MIDGE_CODES word of a layer."""
    return f"MIDGE_CODES({x_zero_point}, {r.zero_point}, {r.low}, {r.high})"


def conv2d_words(step: Step, p: Conv2d, *packed: Array) -> Words:
    """Return the words of a convolution of step.x[0], whose constants are `packed`."""
    _, kh, kw, _ = p.weight.shape
    N, H, W, C = step.x[0].shape
    return {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: {_TITLE}", *packed),
        "MIDGE_CONV_X_SIZE": step.pair("input size", H, W),
        "MIDGE_CONV_Y_SIZE": step.pair("output size", *step.y.shape[1:3]),
        "MIDGE_CONV_CHANNELS": step.pair("channels", C, step.y.shape[3]),
        "MIDGE_CONV_KERNEL": step.pair("kernel", kh, kw),
        "MIDGE_CONV_STRIDE": step.pair("stride", *p.stride),
        "MIDGE_CONV_DILATION": step.pair("dilation", *p.dilation),
        "MIDGE_CONV_PADS": step.pair("pads", *p.pads[:2]),
        "MIDGE_CONV_GROUPS": step.pair("batch and groups", N, p.groups),
        "MIDGE_CONV_CODES": codes_word(p.x_zero_point, p.requantization),
    }


def as_convolution(step: Step, p: FullyConnected, pixels: int) -> tuple[Step, Conv2d]:
    """Return a matrix product as a 1 x 1 convolution of one row of pixels."""
    out, depth = p.weight.shape
    line = Conv2d(
        weight=p.weight.reshape(out, 1, 1, depth),
        bias=p.bias,
        stride=(1, 1),
        pads=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=1,
        x_zero_point=p.x_zero_point,
        requantization=p.requantization,
        weight_zero_point=p.weight_zero_point,
    )
    x, y = (replace(t, shape=(1, 1, pixels, n)) for t, n in ((step.x[0], depth), (step.y, out)))
    return replace(step, x=(x,), y=y), line


def packed_conv2d(step: Step, p: Conv2d) -> Record:
    """Return the record of an ungrouped convolution by panels of weights."""
    words = conv2d_words(step, p, *pack.conv2d_panels(p))
    block = step.scratch[1] // (2 * padded_depth(p))
    words["MIDGE_CONV_BLOCK"] = step.pair("block", block, p.weight_zero_point & 0xFFFF)
    return record(step, "midge_conv2d_c4n16_s8", words, image_rows(step.y))


def packed_product(step: Step, p: FullyConnected, pixels: int) -> Record:
    """Return the record of a matrix product by panels of weights."""
    if pixels > 1:
        return packed_conv2d(*as_convolution(step, p, pixels))
    channels, depth = p.weight.shape
    panels = pack.fully_connected_panels(p)
    words: Words = {
        "MIDGE_OP_DATA": step.data.append(f"{step.op.name}: {_TITLE}", *panels),
        "MIDGE_FC_PIXELS": 1,
        "MIDGE_FC_DEPTH": depth,
        "MIDGE_FC_CHANNELS": channels,
        "MIDGE_FC_CODES": codes_word(p.x_zero_point, p.requantization),
        "MIDGE_FC_W_ZERO_POINT": word(p.weight_zero_point),
    }
    rows = -(-channels // PANEL)
    return record(step, "midge_fully_connected_c4n16_s8", words, rows)
