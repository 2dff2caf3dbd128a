"""MobileNetV2, ResNet-18 and one Relu: float ONNX files with seeded weights, from PyTorch.

Nobody trained them: they show speed and size only. Windows of stride 2 pad as SAME of TensorFlow,
what is odd at the end, so that a .tflite file holds the same network without one more operator.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

SEED = 0
CLASSES = 1000


def convolution(torch: Any, channels: int, out: int, kernel: int, stride: int, **kw: Any) -> Any:
    """Return Conv, BatchNorm and, unless `act` is None, an activation."""
    nn, act, groups = torch.nn, kw.get("act", torch.nn.ReLU), kw.get("groups", 1)
    pad = (kernel - 1) // 2
    layers = [
        nn.Conv2d(channels, out, kernel, stride, pad, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


def residual(torch: Any, body: Any, skip: Any, act: Any) -> Any:
    """Return a module: act(body(x) + skip(x))."""

    class Residual(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch is Any
        def __init__(self) -> None:
            super().__init__()
            self.body, self.skip, self.act = body, skip, act

        def forward(self, x: Any) -> Any:
            return self.act(self.body(x) + self.skip(x))

    return Residual()


def mobilenet_v2(torch: Any, width: float, classes: int) -> Any:
    """Return MobileNetV2 (Sandler et al. 2018), table 2."""
    nn, relu6 = torch.nn, torch.nn.ReLU6

    def scaled(channels: int) -> int:
        down = max(8, int(channels * width + 4) // 8 * 8)
        return down + 8 if down < 0.9 * channels * width else down

    channels = scaled(32)
    layers = [convolution(torch, 3, channels, 3, 2, act=relu6)]
    for expand, out, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
        (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for index in range(count):
            stride, wide, narrow = first if index == 0 else 1, channels * expand, scaled(out)
            head = [convolution(torch, channels, wide, 1, 1, act=relu6)] if expand > 1 else []
            body = nn.Sequential(
                *head,
                convolution(torch, wide, wide, 3, stride, groups=wide, act=relu6),
                convolution(torch, wide, narrow, 1, 1, act=None),
            )
            same = stride == 1 and channels == narrow
            identity = nn.Identity
            layers.append(residual(torch, body, identity(), identity()) if same else body)
            channels = narrow
    last = scaled(1280) if width > 1 else 1280
    layers += [convolution(torch, channels, last, 1, 1, act=relu6)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes))


def resnet18(torch: Any) -> Any:
    """Return ResNet-18 (He et al. 2015), table 1."""
    nn, channels = torch.nn, 64
    layers = [convolution(torch, 3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for out, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            body = nn.Sequential(
                convolution(torch, channels, out, 3, stride),
                convolution(torch, out, out, 3, 1, act=None),
            )
            same = stride == 1 and channels == out
            skip = nn.Identity() if same else convolution(torch, channels, out, 1, stride, act=None)
            layers.append(residual(torch, body, skip, nn.ReLU()))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


NETWORKS: dict[str, tuple[Callable[[Any], Any], int]] = {  # and height and width of the input
    "one Relu": (lambda torch: torch.nn.ReLU(), 2),  # shows what a call costs
    "MobileNetV2-224": (lambda torch: mobilenet_v2(torch, 1.0, CLASSES), 224),
    "MobileNetV2-0.3-80": (lambda torch: mobilenet_v2(torch, 0.3, CLASSES), 80),
    "ResNet-18": (resnet18, 224),
}


def export(name: str, path: Path) -> None:
    """Write a network as float ONNX: He's weights, statistics of noise for the batch norms."""
    import torch

    make, size = NETWORKS[name]
    torch.manual_seed(SEED)
    network = make(torch)
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches
    with torch.no_grad():
        network.train()
        network(torch.randn(8, 3, size, size))
    network.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = (torch.zeros(1, 3, size, size),)
        names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
        torch.onnx.export(network, sample, str(path), opset_version=17, dynamo=False, **names)
    model = onnx.load(path)
    pad_as_same(model)
    onnx.save(model, path)


def pad_as_same(model: onnx.ModelProto) -> None:
    """Pad the windows of stride 2 as SAME does: what is odd goes to the end."""
    shapes = {v.name: v.type.tensor_type.shape for v in onnx.shape_inference.infer_shapes(
        model
    ).graph.value_info}  # fmt: skip
    shapes |= {v.name: v.type.tensor_type.shape for v in model.graph.input}
    for node in model.graph.node:
        attributes = {a.name: a for a in node.attribute}
        strides = list(attributes["strides"].ints) if "strides" in attributes else []
        if node.op_type not in ("Conv", "MaxPool") or strides != [2, 2]:
            continue
        size, kernel = shapes[node.input[0]].dim[2].dim_value, attributes["kernel_shape"].ints[0]
        total = max((-(-size // 2) - 1) * 2 + kernel - size, 0)
        before, after = total // 2, total - total // 2
        attributes["pads"].ints[:] = [before, before, after, after]


def calibration(name: str, samples: int) -> np.ndarray[Any, Any]:
    """Return noise [samples, 1, 3, size, size], as the batch norms have seen."""
    size = NETWORKS[name][1]
    rng = np.random.default_rng(SEED)
    return rng.standard_normal((samples, 1, 3, size, size)).astype(np.float32)
