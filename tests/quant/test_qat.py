"""QAT computes integers forward and the float gradient backward."""

from collections.abc import Callable

import numpy as np
import pytest

from midge.core import Tensor, manual_seed, nn, no_grad
from midge.core.errors import InputError, UnsupportedError
from midge.core.nn import functional as F
from midge.quant import arithmetic
from midge.quant.fake_quant import AddCodes, AverageCodes, SoftmaxCodes, TableCodes
from midge.quant.qat import QATModel, prepare_qat
from midge.quant.scheme import activation_params

COSINE_FLOOR = 0.97  # of straight-through and float gradients; 8-bit rounding noise is below 1 %


class Net(nn.Module):
    """Every operator that QAT quantizes, a residual and a dilated convolution among them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=(0, 0, 1, 1), bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8)
        self.norm2 = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.average = nn.AvgPool2d(2)
        self.last = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.stem(x)))
        y = F.relu(self.norm2(self.depthwise(y)) + y)
        y = self.average(self.pool(y))
        y = F.relu6(y + y)
        return self.linear(self.flatten(self.last(y)))


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3, 18, 18)).astype(np.float32)


@pytest.fixture(name="net")
def trained_net() -> Net:
    manual_seed(1)
    net = Net()
    net.train()
    for seed in range(3):
        net(Tensor(images(16, seed)))
    return net


def observed(net: nn.Module) -> QATModel:
    qat = prepare_qat(net, Tensor(images(2)))
    qat.train()
    for seed in range(3):
        qat(Tensor(images(16, seed)))
    return qat


def test_the_simulation_is_close_to_the_float_module(net: Net) -> None:
    qat = observed(net)
    qat.finalize()
    net.eval()
    x = Tensor(images(32, 9))
    with no_grad():
        want, got = net(x).numpy(), qat(x).numpy()
    noise = 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum())
    assert noise > 25


def test_gradients_are_those_of_the_float_module(net: Net) -> None:
    qat = observed(net)
    x, y = Tensor(images(16, 5)), Tensor(np.arange(16) % 5)
    F.cross_entropy(qat(x), y).backward()
    straight = {n: p.grad.numpy().ravel().copy() for n, p in net.named_parameters()}
    net.zero_grad()
    net.eval()
    F.cross_entropy(net(x), y).backward()
    for name, parameter in net.named_parameters():
        a, b = straight[name], parameter.grad.numpy().ravel()
        if np.abs(b).max() < 1e-6:
            continue  # nothing to compare with
        assert a @ b / np.sqrt((a @ a) * (b @ b)) > COSINE_FLOOR, name


def test_outputs_lie_on_the_grid_of_their_scale(net: Net) -> None:
    qat = observed(net).finalize()
    out = qat(Tensor(images(4))).detach().numpy()
    params = qat.params_of("output")
    codes = arithmetic.quantize(out, params)
    assert np.array_equal(arithmetic.dequantize(codes, params), out)


def test_batches_do_not_matter_after_finalize(net: Net) -> None:
    qat = observed(net).finalize()
    x = images(8)
    with no_grad():
        whole = qat(Tensor(x)).numpy()
        single = np.concatenate([qat(Tensor(x[i : i + 1])).numpy() for i in range(8)])
    assert np.array_equal(whole, single)


def test_a_finalized_model_no_longer_moves(net: Net) -> None:
    qat = observed(net).finalize()
    before = qat.ranges.numpy().copy()
    qat.train()
    qat(Tensor(100 * images(4)))
    assert np.array_equal(before, qat.ranges.numpy())


def test_frozen_ranges_stand_still_while_weights_train(net: Net) -> None:
    qat = observed(net)
    qat.freeze_ranges()
    before = qat.ranges.numpy().copy()
    qat(Tensor(100 * images(4)))
    assert np.array_equal(before, qat.ranges.numpy())


def test_ranges_must_be_observed_first(net: Net) -> None:
    qat = prepare_qat(net, Tensor(images(2)))
    with pytest.raises(InputError, match="no range observed"):
        qat.eval()(Tensor(images(2)))
    with pytest.raises(InputError, match=r"finalize\(\)"):
        qat.export()


def test_the_export_carries_the_trained_weights(net: Net) -> None:
    qat = observed(net)
    with no_grad():
        net.linear.weight.mul_(0.5)
    export = qat.finalize().export()
    assert np.array_equal(
        export.graph.constants["linear.weight"].numpy(), net.linear.weight.detach().numpy()
    )
    assert set(export.params) >= {"input", "output"}
    assert len(export.layers) == 3


class LoneNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, 1)


@pytest.mark.parametrize(
    ("make", "words"), [(LoneNorm, "batch_norm"), (Logarithm, "no quantized form")]
)
def test_an_operator_without_quantized_form_is_named(
    make: Callable[[], nn.Module], words: str
) -> None:
    with pytest.raises(UnsupportedError, match=words):
        prepare_qat(make(), Tensor(images(2)))


def test_softmax_shares_its_fixed_scale() -> None:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(self.linear(x), 1)

    x = Tensor(np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32))
    qat = prepare_qat(Head(), x)
    qat(x)
    out = qat.finalize()(x).detach().numpy()
    assert np.array_equal(out * 256, np.rint(out * 256))
    assert np.abs(out.sum(axis=1) - 1).max() < 0.02


def difference(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Central differences of sum(f(x) * g)."""
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-4
        out[i] = ((f(x + step) - f(x - step)) * g).sum() / 2e-4
    return out


def grad_of(op: Callable[[Tensor], Tensor], x: np.ndarray, g: np.ndarray) -> np.ndarray:
    leaf = Tensor(x.astype(np.float32), requires_grad=True)
    (op(leaf) * Tensor(g.astype(np.float32))).sum().backward()
    assert leaf.grad is not None
    return np.asarray(leaf.grad.numpy())


def test_softmax_gradient_is_the_jacobian_in_codes() -> None:
    rng = np.random.default_rng(3)
    x = activation_params(-4, 4)
    centred = rng.integers(-60, 60, (3, 5)).astype(np.float64)
    g = rng.normal(size=(3, 5))

    def smooth(c: np.ndarray) -> np.ndarray:
        e = np.exp(c * float(x.scale))
        return 256 * e / e.sum(axis=1, keepdims=True)

    got = grad_of(lambda t: SoftmaxCodes.apply(t, x, -1), centred, g)
    assert np.allclose(got, difference(smooth, centred, g), atol=0.05)


def test_add_and_average_pass_scaled_gradients() -> None:
    a, y = activation_params(-1, 1), activation_params(-4, 4)
    c = np.array([[3.0, -20.0, 50.0]])
    g = np.array([[1.0, 2.0, -1.0]])
    other = Tensor(np.zeros((1, 3), np.float32))
    got = grad_of(lambda t: AddCodes.apply(t, other, a, a, y, False), c, g)
    assert np.allclose(got, g * float(a.scale) / float(y.scale))
    got = grad_of(lambda t: AddCodes.apply(other, t, a, a, y, True), c, g)
    assert np.allclose(got, -g * float(a.scale) / float(y.scale))
    got = grad_of(lambda t: AverageCodes.apply(t, np.array(4), a, y), c, g)
    assert np.allclose(got, g * float(a.scale) / float(y.scale))


def test_a_table_passes_the_function_s_gradient_and_none_where_it_saturates() -> None:
    x, y = activation_params(-4, 4), activation_params(0, 0.9)
    codes = np.array([10, 128, 250], np.uint8)
    table = arithmetic.table(lambda v: 1 / (1 + np.exp(-v)), x, y)
    real = arithmetic.dequantize(codes, x)

    def run(t: Tensor) -> Tensor:
        return TableCodes.apply(t.sigmoid(), codes, table, x, y)

    got = grad_of(run, real, np.ones(3))
    s = 1 / (1 + np.exp(-real))
    assert np.allclose(got[:2], (s * (1 - s))[:2] / y.scale, rtol=1e-4)
    assert got[2] == 0
