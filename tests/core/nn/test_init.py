from math import sqrt

import numpy as np
import pytest

from midge.core import Generator, Tensor, nn, zeros
from midge.core.errors import InputError
from midge.core.nn import init

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("layer", "bound"),
    [
        (lambda: nn.Linear(50, 200), 1 / sqrt(50)),
        (lambda: nn.Conv2d(8, 64, 3), 1 / sqrt(72)),
        (lambda: nn.Conv2d(64, 64, 3, groups=64), 1 / 3),
    ],
    ids=["linear", "conv", "depthwise"],
)
def test_layers_start_uniform_within_one_over_the_root_of_fan_in(layer, bound: float) -> None:
    module = layer()
    for values in (module.weight.detach().numpy(), module.bias.detach().numpy()):
        assert np.abs(values).max() <= bound
        assert values.std() == pytest.approx(bound / sqrt(3), rel=0.3)


@pytest.mark.parametrize("name", ["xavier_uniform_", "xavier_normal_", "kaiming_normal_"])
def test_the_spread_is_that_of_pytorch(name: str) -> None:
    ours = getattr(init, name)(zeros(40, 30, 3, 3), generator=Generator(1)).numpy()
    theirs = getattr(torch.nn.init, name)(torch.zeros(40, 30, 3, 3)).numpy()
    assert ours.std() == pytest.approx(theirs.std(), rel=0.03)
    assert ours.mean() == pytest.approx(0, abs=float(theirs.std()) / 50)


@pytest.mark.parametrize("name", ["linear", "sigmoid", "tanh", "relu", "leaky_relu"])
def test_gains_are_those_of_pytorch(name: str) -> None:
    assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))


def test_the_memory_layout_changes_no_number() -> None:
    plain = zeros(4, 3, 2, 2)
    last = Tensor(np.zeros((4, 2, 2, 3), np.float32).transpose(0, 3, 1, 2))
    init.normal_(plain, generator=Generator(5))
    init.normal_(last, generator=Generator(5))
    np.testing.assert_array_equal(plain.numpy(), last.numpy())


def test_constants_fill_and_leave_parameters_trainable() -> None:
    layer = nn.Linear(2, 3)
    init.ones_(layer.weight)
    init.zeros_(layer.bias)
    assert layer.weight.requires_grad
    assert layer.weight.is_leaf
    np.testing.assert_array_equal(layer.weight.detach().numpy(), 1)
    np.testing.assert_array_equal(init.constant_(zeros(2), 2.5).numpy(), 2.5)


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="two dimensions"):
        init.xavier_uniform_(zeros(3))
    with pytest.raises(InputError, match="Did you mean 'relu'"):
        init.kaiming_uniform_(zeros(3, 3), nonlinearity="rleu")
    with pytest.raises(InputError, match="fan_in"):
        init.kaiming_uniform_(zeros(3, 3), mode="fan")
