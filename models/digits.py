"""The demo's network and data: handwritten digits of 8 x 8 pixels, from scikit-learn."""

import numpy as np

from midge.core import Tensor, nn
from midge.core.errors import InputError
from midge.models.datasets import Split
from midge.models.ds_cnn import separable

LEVELS = 16  # grey levels above black
TEST_SHARE = 0.2


class DigitsNet(nn.Module):
    """Images [N, 1, 8, 8] in 0..1 to logits [N, 10]: a stem, three separable blocks, a classifier.

    Args:
        width: channels of the stem; the blocks have 2, 3 and 4 times as many.
    """

    def __init__(self, width: int = 16) -> None:
        """Build the network."""
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.blocks = nn.Sequential(
            separable(width, 2 * width),
            separable(2 * width, 3 * width, stride=2),
            separable(3 * width, 4 * width),
        )
        self.pool = nn.AvgPool2d(2)  # keeps a rough idea of where a stroke was
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(4 * width * 2 * 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        out: Tensor = self.classifier(self.flatten(self.pool(self.blocks(self.stem(x)))))
        return out


def load_digits(seed: int = 0) -> Split:
    """Return the 1,797 images as [n, 1, 8, 8] float32 in 0..1, a fifth of each class for testing.

    Args:
        seed: of the stratified split.

    Raises:
        InputError: scikit-learn is not installed.

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998 (its test set).
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise InputError(
            "The digits come with scikit-learn, which is not installed; pip install 'midge[demo]'."
        ) from error
    raw = datasets.load_digits()
    images = (raw.images[:, None] / LEVELS).astype(np.float32)
    labels = raw.target.astype(np.int64)
    train, test = stratified_split(labels, TEST_SHARE, seed)
    names = tuple(str(digit) for digit in range(10))
    return Split(images[train], labels[train], images[test], labels[test], names)


def stratified_split(labels: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of two disjoint parts; the second holds `share` of every class.

    Args:
        labels: int64 [n].
        share: of the second part, 0..1.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    second = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        second[members[: round(share * len(members))]] = True
    return np.flatnonzero(~second), np.flatnonzero(second)
