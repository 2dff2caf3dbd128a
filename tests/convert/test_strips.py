"""Windows of rows: what they say is what the executor's outputs depend on."""

import numpy as np
import pytest

from midge.convert.executor import compute
from midge.convert.plan import (
    Add,
    Conv2d,
    FlipSign,
    Plan,
    PlanOp,
    PlanTensor,
    Pool2d,
    Requantization,
    Table,
    Transpose,
)
from midge.convert.strips import RowWindow, row_window
from midge.quant.scheme import QuantParams

f32 = np.float32
CODES = QuantParams(f32(0.05), 0, "int8")


def step(params, x_shape, y_shape, inputs=(0,)):
    tensors = [PlanTensor("x", x_shape, "int8", 0), PlanTensor("y", y_shape, "int8", 1)]
    op = PlanOp("op", params, inputs, 1)
    sizes = [t.bytes for t in tensors]
    return Plan("one", tensors, [op], (0,), (1,), sizes), op


def conv(kernel, stride, pads, dilation, height):
    """Return a convolution of a column of one channel, and its Plan."""
    rows = (height + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1
    params = Conv2d(
        np.ones((1, kernel, 1, 1), np.int8),
        np.zeros(1, np.int32),
        (stride, 1),
        (pads[0], 0, pads[1], 0),
        (dilation, 1),
        1,
        0,
        Requantization(np.ones(1, f32), 0),
    )
    return step(params, (1, height, 1, 1), (1, rows, 1, 1))


def touched(plan, op, row):
    """Return the input rows that change an output row, by changing them one by one."""
    height = plan.tensors[0].shape[1]
    x = np.zeros((1, *plan.tensors[0].shape), np.int8)
    before = compute(plan, op, [x] * len(op.inputs))[0]
    found = []
    for r in range(height):
        changed = x.copy()
        changed[0, 0, r] = 40
        after = compute(plan, op, [changed] * len(op.inputs))[0]
        if (after[0, row] != before[0, row]).any():
            found.append(r)
    return found


CONVOLUTIONS = [
    (1, 1, (0, 0), 1, 5),
    (1, 2, (0, 0), 1, 5),
    (3, 1, (1, 1), 1, 6),
    (3, 2, (0, 1), 1, 6),
    (3, 2, (1, 1), 1, 7),
    (3, 1, (2, 2), 2, 7),
    (5, 3, (2, 0), 1, 9),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_a_convolution_depends_on_the_rows_of_its_window(case):
    plan, op = conv(*case)
    window = row_window(plan, op)
    for row in range(window.rows):
        rows = range(window.begin(row), window.end(row + 1))
        found = touched(plan, op, row)
        assert set(found) <= set(rows)
        # A clipped window with dilation may end between two of its rows.
        assert (found[0], found[-1]) == (rows[0], rows[-1]) or case[3] > 1


def test_pools_and_elementwise_steps_depend_on_their_rows():
    pool = Pool2d("max", (2, 1), (2, 1), (0, 0, 0, 0), 0)
    table = Table(np.arange(-128, 128).astype(np.int8))
    for plan, op in (
        step(pool, (1, 6, 1, 1), (1, 3, 1, 1)),
        step(table, (1, 4, 1, 1), (1, 4, 1, 1)),
        step(Add(CODES, CODES, CODES), (1, 4, 1, 1), (1, 4, 1, 1), (0, 0)),
    ):
        window = row_window(plan, op)
        for row in range(window.rows):
            rows = range(window.begin(row), window.end(row + 1))
            assert list(rows) == touched(plan, op, row)


def test_rows_of_an_image_by_channels_need_all_planes():
    plan, op = step(Transpose((0, 2, 3, 1)), (1, 3, 4, 5), (1, 4, 5, 3))
    window = row_window(plan, op)
    assert [(window.begin(r), window.end(r + 1)) for r in range(4)] == [(0, 3)] * 4


def test_a_window_is_clipped_at_both_ends():
    window = RowWindow(rows=5, x_rows=5, stride=1, top=1, reach=2)
    assert [window.begin(r) for r in range(6)] == [0, 0, 1, 2, 3, 4]
    assert [window.end(r) for r in range(1, 6)] == [2, 3, 4, 5, 5]


def test_other_steps_are_made_at_once():
    batch = step(Table(np.zeros(256, np.int8)), (2, 4, 1, 1), (2, 4, 1, 1))
    flat = step(Table(np.zeros(256, np.int8)), (1, 8), (1, 8))
    flip = step(FlipSign(), (1, 4, 1, 1), (1, 4, 1, 1))
    padding = conv(2, 1, (2, 0), 1, 4)  # the first window lies above the image
    for plan, op in (batch, flat, flip, padding):
        assert row_window(plan, op) is None
