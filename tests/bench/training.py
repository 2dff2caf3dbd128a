"""Time training steps against PyTorch: `python tests/bench/training.py [--threads N]`.

Prints, for each network, the best time of a step (forward, backward, SGD with momentum) in midge
and in PyTorch (channels last) from the same code, and their ratio; then one epoch over 1,300
digit-sized images. Both libraries get the same number of threads. With one thread the time is that
of the processor, which a busy machine changes least; with more it is wall time.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable
from typing import Any

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--repeats", type=int, default=20)
options = parser.parse_args()
# BLAS reads these when NumPy is imported.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(options.threads)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from midge import core  # noqa: E402
from midge.core import Tensor, optim  # noqa: E402
from midge.core.data import DataLoader, TensorDataset  # noqa: E402
from midge.models.digits import DigitsNet  # noqa: E402

torch.set_num_threads(options.threads)
clock = time.process_time if options.threads == 1 else time.perf_counter


class Library:
    """The names that differ between the two libraries."""

    def __init__(self, name: str, nn: Any, functional: Any) -> None:
        self.name, self.nn, self.functional = name, nn, functional

    def tensor(self, array: Any) -> Any:
        return Tensor(array) if self.name == "midge" else torch.from_numpy(array)

    def sgd(self, parameters: Any) -> Any:
        kind = optim.SGD if self.name == "midge" else torch.optim.SGD
        return kind(parameters, lr=0.01, momentum=0.9)


MIDGE = Library("midge", core.nn, core.nn.functional)
TORCH = Library("torch", torch.nn, torch.nn.functional)


def conv_bn(nn: Any, *args: Any, **keywords: Any) -> list[Any]:
    return [nn.Conv2d(*args, bias=False, **keywords), nn.BatchNorm2d(args[1])]


def resnet8(nn: Any) -> Any:
    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            first = conv_bn(nn, inputs, outputs, 3, stride, padding=1)
            second = conv_bn(nn, outputs, outputs, 3, padding=1)
            self.body = nn.Sequential(*first, nn.ReLU(), *second)
            same = inputs == outputs
            self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)
            self.relu = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(self.body(x) + self.shortcut(x))

    return nn.Sequential(
        *conv_bn(nn, 3, 16, 3, padding=1),
        nn.ReLU(),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def separable(nn: Any, inputs: int, outputs: int, stride: int = 1) -> list[Any]:
    depthwise = conv_bn(nn, inputs, inputs, 3, stride, padding=1, groups=inputs)
    return [*depthwise, nn.ReLU(), *conv_bn(nn, inputs, outputs, 1), nn.ReLU()]


def dscnn(nn: Any) -> Any:
    layers = [*conv_bn(nn, 1, 64, (10, 4), 2, padding=(4, 1)), nn.ReLU()]
    for _ in range(4):
        layers += separable(nn, 64, 64)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def mobilenet(nn: Any) -> Any:
    plan = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)]
    plan += [(128, 1)] * 5 + [(256, 2), (256, 1)]
    layers, width = [*conv_bn(nn, 3, 8, 3, 2, padding=1), nn.ReLU()], 8
    for outputs, stride in plan:
        layers += separable(nn, width, outputs, stride)
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def autoencoder(nn: Any) -> Any:
    layers, width = [], 640
    for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        layers += [nn.Linear(width, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
        width = outputs
    return nn.Sequential(*layers, nn.Linear(width, 10))


def digits(nn: Any) -> Any:
    layers = [*conv_bn(nn, 1, 16, 3, padding=1), nn.ReLU(), *separable(nn, 16, 32, 2)]
    layers += separable(nn, 32, 64, 2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], int]] = {
    "resnet8, batch 32": (resnet8, (32, 32, 3), 32),
    "ds-cnn, batch 32": (dscnn, (49, 10, 1), 32),
    "mobilenet, batch 32": (mobilenet, (96, 96, 3), 32),
    "digits, batch 64": (digits, (8, 8, 1), 64),
    "autoencoder, batch 32": (autoencoder, (640,), 32),
}


def stepper(library: Library, build: Callable[[Any], Any], batch: Any, labels: Any) -> Any:
    """Return a function that takes one training step."""
    net = build(library.nn)
    if library is TORCH:
        net = net.to(memory_format=torch.channels_last)
    optimizer = library.sgd(net.parameters())
    x, target = library.tensor(batch), library.tensor(labels)

    def step() -> None:
        loss = library.functional.cross_entropy(net(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def best(steps: list[Callable[[], None]]) -> list[float]:
    """Return the shortest time of each, in seconds; they take turns, so noise hits both."""
    times = [float("inf")] * len(steps)
    for step in steps:
        step()
    for _ in range(options.repeats):
        for index, step in enumerate(steps):
            start = clock()
            step()
            times[index] = min(times[index], clock() - start)
    return times


def epoch() -> float:
    """Return the seconds of one epoch over 1,300 images of 8x8, batch 64, second run."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((1300, 8, 8, 1)).astype(np.float32).transpose(0, 3, 1, 2)
    loader = DataLoader(TensorDataset(images, rng.integers(0, 10, 1300)), 64, shuffle=True)
    net = DigitsNet()
    optimizer = optim.Adam(net.parameters())
    for _ in range(2):
        start = time.perf_counter()
        for x, target in loader:
            loss = core.nn.functional.cross_entropy(net(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    print(
        f"{platform.processor() or platform.machine()}, {options.threads} thread(s), "
        f"numpy {np.__version__}, torch {torch.__version__}, best of {options.repeats}, seed 0"
    )
    print(f"{'step':24s}{'midge ms':>10s}{'torch ms':>10s}{'ratio':>8s}")
    for name, (build, shape, size) in CASES.items():
        rng = np.random.default_rng(0)
        batch = rng.standard_normal((size, *shape)).astype(np.float32)
        batch = batch.transpose(0, 3, 1, 2) if batch.ndim == 4 else batch
        labels = rng.integers(0, 10, size)
        ours, theirs = best([stepper(lib, build, batch, labels) for lib in (MIDGE, TORCH)])
        print(f"{name:24s}{ours * 1e3:10.2f}{theirs * 1e3:10.2f}{ours / theirs:8.2f}")
    print(f"digits, one epoch of 1,300 images: {epoch():.2f} s")


if __name__ == "__main__":
    main()
