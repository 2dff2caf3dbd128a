"""Every network of the zoo builds, trains a step, traces and has a quantized twin."""

import numpy as np
import pytest

from midge.cli.train import RECIPES, find_recipe, load_train_recipe
from midge.core import Tensor, manual_seed
from midge.core.errors import InputError
from midge.models.datasets import LOADERS
from midge.models.zoo import NETWORKS, NetworkSpec
from midge.quant.qat import prepare_qat

SAMPLES = {
    "autoencoder": ({"features": 20, "width": 8, "code": 4}, (20,)),
    "cnn1d": ({"width": 4}, (9, 1, 32)),
    "ds-cnn": ({"width": 8, "blocks": 2}, (1, 20, 10)),
    "mobilenet-v1": ({"width": 0.1}, (3, 32, 32)),
    "resnet8": ({}, (3, 16, 16)),
}


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_network_trains_and_quantizes(name: str) -> None:
    manual_seed(0)
    arguments, shape = SAMPLES[name]
    net = NetworkSpec(name, arguments).build()
    x = Tensor(np.random.default_rng(0).normal(size=(8, *shape)).astype(np.float32))
    net.train()
    (net(x) ** 2).mean().backward()
    assert all(p.grad is not None for p in net.parameters())
    qat = prepare_qat(net, x)
    qat(x)
    assert np.isfinite(qat.finalize()(x).detach().numpy()).all()


def test_an_unknown_network_or_argument_is_named() -> None:
    with pytest.raises(InputError, match="Did you mean 'resnet8'"):
        NetworkSpec("resnet-8", {}).build()
    with pytest.raises(InputError, match="wdith"):
        NetworkSpec("ds-cnn", {"wdith": 3}).build()


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda p: p.stem)
def test_a_shipped_recipe_is_valid(path: object) -> None:
    recipe = load_train_recipe(path)
    assert recipe.data in LOADERS
    recipe.network.build()


def test_a_misspelt_recipe_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match="Did you mean 'cnn1d-har'"):
        find_recipe("cnn-1d-har")
