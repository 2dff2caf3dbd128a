import copy

import numpy as np
import pytest

from midge.core import Tensor, manual_seed, nn, randn
from midge.core.errors import InputError

torch = pytest.importorskip("torch")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.shared = self.first
        self.scale = nn.Parameter(np.ones((), np.float32))
        self.register_buffer("count", Tensor(np.zeros((), np.int64)))
        self.register_buffer("scratch", Tensor(np.zeros(2, np.float32)), persistent=False)
        self.plain = randn(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) * self.scale


NAMES = [
    "scale",
    "first.weight",
    "first.bias",
    "second.0.weight",
    "second.0.bias",
]


def test_parameters_and_buffers_have_dotted_names_and_shared_ones_come_once() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == NAMES
    assert len(list(net.parameters())) == len(NAMES)
    assert [n for n, _ in net.named_buffers()] == ["count", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "second", "second.0", "second.1"]
    assert [n for n, _ in net.named_children()] == ["first", "second", "shared"]
    assert net.get_submodule("second.0") is net.second[0]


def test_a_plain_tensor_is_neither_parameter_nor_state() -> None:
    assert "plain" not in Net().state_dict()


def test_the_state_dict_has_the_keys_of_pytorch() -> None:
    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(3, 4)
            self.second = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
            self.shared = self.first
            self.scale = torch.nn.Parameter(torch.ones(()))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("scratch", torch.zeros(2), persistent=False)

    assert list(Net().state_dict()) == list(Theirs().state_dict())


def test_a_state_goes_into_another_instance_without_moving_its_memory() -> None:
    source, target = Net(), Net()
    weight = target.first.weight
    memory = weight.array
    keys = target.load_state_dict(source.state_dict())
    assert keys == ([], [])
    assert target.first.weight is weight
    assert weight.array is memory
    for name, tensor in source.state_dict().items():
        np.testing.assert_array_equal(target.state_dict()[name].numpy(), tensor.numpy())


def test_wrong_names_and_shapes_are_told_and_nothing_is_changed() -> None:
    net = Net()
    before = {k: v.numpy().copy() for k, v in net.state_dict().items()}
    state = {k: randn(*v.shape) for k, v in net.state_dict().items() if k != "count"}
    state["frist.weight"] = state.pop("first.weight")
    state["scale"] = randn(2)
    with pytest.raises(InputError) as caught:
        net.load_state_dict(state)
    for part in (
        "missing count, first.weight",
        "unexpected frist.weight (Did you mean 'first.weight' or 'shared.weight'?)",
        "scale has shape [2] where [] is needed",
    ):
        assert part in str(caught.value)
    for name, tensor in net.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_a_lenient_load_returns_the_names_that_did_not_match() -> None:
    keys = Net().load_state_dict({"scale": Tensor(np.float32(3)), "other": randn(2)}, strict=False)
    assert keys.unexpected_keys == ["other"]
    assert "first.weight" in keys.missing_keys


def test_modes_reach_every_module() -> None:
    net = Net()
    net.eval()
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())


def test_to_changes_float_tensors_in_place() -> None:
    net = Net()
    weight = net.first.weight
    net(randn(2, 3)).sum().backward()
    net.double()
    assert net.first.weight is weight
    assert weight.dtype == weight.grad.dtype == np.float64
    assert net.count.dtype == np.int64
    assert net.plain.dtype == np.float32
    assert net.float().scale.dtype == np.float32


def test_zero_grad_forgets_or_clears() -> None:
    net = Net()
    net(randn(2, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.numpy().any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_assignments_that_would_lose_a_parameter_are_refused() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(np.ones(2, np.float32))

    with pytest.raises(InputError, match=r"super\(\).__init__\(\)"):
        Early()
    with pytest.raises(InputError, match="is a parameter"):
        Net().first.weight = randn(4, 3)
    with pytest.raises(InputError, match="a buffer must be a Tensor"):
        Net().register_buffer("x", 3)
    with pytest.raises(InputError, match="must have no dot"):
        Net().add_module("a.b", nn.ReLU())
    with pytest.raises(InputError, match="is no Module"):
        nn.Sequential(lambda x: x)


def test_an_unknown_attribute_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'first'"):
        _ = Net().frist
    with pytest.raises(InputError, match=r"no sub-module 'second\.9'"):
        Net().get_submodule("second.9")


def test_parameters_can_be_replaced_and_deleted() -> None:
    layer = nn.Linear(2, 2)
    layer.bias = None
    assert [n for n, _ in layer.named_parameters()] == ["weight"]
    layer.weight = nn.Parameter(np.zeros((3, 2), np.float32))
    assert layer(randn(1, 2)).shape == (1, 3)
    del layer.weight
    assert not hasattr(layer, "weight")


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())).apply(
        lambda m: seen.append(type(m).__name__)
    )
    assert seen == ["ReLU", "Tanh", "Sequential", "Sequential"]


def test_a_deep_copy_is_independent() -> None:
    net = Net()
    twin = copy.deepcopy(net)
    twin.first.weight.array[...] = 0
    assert net.first.weight.array.any()
    assert twin.shared is twin.first


def test_forward_hooks_see_and_replace_and_can_be_removed() -> None:
    layer = nn.Linear(2, 2)
    log: list[str] = []
    first = layer.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    second = layer.register_forward_hook(lambda m, args, out: log.append("hook") or out + 1)
    x = randn(1, 2)
    np.testing.assert_allclose(layer(x).detach().numpy()[0], layer.bias.detach().numpy() + 1)
    first.remove()
    with second:
        layer(x)
    np.testing.assert_array_equal(layer(x).detach().numpy(), layer.forward(x).detach().numpy())
    assert log == ["hook", "hook"]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("watched", [True, False])
def test_full_backward_hooks_get_what_pytorch_gives(watched: bool) -> None:
    def record(log, scale):
        def hook(module, grad_input, grad_output):
            log.append([None if g is None else np.asarray(g) for g in (*grad_input, *grad_output)])
            return (grad_input[0] * scale,) if grad_input[0] is not None else None

        return hook

    manual_seed(1)
    ours = nn.Linear(3, 2)
    theirs = torch.nn.Linear(3, 2)
    with torch.no_grad():
        theirs.weight.copy_(torch.from_numpy(ours.weight.detach().numpy()))
        theirs.bias.copy_(torch.from_numpy(ours.bias.detach().numpy()))
    array = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    x, y = Tensor(array, requires_grad=watched), torch.tensor(array, requires_grad=watched)
    log: list[list] = []
    expected: list[list] = []
    ours.register_full_backward_hook(record(log, 2))
    theirs.register_full_backward_hook(record(expected, 2))
    (ours(x) ** 2).sum().backward()
    (theirs(y) ** 2).sum().backward()
    assert len(log) == len(expected) == 1
    for a, b in zip(log[0], expected[0], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)
    if watched:
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), 1e-5, 1e-6)


def test_the_text_shows_the_tree() -> None:
    text = repr(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.Dropout(0.1)))
    assert text == (
        "Sequential(\n"
        "  (0): Conv2d(1, 2, kernel_size=(3, 3), padding=1, bias=False)\n"
        "  (1): Dropout(p=0.1)\n"
        ")"
    )


def test_containers_index_slice_and_grow() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3
    assert net[-1] is net[2]
    assert [type(m).__name__ for m in net[1:]] == ["ReLU", "Linear"]
    with pytest.raises(IndexError):
        _ = net[3]
    items = nn.ModuleList([nn.Linear(1, 1)]).extend([nn.ReLU()])
    assert [n for n, _ in items.named_children()] == ["0", "1"]
    with pytest.raises(NotImplementedError):
        items(randn(1))
    named = nn.Sequential({"a": nn.ReLU(), "b": nn.Tanh()})
    assert [n for n, _ in named.named_children()] == ["a", "b"]
