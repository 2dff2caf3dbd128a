import numpy as np
import pytest

from midge.core import Tensor, manual_seed, randn
from midge.core.backend import layout_copies
from midge.core.errors import InputError
from midge.core.nn import functional as F

torch = pytest.importorskip("torch")

# float64 against float64: only the order of the sums differs.
ATOL = 1e-11

OPTIONS = {
    "plain": ((2, 3, 6, 7), (4, 3, 3, 3), {}),
    "stride": ((2, 3, 7, 6), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    "same": ((1, 2, 5, 5), (3, 2, 4, 3), {"padding": "same"}),
    "valid": ((1, 2, 5, 5), (3, 2, 4, 3), {"padding": "valid"}),
    "dilation": ((1, 2, 9, 8), (3, 2, 3, 2), {"dilation": (2, 3), "padding": 2}),
    "groups": ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 5, 6, 6), (5, 1, 3, 3), {"groups": 5, "padding": 1, "stride": 2}),
    "pointwise": ((2, 5, 4, 3), (7, 5, 1, 1), {}),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", OPTIONS)
def test_value_and_gradients_are_those_of_pytorch(name: str) -> None:
    shape, kernel, options = OPTIONS[name]
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s) for s in (shape, kernel, kernel[:1])]
    ours = [Tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, expected = F.conv2d(*ours, **options), torch.nn.functional.conv2d(*theirs, **options)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 0, ATOL)
    weights = rng.standard_normal(y.shape)
    y.backward(Tensor(weights))
    expected.backward(torch.tensor(weights))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 0, ATOL)


def test_four_sided_padding_is_zeros_around_the_input() -> None:
    manual_seed(0)
    x, w = randn(2, 3, 5, 6), randn(4, 3, 3, 3)
    padded = F.pad(x, (1, 2, 0, 3))  # left, right, top, bottom
    found = F.conv2d(x, w, padding=(0, 1, 3, 2))  # top, left, bottom, right
    np.testing.assert_array_equal(found.numpy(), F.conv2d(padded, w).numpy())


def test_the_result_lies_channels_last_without_a_copy() -> None:
    x = Tensor(np.ones((2, 5, 6, 3), np.float32).transpose(0, 3, 1, 2))
    w = Tensor(np.ones((4, 3, 3, 3), np.float32).transpose(0, 3, 1, 2), requires_grad=True)
    layout_copies.reset()
    y = F.conv2d(x, w)
    y.backward(y.detach())
    assert layout_copies.count == 0
    assert y.detach().numpy().transpose(0, 2, 3, 1).flags.c_contiguous


@pytest.mark.parametrize(
    ("shape", "kernel", "options", "message"),
    [
        ((3, 6, 7), (4, 3, 3, 3), {}, r"\[N, C, H, W\]"),
        ((1, 3, 6, 7), (4, 2, 3, 3), {}, "3 channels"),
        ((1, 4, 6, 7), (3, 2, 3, 3), {"groups": 2}, "multiple of 2"),
        ((1, 3, 2, 2), (4, 3, 3, 3), {}, "larger than the 2x2 input"),
        ((1, 3, 6, 7), (4, 3, 3, 3), {"stride": 0}, "must be >= 1"),
        ((1, 3, 6, 7), (4, 3, 3, 3), {"padding": -1}, "padding >= 0"),
        ((1, 3, 6, 7), (4, 3, 3, 3), {"padding": "sam"}, "'same', 'valid'"),
        ((1, 3, 6, 7), (4, 3, 3, 3), {"padding": "same", "stride": 2}, "needs stride 1"),
        ((1, 3, 6, 7), (4, 3, 3, 3), {"padding": (1, 1, 1)}, "two .* or four"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(
    shape: tuple[int, ...], kernel: tuple[int, ...], options: dict, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        F.conv2d(randn(*shape), randn(*kernel), **options)


def test_a_bias_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match="bias is"):
        F.conv2d(randn(1, 3, 6, 6), randn(4, 3, 3, 3), randn(3))
