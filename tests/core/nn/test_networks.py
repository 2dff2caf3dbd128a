import numpy as np
import pytest

from midge.core import Tensor, manual_seed, nn, no_grad, optim
from midge.core.backend import layout_copies
from midge.core.nn import functional as F
from midge.models.resnet8 import ResNet8

torch = pytest.importorskip("torch")

# float64: only the order of the sums differs. float32 is held against float64, relative to the
# largest gradient of the tensor or of the whole net.
FLOAT64 = 1e-11
FLOAT32 = 1e-5


def gradients(ours, theirs, x, labels, dtype):
    """Return loss and gradients of one step in `dtype`, and PyTorch's in float64."""
    ours.to(dtype=dtype)
    loss = F.cross_entropy(ours(Tensor(x.astype(dtype))), Tensor(labels))
    loss.backward()
    expected = torch.nn.functional.cross_entropy(
        theirs.double()(torch.tensor(x)), torch.tensor(labels)
    )
    expected.backward()
    found = [p.grad.numpy() for p in ours.parameters()]
    return loss.item(), expected.item(), found, [p.grad.numpy() for p in theirs.parameters()]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", FLOAT64), ("float32", FLOAT32)])
def test_loss_and_gradients_of_a_step_are_those_of_pytorch(pair, dtype: str, tolerance) -> None:
    ours, theirs, x, labels = pair
    loss, expected_loss, found, expected = gradients(ours, theirs, x, labels, dtype)
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    largest = max(np.abs(g).max() for g in expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a / largest, b / largest, 0, tolerance)


def test_running_statistics_and_eval_outputs_are_those_of_pytorch(pair) -> None:
    ours, theirs, x, _ = pair
    ours.double()
    theirs.double()
    for scale in (1.0, 3.0):
        ours(Tensor(x * scale))
        theirs(torch.tensor(x * scale))
    for name, value in theirs.state_dict().items():
        found = ours.state_dict()[name].numpy()
        np.testing.assert_allclose(found, value.numpy(), 1e-10, 1e-12, err_msg=name)
    with no_grad():
        found = ours.eval()(Tensor(x)).numpy()
    expected = theirs.eval()(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(found, expected, 1e-9, 1e-10)


def test_a_cumulative_momentum_is_that_of_pytorch() -> None:
    ours, theirs = nn.BatchNorm2d(3, momentum=None), torch.nn.BatchNorm2d(3, momentum=None)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = rng.standard_normal((4, 3, 2, 2)).astype(np.float32)
        ours(Tensor(x))
        theirs(torch.tensor(x))
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[name].numpy(), value.numpy(), 1e-5)


def test_batch_norm_layers_check_the_number_of_dimensions() -> None:
    with pytest.raises(ValueError, match="must have 4 dimensions"):
        nn.BatchNorm2d(3)(Tensor(np.zeros((2, 3), np.float32)))
    layer = nn.BatchNorm1d(3)
    layer(Tensor(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)))
    layer.reset_running_stats()
    np.testing.assert_array_equal(layer.running_var.numpy(), 1)


def test_a_resnet8_training_step_copies_no_layout() -> None:
    manual_seed(0)
    net = ResNet8()
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    images = np.random.default_rng(0).standard_normal((4, 32, 32, 3)).astype(np.float32)
    x, labels = Tensor(images.transpose(0, 3, 1, 2)), Tensor(np.arange(4))
    for _ in range(2):
        layout_copies.reset()
        loss = F.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert layout_copies.count == 0


def test_the_same_seed_trains_to_the_same_bits() -> None:
    def weights() -> bytes:
        manual_seed(3)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()
        )
        net.append(nn.Linear(4 * 36, 3))
        optimizer = optim.Adam(net.parameters())
        x = Tensor(np.random.default_rng(1).standard_normal((8, 1, 8, 8)).astype(np.float32))
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(net(x), Tensor(np.arange(8) % 3)).backward()
            optimizer.step()
        return b"".join(p.detach().numpy().tobytes() for p in net.parameters())

    assert weights() == weights()
