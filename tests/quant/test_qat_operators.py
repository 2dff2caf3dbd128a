"""What QAT computes for each operator, its file computes too: executor, C and ONNX Runtime."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.session import Session
from midge.convert.trained import write_trained
from midge.core import Tensor, manual_seed, nn, no_grad
from midge.core.nn import functional as F
from midge.core.ops import concat, erf, index_select, maximum, minimum, sin, where
from midge.quant.qat import QATModel, prepare_qat

SHAPE = (4, 6, 6)
CHANNELS = Tensor(np.linspace(-1.5, 2, 4, dtype=np.float32).reshape(1, 4, 1, 1))
TWICE = Tensor(np.repeat(np.arange(6), 2))


def gate(x: Tensor) -> Tensor:
    return x.mean((2, 3), keepdim=True).sigmoid()


def hard_swish(x: Tensor) -> Tensor:
    return x * F.relu6(x + 3.0) / 6.0


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + erf(x / float(np.sqrt(2))))


def attention(x: Tensor) -> Tensor:
    rows = x.reshape(x.shape[0], 4, 36)
    weights = F.softmax(rows @ rows.permute(0, 2, 1), 2)
    return weights @ rows


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "concat": lambda x: concat([x, x.relu(), x.sigmoid()], 1),
    "concat_constant": lambda x: concat([x, x * 0.0 + 3.0], 1),
    "slice": lambda x: x[:, 1:3, ::2, 1:-1],
    "mean": lambda x: x.mean((2, 3)),
    "mean_kept": lambda x: x.mean((2, 3), keepdim=True),
    "mean_last": lambda x: x.mean((3,)),
    "mean_channels": lambda x: x.mean((1,), keepdim=True),
    "sum": lambda x: x.sum((2, 3), keepdim=True),
    "amax": lambda x: x.amax((2, 3)),
    "amin": lambda x: x.amin((1,), keepdim=True),
    "gate": lambda x: x * gate(x),
    "mul": lambda x: x * x.relu(),
    "square": lambda x: x * x,
    "mul_relu": lambda x: F.relu(x * gate(x)),
    "mul_scalar": lambda x: x * 1.7,
    "add_scalar": lambda x: x + 0.3,
    "sub_scalar": lambda x: 0.3 - x,
    "div_scalar": lambda x: x / 3.0,
    "mul_channels": lambda x: x * CHANNELS,
    "add_channels": lambda x: x + CHANNELS,
    "sub_channels": lambda x: x - CHANNELS,
    "hard_swish": hard_swish,
    "hard_sigmoid": lambda x: F.relu6(x + 3.0) / 6.0,
    "silu": lambda x: x * x.sigmoid(),
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + (0.8 * (x + 0.044715 * x * x * x)).tanh()),
    "leaky_relu": lambda x: maximum(x, 0.1 * x),
    "leaky_where": lambda x: where(x > 0.0, x, 0.1 * x),
    "elu": lambda x: maximum(x, 0.0) + (minimum(x, 0.0).exp() - 1.0),
    "softplus": lambda x: (1.0 + x.exp()).log(),
    "mish": lambda x: x * (1.0 + x.exp()).log().tanh(),
    "maximum": lambda x: maximum(x, x.sigmoid() * 2.0),
    "minimum_channels": lambda x: minimum(x, CHANNELS),
    "upsample_index": lambda x: index_select(index_select(x, 2, TWICE), 3, TWICE),
    "upsample_expand": lambda x: (
        x.reshape(x.shape[0], 4, 6, 1, 6, 1)
        .expand(x.shape[0], 4, 6, 2, 6, 2)
        .reshape(x.shape[0], 4, 12, 12)
    ),
    "expand": lambda x: gate(x).expand(x.shape[0], 4, 3, 2),
    "matmul": attention,
    "relu_of_moved": lambda x: F.relu(x.permute(0, 2, 3, 1)) * 0.5,
    "clip_of_relu": lambda x: F.relu6(F.relu(x)) / 6.0,
    "abs": lambda x: x.abs(),
    "neg": lambda x: -x,
    "exp": lambda x: x.exp(),
    "sin": lambda x: sin(x),
    "power": lambda x: (x.abs() + 1.0) ** 1.5,
}


class Net(nn.Module):
    """A layer whose sums have one product, which ONNX Runtime cannot saturate, and an operator."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1, groups=4)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.conv(x))


def images(n: int, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, *shape)).astype(np.float32) * 1.5


def mismatches(qat: QATModel, folder: Path, x: np.ndarray) -> dict[str, int]:
    """Count the elements in which each engine differs from the finalized model."""
    with no_grad():
        want = qat(Tensor(x)).numpy()
    path = write_trained(qat, folder / "net.onnx", "net").output
    plan = read_plan(path, "net")
    session = Session(path)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    runtime = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    got = {
        "executor": Executor(plan).run_batch([x[:, None]])[0],
        "C": np.concatenate([session.run(x[i : i + 1])[0] for i in range(len(x))]),
        "ONNX Runtime": runtime.run(None, {"input": x})[0],
    }
    return {name: int((y.reshape(want.shape) != want).sum()) for name, y in got.items()}


def observed(net: nn.Module, shape: tuple[int, ...] = SHAPE) -> QATModel:
    qat = prepare_qat(net, Tensor(images(2, shape=shape)))
    for seed in range(2):
        qat(Tensor(images(4, seed, shape)))
    return qat


@pytest.mark.parametrize("name", OPERATORS)
def test_every_engine_gives_the_bits_of_the_simulation(name: str, tmp_path: Path) -> None:
    manual_seed(3)
    qat = observed(Net(OPERATORS[name])).finalize()
    found = mismatches(qat, tmp_path, images(4, 7))
    assert found == dict.fromkeys(found, 0)
