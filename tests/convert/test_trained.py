"""Networks with gates, joins and means: what QAT evaluates is what its file computes."""

import numpy as np
import pytest

from midge.convert.onnx_in import read_model
from midge.convert.ort import make_session, run
from midge.convert.trained import write_trained
from midge.convert.verify import verify
from midge.core import Tensor, manual_seed, nn, no_grad, optim
from midge.core.nn import functional as F
from midge.core.ops import concat
from midge.quant.qat import prepare_qat


class Gated(nn.Module):
    """Squeeze and excite: a gate of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.squeeze, self.excite = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.stem(x)))
        gate = self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))).sigmoid()
        z = F.relu(y * gate) * y.sigmoid()
        return self.last(z.mean((2, 3)))


class Joined(nn.Module):
    """Branches that are cut, joined and reduced."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(3, 4, 1)
        self.low, self.last = nn.Conv2d(10, 4, 3, stride=2), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = concat([F.relu(self.left(x)), self.right(x)], 1)
        y = y[:, :, 1:, ::2]
        z = concat([self.low(y), self.low(y[:, ::1, :, 2:])[:, :, :, -1:]], 3)
        return self.last(concat([z.amax((2, 3)), z.mean((2, 3))], 1))


def images(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("network", [Gated, Joined])
def test_the_file_has_the_bits_of_the_training_forward(network, tmp_path):
    manual_seed(2)
    net = network()
    net.train()
    net(Tensor(images(16)))
    qat = prepare_qat(net, Tensor(images(2)))
    qat.train()
    steps = optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for seed in range(6):
        loss = F.cross_entropy(qat(Tensor(images(16, seed))), Tensor(np.arange(16) % 5))
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    path = write_trained(qat.finalize(), tmp_path / "net.onnx", "net").output
    samples = [{v.name: x[None] for v in read_model(path).graph.inputs} for x in images(8, 9)]
    assert verify(path, samples).mismatches == 0
    session = make_session(path, exact=True)
    want = np.concatenate([run(session, sample)[0] for sample in samples])
    with no_grad():
        got = qat(Tensor(images(8, 9))).numpy()
    np.testing.assert_array_equal(got, want)


def test_a_relu_whose_scale_has_negative_codes_still_cuts():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return concat([F.relu(self.conv(x)), self.conv(x)], 1)

    qat = prepare_qat(Net().eval(), Tensor(images(1)))
    qat.train()
    qat(Tensor(images(8)))
    y = qat.finalize()(Tensor(images(4, 7))).array
    assert y[:, :4].min() == 0
    assert y[:, 4:].min() < 0
