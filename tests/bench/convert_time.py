"""`midge convert` against quant_pre_process: `python tests/bench/convert_time.py [--rounds N]`.

A network of the size of ResNet-50 (He et al. 2015, table 1: bottlenecks, 25.6 million weights) is
exported from PyTorch with seeded weights; then both tools take turns on the same file, each in a
process of its own, start-up of Python included. Prints Markdown.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from midge.cli.machine import describe, versions

ORT = (
    "from onnxruntime.quantization.shape_inference import quant_pre_process as p;"
    "import sys; p(sys.argv[1], sys.argv[2])"
)
MIDGE = "from midge.cli.main import main; import sys; main()"


def bottleneck(nn: Any, channels: int, middle: int, out: int, stride: int) -> list[Any]:
    """Return the layers of one block without its shortcut."""
    shapes = ((channels, middle, 1, 1), (middle, middle, 3, stride), (middle, out, 1, 1))
    layers: list[Any] = []
    for c, o, k, s in shapes:
        layers += [nn.Conv2d(c, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
    return layers[:-1]


def export(path: Path) -> None:
    """Write the network."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels: int, middle: int, out: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(*bottleneck(nn, channels, middle, out, stride))
            skip = [nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)]
            self.skip = nn.Sequential(*(skip if channels != out or stride != 1 else []))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.skip(x))

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for middle, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Block(channels, middle, 4 * middle, first if index == 0 else 1))
            channels = 4 * middle
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    network = nn.Sequential(*layers).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = (torch.zeros(1, 3, 224, 224),)
        options: dict[str, Any] = {"opset_version": 17, "dynamo": False}
        # Folded by the exporter, there would be nothing left to do.
        options |= {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE}
        torch.onnx.export(network, sample, str(path), **options)


def seconds(command: list[str]) -> float:
    """Return how long a command takes."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    """Take turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="midge-convert-") as folder:
        source, made = Path(folder) / "float.onnx", Path(folder) / "made.onnx"
        export(source)
        commands = {
            "midge convert": [sys.executable, "-c", MIDGE, "convert", str(source), "-o", str(made)],
            "quant_pre_process": [sys.executable, "-c", ORT, str(source), str(made)],
        }
        spent: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                made.unlink(missing_ok=True)
                spent[name].append(seconds(command))
        size = source.stat().st_size / 1e6
    known = ", ".join(f"{package} {version}" for package, version in versions().items())
    print(f"{describe()}; {known}; a file of {size:.0f} MB, {options.rounds} rounds\n")
    print("| tool | s, median | s, least |\n|---|--:|--:|")
    for name, times in spent.items():
        print(f"| {name} | {statistics.median(times):.2f} | {min(times):.2f} |")


if __name__ == "__main__":
    main()
