from typing import Any

import numpy as np
import pytest

from midge.core import nn


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.relu(self.body(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """ResNet-8 with fewer channels."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        Residual(16, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def dscnn() -> nn.Module:
    """A keyword spotter: one tall convolution, then depthwise-separable blocks."""
    layers: list[nn.Module] = [nn.Conv2d(1, 16, (10, 4), 2, (4, 1), bias=False)]
    layers += [nn.BatchNorm2d(16), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU6()]
        layers += [nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    pools = [nn.MaxPool2d((2, 1)), nn.AvgPool2d(2, 1, 1), nn.Flatten()]
    return nn.Sequential(*layers, *pools, nn.Linear(1040, 12))


NETWORKS = {"resnet": (resnet, (3, 16, 16), 10), "dscnn": (dscnn, (1, 49, 8), 12)}


def _twin(module: nn.Module, torch: Any) -> Any:
    """Return the PyTorch module of the same structure."""
    theirs = torch.nn
    if isinstance(module, Residual):
        twin = theirs.Module()
        for name, child in module.named_children():
            setattr(twin, name, _twin(child, torch))
        twin.forward = lambda x: twin.relu(twin.body(x) + twin.shortcut(x))
        return twin
    if isinstance(module, nn.Sequential):
        return theirs.Sequential(*(_twin(child, torch) for child in module))
    kind = getattr(theirs, type(module).__name__)
    if isinstance(module, nn.Conv2d):
        return kind(
            module.in_channels,
            module.out_channels,
            module.kernel_size,
            module.stride,
            module.padding,
            module.dilation,
            module.groups,
            module.bias is not None,
        )
    if isinstance(module, nn.Linear):
        return kind(module.in_features, module.out_features)
    if isinstance(module, nn.BatchNorm2d):
        return kind(module.num_features, module.eps, module.momentum)
    if isinstance(module, nn.MaxPool2d | nn.AvgPool2d):
        return kind(module.kernel_size, module.stride, module.padding)
    return kind(1) if isinstance(module, nn.AdaptiveAvgPool2d) else kind()


@pytest.fixture(params=NETWORKS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Yield one network, its PyTorch twin with the same weights, a batch and its labels."""
    torch = pytest.importorskip("torch")
    build, shape, classes = NETWORKS[request.param]
    ours = build()
    theirs = _twin(ours, torch)
    theirs.load_state_dict(
        {k: torch.tensor(v.numpy().copy()) for k, v in ours.state_dict().items()}
    )
    rng = np.random.default_rng(11)
    x = rng.standard_normal((8, shape[1], shape[2], shape[0])).transpose(0, 3, 1, 2)
    return ours, theirs, x, rng.integers(0, classes, 8)
