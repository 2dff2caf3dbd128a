"""What QAT computes for each operator, its file computes too: executor, C and ONNX Runtime."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from midge.convert.compile import read_plan
from midge.convert.executor import Executor
from midge.convert.session import Session
from midge.convert.trained import write_trained
from midge.core import Tensor, manual_seed, nn, no_grad, optim
from midge.core.errors import CheckError, InputError, UnsupportedError
from midge.core.nn import functional as F
from midge.core.ops import concat, erf, index_select, maximum, minimum, sin, where
from midge.core.opspec import OPS
from midge.core.trace import TraceGraph
from midge.core.tracer import TraceNode, TraceValue
from midge.quant.functions import BINARY, TRUTHS, UNARY
from midge.quant.qat import QATModel, prepare_qat
from midge.quant.qat_graph import build
from midge.quant.qat_ops import RUN

SHAPE = (4, 6, 6)
CHANNELS = Tensor(np.linspace(-1.5, 2, 4, dtype=np.float32).reshape(1, 4, 1, 1))
COSINE_FLOOR = 0.97  # of straight-through and float gradients; rounding noise is below 1 %
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
    "maximum_of_number": lambda x: maximum(x - x.sigmoid(), 0.0),
    "relu_that_shares_a_scale": lambda x: concat([F.relu(x - x.sigmoid()), x], 1),
    "bounds_in_a_row": lambda x: F.relu(F.relu6(x).clip(-1.0, 1.5)) - 0.25,
    "bounds_of_a_pool": lambda x: F.relu(F.avg_pool2d(x, 2).clip(-1.0, 1.5)) - 0.25,
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


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_are_those_of_the_float_operator(name: str) -> None:
    manual_seed(3)
    net = Net(OPERATORS[name])
    x = images(8, 1)
    qat = prepare_qat(net, Tensor(x))
    qat(Tensor(1.2 * x))  # nothing of x saturates
    qat.freeze_ranges()
    gradients = []
    for model in (qat, net):
        leaf = Tensor(x, requires_grad=True)
        y = model(leaf)
        weights = np.random.default_rng(2).normal(size=y.shape).astype(np.float32)
        (y * Tensor(weights)).sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad.numpy().ravel().astype(np.float64))
    straight, real = gradients
    assert np.isfinite(straight).all()
    assert straight @ real / np.sqrt((straight @ straight) * (real @ real)) > COSINE_FLOOR


def test_ranges_move_in_training_only() -> None:
    qat = observed(Net(lambda x: concat([hard_swish(x), x * gate(x)], 1)))
    before = qat.ranges.numpy().copy()
    qat.eval()
    qat(Tensor(5 * images(4)))
    assert np.array_equal(before, qat.ranges.numpy())
    qat.train()
    qat(Tensor(5 * images(4)))
    assert not np.isclose(before, qat.ranges.numpy()).all(axis=1).any()


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_operator_is_prepared_or_refused(op: str) -> None:
    """Each runs, or ends in one line at prepare_qat."""
    sample = next(iter(OPS[op].samples(np.random.default_rng(0))), None)
    attributes = sample.attributes if sample is not None else {}
    rank = 2 if op == "linear" else 4
    sizes = (2,) * rank
    arity = len(sample.inputs) if sample is not None else 1
    values = {n: TraceValue(n, sizes, "float32") for n in ("input", "other", "output")}
    names = ("input", "other", *["constant"] * arity)[:arity]
    node = TraceNode(op, "node", names, ("output",), attributes)
    constants = {"constant": Tensor(np.ones(sizes, np.float32))} if arity > 2 else {}
    inputs = [values[n] for n in ("input", "other")]
    graph = TraceGraph(inputs, [values["output"]], [node], constants, values)
    fault, steps = "", []
    try:
        steps = build(graph).steps
    except UnsupportedError as error:
        fault = str(error)
    assert all(step.region is not None or step.node.op in RUN for step in steps)
    assert steps or fault.startswith(f"node ({op}): ")
    assert "\n" not in fault


def test_a_function_without_a_number_at_some_code_is_refused() -> None:
    with pytest.raises(InputError, match="no finite number"):
        observed(Net(lambda x: x.log()))


def test_a_file_with_other_bits_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qat = observed(Net(hard_swish)).finalize()
    monkeypatch.setattr(QATModel, "function", lambda model, step: np.tanh)
    with pytest.raises(CheckError, match="differ from"):
        write_trained(qat, tmp_path / "net.onnx", "net")
    assert not list(tmp_path.iterdir())


def test_softmax_in_a_concat_is_refused() -> None:
    net = Net(lambda x: concat([x, F.softmax(x, 1)], 1))
    with pytest.raises(UnsupportedError, match="cannot share its scale"):
        prepare_qat(net, Tensor(images(2)))


def test_constants_are_as_finalize_found_them(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(np.linspace(0.5, 2, 4, dtype=np.float32).reshape(4, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    net = Scaled()
    qat = observed(net)
    qat(Tensor(images(4))).sum().backward()
    assert net.factor.grad is not None
    qat.finalize()
    before = qat(Tensor(images(4))).numpy()
    with no_grad():
        net.factor.mul_(3.0)
    assert np.array_equal(qat(Tensor(images(4))).detach().numpy(), before)
    found = mismatches(qat, tmp_path, images(4, 7))
    assert found == dict.fromkeys(found, 0)


class Rows(nn.Module):
    """Linear layers on the last axis of three, with and without bias, and a Relu."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 7, bias=False)
        self.third = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(F.relu(self.first(x.reshape(x.shape[0], 24, 6))))
        return self.third(y * y.sigmoid())


@pytest.mark.parametrize("per_channel", [True, False])
def test_linear_layers_of_rows_give_their_bits(tmp_path: Path, per_channel: bool) -> None:
    manual_seed(0)
    qat = prepare_qat(Rows(), Tensor(images(2)), per_channel=per_channel)
    qat(Tensor(images(8)))
    found = mismatches(qat.finalize(), tmp_path, images(8, 9))
    assert found["executor"] == found["C"] == 0


class Mobile(nn.Module):
    """A block of MobileNetV3: expand, depthwise, squeeze and excite, project, residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.expand, self.expand_norm = nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.project = nn.Conv2d(16, 8, 1)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        stem = hard_swish(self.stem_norm(self.stem(x)))
        y = hard_swish(self.expand_norm(self.expand(stem)))
        y = self.depthwise(y)
        inner = F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))
        y = hard_swish(y * (F.relu6(self.excite(inner) + 3.0) / 6.0))
        y = self.project(y) + stem
        return self.head(hard_swish(y.mean((2, 3))))


class Nest(nn.Module):
    """A U-Net of one level: pool, upsample by index, concat, leaky ReLU, SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.deep = nn.Conv2d(6, 6, 3, padding=1)
        self.up = nn.Conv2d(12, 4, 3, padding=1)
        self.mask = nn.Conv2d(4, 3, 1)
        self.twice = Tensor(np.repeat(np.arange(6), 2))

    def forward(self, x: Tensor) -> Tensor:
        skip = self.norm(self.down(x))
        skip = maximum(skip, 0.1 * skip)
        deep = self.deep(F.max_pool2d(skip, 2))
        deep = deep * deep.sigmoid()
        wide = index_select(index_select(deep, 2, self.twice), 3, self.twice)
        y = self.mask(F.relu(self.up(concat([skip, wide], 1))))
        return y.mean((2, 3))


@pytest.mark.parametrize("make", [Mobile, Nest])
def test_a_network_trains_and_ships_its_bits(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    manual_seed(0)
    shape = (3, 12, 12)
    net = make()
    net.train()
    net(Tensor(images(8, shape=shape)))
    qat = observed(net, shape)
    qat.train()
    optimizer = optim.Adam(net.parameters(), lr=0.02)
    classes = np.arange(12) % 3
    bright = (classes - 1).astype(np.float32).reshape(-1, 1, 1, 1)
    x, y = Tensor(images(12, 4, shape) + bright), Tensor(classes)
    losses = []
    for _ in range(16):
        optimizer.zero_grad()
        loss = F.cross_entropy(qat(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
    assert losses[-1] < 0.8 * losses[0], losses
    found = mismatches(qat.finalize(), tmp_path, images(16, 9, shape))
    assert found["executor"] == found["C"] == 0


def test_the_documentation_lists_what_is_prepared() -> None:
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+) \|$", text, re.MULTILINE)
    *steps, functions = (set(re.findall(r"`(\w+)`", row)) for row in rows if "%" not in row)
    assert set.union(*steps) == set(RUN)
    rowless = {"relu", "clip"}
    assert functions - rowless == {
        op
        for op, spec in OPS.items()
        if spec.onnx in UNARY | BINARY | TRUTHS and not spec.traced_as
    }
