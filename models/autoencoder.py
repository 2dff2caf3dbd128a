"""The deep autoencoder of MLPerf Tiny's anomaly detection: 640-128-128-128-128-8 and back.

Source: Koizumi et al., "Description and Discussion on DCASE2020 Challenge Task 2", 2020.
"""

from itertools import pairwise

from midge.core import Tensor, nn


class Autoencoder(nn.Module):
    """Feature vectors [N, features] to their reconstructions [N, features].

    Args:
        features: length of a vector.
        width: of the hidden layers.
        code: of the bottleneck.
    """

    def __init__(self, features: int = 640, width: int = 128, code: int = 8) -> None:
        """Build the network."""
        super().__init__()
        sizes = [features, width, width, width, width, code, width, width, width, width]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
        layers.append(nn.Linear(width, features))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the reconstruction."""
        out: Tensor = self.layers(x)
        return out
