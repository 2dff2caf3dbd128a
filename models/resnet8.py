"""ResNet-8 of MLPerf Tiny: three residual stages of 16, 32 and 64 channels for 32x32 images.

Source: Banbury et al., "MLPerf Tiny Benchmark", 2021; He et al., "Deep Residual Learning", 2016.
"""

from midge.core import Tensor, nn


class Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut, 1x1 where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        """Build a block of `outputs` channels."""
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(F(x) + shortcut(x))."""
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        out: Tensor = self.relu(y + self.shortcut(x))
        return out


class ResNet8(nn.Module):
    """Images [N, 3, 32, 32] to logits [N, classes]."""

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        """Build the network."""
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.stages = nn.Sequential(Residual(16, 16), Residual(16, 32, 2), Residual(32, 64, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        out: Tensor = self.classifier(self.flatten(self.pool(self.stages(self.stem(x)))))
        return out
