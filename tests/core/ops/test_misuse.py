"""Wrong arguments end in one line that says what was got and what is needed."""

import numpy as np
import pytest

from midge.core import Tensor, arange, ops, tensor, zeros
from midge.core.errors import InputError

x = zeros(2, 3)
MISUSE = [
    (lambda: x + zeros(2), r"add: inputs \[2, 3\], \[2\] do not fit together"),
    (lambda: x.reshape(4), r"reshape: \[2, 3\] has 6 elements and cannot become \[4\]"),
    (lambda: x.reshape(-1, -1), r"cannot become \[-1, -1\]"),
    (lambda: x.permute(0, 0), r"\[0, 0\] is no permutation of 2 dims"),
    (lambda: x.transpose(0, 2), r"transpose: dim 2 is outside -2\.\.1"),
    (lambda: x.expand(4), r"\[2, 3\] cannot be repeated to \[4\]"),
    (lambda: x.sum(5), r"sum: dim 5 is outside"),
    (lambda: x.sum((0, 0)), r"sum: a dim is named twice"),
    (lambda: arange(3).mean(), r"mean: the input must be float, not int64"),
    (lambda: zeros(0).max(), r"amax: \[0\] has no elements"),
    (lambda: zeros(0).argmax(), r"argmax: \[0\] has no elements"),
    (lambda: x @ x, r"matmul: shapes \[2, 3\] and \[2, 3\] do not fit"),
    (lambda: ops.linear(x, zeros(4, 5)), r"linear: the input is \[2, 3\] but the weight \[4, 5\]"),
    (lambda: ops.linear(x, zeros(4, 3), zeros(3)), r"the bias is \[3\], the weight has 4 rows"),
    (lambda: ops.concat([x, zeros(3, 2)]), r"concat: shapes \[2, 3\], \[3, 2\] must agree"),
    (lambda: ops.concat([]), r"there is no tensor to join"),
    (lambda: ops.stack([x, zeros(3)]), r"stack: shapes \[2, 3\], \[3\] must be the same"),
    (lambda: x.narrow(1, 2, 2), r"narrow: 2\.\.4 lies outside dim 1"),
    (lambda: x.split([1, 1], 1), r"sizes \[1, 1\] do not add up to 3"),
    (lambda: ops.pad(x, [1]), r"pad: \[1\] must be pairs"),
    (lambda: x.flatten(1, 0), r"start_dim 1 lies behind end_dim 0"),
    (lambda: zeros(2, 2, 2).t(), r"3 dims; use permute"),
    (lambda: x[5], r"index: 5 is out of range for a dim of 2"),
    (lambda: x[0, 0, 0], r"3 indices for a tensor of shape \[2, 3\]"),
    (lambda: x[::-1], r"the step -1 must be positive"),
    (lambda: x["a"], r"str is no index"),
    (lambda: x[True], r"bool is no index"),
    (lambda: x[tensor(True)], r"Tensor is no index"),
    (lambda: x[[0.5]], r"an index must be integers or bools, not float64"),
    (lambda: x[[7]], r"index 7 is out of range 0\.\.1"),
    (lambda: x[tensor([True])], r"mask \[1\] does not cover \[2, 3\]"),
    (lambda: zeros(2, 3, 4)[[0], :, [1]], r"neighbouring positions"),
    (lambda: x.index_select(0, 9), r"index_select: index 9 is out of range"),
    (lambda: x.gather(1, tensor([0])), r"gather: the index \[1\] must have the dims"),
    (lambda: ops.where(x, x, x), r"the condition must be bool, not float32"),
    (lambda: x + "a", r"an operand must be a Tensor, an array or a number, not str"),
    (lambda: tensor([True]) - tensor([True]), r"bool tensors cannot be subtracted"),
    (lambda: -tensor([True]), r"a bool tensor has no negative"),
    (lambda: arange(3) ** -1, r"integers to negative powers"),
    (lambda: x.clip(), r"clip: give min, max or both"),
    (lambda: x.softmax(2), r"softmax: dim 2 is outside"),
    (lambda: ops.cross_entropy(x, zeros(2)), r"need integer class indices of shape \[2\]; got flo"),
    (lambda: ops.cross_entropy(x, tensor([0, 3])), r"class index 3 is outside 0\.\.2"),
    (lambda: ops.cross_entropy(x, tensor([0, 1]), "avg"), r"reduction 'avg' is not one of"),
    (
        lambda: ops.cross_entropy(x, tensor([0, 1]), label_smoothing=2.0),
        r"label_smoothing 2\.0 is outside",
    ),
    (lambda: ops.mse_loss(x, zeros(3)), r"mse_loss: shapes \[2, 3\] and \[3\] differ"),
    (lambda: x.to("float32", "float64"), r"'float64' is a second dtype"),
    (lambda: x.to("cuda"), r"device 'cuda': .*use device 'cpu'"),
    (lambda: x.to("cupx"), r"dtype 'cupx' is not supported"),
]


@pytest.mark.parametrize(("misuse", "message"), MISUSE)
def test_misuse_is_named(misuse, message):
    with pytest.raises(InputError, match=message):
        misuse()


def test_repeated_indices_add_their_gradients():
    w = Tensor(np.zeros((3, 2)), requires_grad=True)
    w[[0, 0, 2]].sum().backward()
    assert w.grad.tolist() == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


def test_negative_indices_count_from_the_end():
    w = arange(4)
    assert w[[-1, 0]].tolist() == [3, 0]
    assert w[-1].item() == 3
    assert zeros(2, 3, 4)[[0, 1], [-1, 0]].shape == (2, 4)
