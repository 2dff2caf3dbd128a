"""A one-dimensional CNN for windows of sensor signals; time runs along the last axis."""

from midge.core import Tensor, nn


class CNN1D(nn.Module):
    """Windows [N, channels, 1, time] to logits [N, classes].

    Args:
        classes: number of classes.
        channels: sensor channels.
        width: channels of the first block; the others have twice as many.
    """

    def __init__(self, classes: int = 6, channels: int = 9, width: int = 32) -> None:
        """Build the network."""
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for outputs in (width, 2 * width, 2 * width):
            layers += [
                nn.Conv2d(inputs, outputs, (1, 5), padding=(0, 2), bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.MaxPool2d((1, 2)),
            ]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(0.3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        y = self.pool(self.dropout(self.features(x)))
        out: Tensor = self.classifier(self.flatten(y))
        return out
