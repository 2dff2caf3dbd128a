"""MobileNetV1: thirteen depthwise-separable blocks with a width multiplier.

Source: Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
Applications", 2017, table 1.
"""

from midge.core import Tensor, nn
from midge.models.ds_cnn import separable

# (output channels at width 1, stride) of each separable block
BLOCKS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
BLOCKS += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]


class MobileNetV1(nn.Module):
    """Images [N, channels, H, W] to logits [N, classes].

    Args:
        classes: number of classes.
        width: multiplies every channel count, at least 8 channels each.
        channels: of the input.
    """

    def __init__(self, classes: int = 2, width: float = 0.25, channels: int = 3) -> None:
        """Build the network."""
        super().__init__()
        inputs = max(8, int(32 * width))
        layers: list[nn.Module] = [
            nn.Conv2d(channels, inputs, 3, 2, padding=1, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
        ]
        for full, stride in BLOCKS:
            outputs = max(8, int(full * width))
            layers.append(separable(inputs, outputs, stride))
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        out: Tensor = self.classifier(self.flatten(self.pool(self.features(x))))
        return out
