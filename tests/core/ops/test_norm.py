import numpy as np
import pytest

from midge.core import Tensor, randn
from midge.core.autograd import grad
from midge.core.errors import InputError
from midge.core.nn import functional as F

torch = pytest.importorskip("torch")
ATOL = 1e-11


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (6, 3), (4, 3, 5)], ids=str)
def test_value_gradients_and_statistics_are_those_of_pytorch(
    shape: tuple[int, ...], training: bool
) -> None:
    rng = np.random.default_rng(2)
    x, weight, bias = rng.standard_normal(shape), *rng.standard_normal((2, 3))
    mean, var = rng.standard_normal(3), rng.uniform(0.5, 2, 3)
    ours = [Tensor(a.copy(), requires_grad=True) for a in (x, weight, bias)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, weight, bias)]
    running = [Tensor(mean.copy()), Tensor(var.copy())]
    expected_running = [torch.tensor(mean), torch.tensor(var)]
    y = F.batch_norm(ours[0], *running, *ours[1:], training, 0.3, 1e-3)
    expected = torch.nn.functional.batch_norm(
        theirs[0], *expected_running, *theirs[1:], training, 0.3, 1e-3
    )
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 0, ATOL)
    for a, b in zip(running, expected_running, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 0, ATOL)
    weights = rng.standard_normal(shape)
    y.backward(Tensor(weights))
    expected.backward(torch.tensor(weights))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 0, ATOL)


def test_a_third_derivative_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(4)
    arrays = rng.standard_normal((4, 2, 3, 2)), *rng.standard_normal((2, 2))

    # PyTorch's own batch_norm holds the statistics constant in its third derivative (2.13).
    def formula(x, running_mean, running_var, weight, bias, training):
        centred = x - x.mean((0, 2, 3), keepdim=True)
        var = (centred * centred).mean((0, 2, 3), keepdim=True)
        return centred / (var + 1e-5).sqrt() * weight.reshape(1, -1, 1, 1) + bias.reshape(
            1, -1, 1, 1
        )

    def third(tensors, batch_norm, gradient):
        x = tensors[0]
        y = batch_norm(x, None, None, *tensors[1:], True)
        for _ in range(2):
            (gx,) = gradient((y * y * y).sum(), [x], create_graph=True)
            y = gx
        return gradient((y * y).sum(), tensors)

    found = third([Tensor(a, requires_grad=True) for a in arrays], F.batch_norm, grad)
    expected = third(
        [torch.tensor(a, requires_grad=True) for a in arrays],
        formula,
        torch.autograd.grad,
    )
    for a, b in zip(found, expected, strict=True):
        scale = np.abs(b.numpy()).max() + 1
        np.testing.assert_allclose(a.numpy() / scale, b.numpy() / scale, 0, 1e-9)


def test_one_value_a_channel_is_refused_in_training() -> None:
    with pytest.raises(InputError, match="more than one value"):
        F.batch_norm(randn(1, 3, 1, 1), None, None, training=True)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"weight \[4\]"):
        F.batch_norm(randn(2, 3), None, None, randn(4), training=True)
    with pytest.raises(InputError, match="running_mean and running_var are needed"):
        F.batch_norm(randn(2, 3), None, None)


def test_running_statistics_that_changed_count_as_modified() -> None:
    mean, var = Tensor(np.zeros(3, np.float32)), Tensor(np.ones(3, np.float32))
    x = randn(4, 3)
    x.requires_grad_()
    y = F.batch_norm(x, mean, var) * (mean * x)
    F.batch_norm(randn(4, 3), mean, var, training=True)
    with pytest.raises(InputError, match="modified by an in-place operation"):
        y.sum().backward()
