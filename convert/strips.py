"""Which rows of its inputs a step reads for which rows of its output: the basis of streaming.

Rows are those of stored [N, H, W, C] tensors with N = 1, and planes of [N, C, H, W].
"""

from dataclasses import dataclass

from midge.convert.plan import Add, Conv2d, Plan, PlanOp, PlanTensor, Pool2d, Table, Transpose

STREAM_MAX = 32  # steps of a stream: MIDGE_STREAM_MAX of the runtime


@dataclass(frozen=True, slots=True)
class RowWindow:
    """Output rows first..last - 1 need input rows first * stride - top .. end(last) - 1, clipped.

    Attributes:
        rows: of the output.
        x_rows: of every input.
        stride: input rows from one output row to the next.
        top: rows of padding above the input.
        reach: of output row 0: input rows below it are needed; at least 1.
    """

    rows: int
    x_rows: int
    stride: int
    top: int
    reach: int

    def begin(self, first: int) -> int:
        """Return the first input row that output row `first` needs; later rows need none before."""
        return min(max(first * self.stride - self.top, 0), self.x_rows)

    def end(self, last: int) -> int:
        """Return one past the last input row that the output rows before `last` need."""
        return min((last - 1) * self.stride + self.reach, self.x_rows)


def row_window(plan: Plan, op: PlanOp) -> RowWindow | None:
    """Return how a step reads rows, or None where its kernel makes the whole output at once."""
    x, y = plan.tensors[op.inputs[0]], plan.tensors[op.output]
    if len(x.shape) != 4 or len(y.shape) != 4 or x.shape[0] != 1:
        return None
    match op.params:
        case Conv2d(weight=weight) as p:
            extent, stride, top = (weight.shape[1] - 1) * p.dilation[0] + 1, p.stride[0], p.pads[0]
        case Pool2d() as p:
            extent, stride, top = (p.kernel[0] - 1) * p.dilation[0] + 1, p.stride[0], p.pads[0]
        case Add() | Table():
            extent, stride, top = 1, 1, 0
        case Transpose() as p if interleaves(p, x):  # each row needs all planes
            return RowWindow(y.shape[1], x.shape[1], stride=0, top=0, reach=x.shape[1])
        case _:
            return None
    if extent <= top:  # a whole window of padding
        return None
    return RowWindow(y.shape[1], x.shape[1], stride, top, extent - top)


def interleaves(params: Transpose, x: PlanTensor) -> bool:
    """Tell whether a step brings bytes from [1, C, H, W] to [1, H, W, C]."""
    return params.perm == (0, 2, 3, 1) and x.shape[0] == 1 and x.dtype in ("int8", "uint8")
