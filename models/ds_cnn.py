"""DS-CNN: a strided stem and depthwise-separable blocks, for keyword spotting and small images.

Source: Zhang et al., "Hello Edge: Keyword Spotting on Microcontrollers", 2017.
"""

from midge.core import Tensor, nn


def separable(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A 3x3 depthwise and a 1x1 convolution, each with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class DSCNN(nn.Module):
    """Spectrograms [N, 1, time, bands] to logits [N, classes].

    Args:
        classes: number of classes.
        width: channels of every block.
        blocks: number of separable blocks.
        kernel: of the stem, (time, bands).
    """

    def __init__(
        self,
        classes: int = 12,
        width: int = 64,
        blocks: int = 4,
        kernel: tuple[int, int] = (10, 4),
    ) -> None:
        """Build the network."""
        super().__init__()
        top, left = (kernel[0] - 1) // 2, (kernel[1] - 1) // 2
        pads = (top, left, kernel[0] - 1 - top, kernel[1] - 1 - left)
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, kernel, 2, padding=pads, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.blocks = nn.Sequential(*[separable(width, width) for _ in range(blocks)])
        self.dropout = nn.Dropout(0.2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        y = self.dropout(self.blocks(self.stem(x)))
        out: Tensor = self.classifier(self.flatten(self.pool(y)))
        return out
