"""The networks that a recipe can name, each with the shape of one sample."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from midge.core import nn
from midge.core.errors import InputError, did_you_mean
from midge.models.autoencoder import Autoencoder
from midge.models.cnn1d import CNN1D
from midge.models.ds_cnn import DSCNN
from midge.models.mobilenet_v1 import MobileNetV1
from midge.models.resnet8 import ResNet8

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "autoencoder": Autoencoder,
    "cnn1d": CNN1D,
    "ds-cnn": DSCNN,
    "mobilenet-v1": MobileNetV1,
    "resnet8": ResNet8,
}


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A network by name, with the arguments of its constructor."""

    name: str
    arguments: dict[str, Any]

    def build(self) -> nn.Module:
        """Return a freshly initialised network.

        Raises:
            InputError: the name or an argument is unknown.
        """
        if self.name not in NETWORKS:
            known = ", ".join(sorted(NETWORKS))
            hint = did_you_mean(self.name, NETWORKS)
            raise InputError(f"network {self.name!r} is unknown; known: {known}.{hint}")
        try:
            return NETWORKS[self.name](**self.arguments)
        except TypeError as error:
            raise InputError(f"network {self.name!r}: {error}.") from error
