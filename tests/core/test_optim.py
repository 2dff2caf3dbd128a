import numpy as np
import pytest

from midge.core import Tensor, nn, optim, randn
from midge.core.errors import InputError

torch = pytest.importorskip("torch")

STEPS = 20
# Twenty steps in float32 of weights near 1.
ATOL = 1e-6

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    "dampening": ("SGD", {"lr": 0.05, "momentum": 0.8, "dampening": 0.3}),
    "nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    "adam": ("Adam", {"lr": 0.02}),
    "adam decay": ("Adam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    "adamw": ("AdamW", {"lr": 0.02, "weight_decay": 0.1}),
}


class Problem:
    """Least squares in ours and in PyTorch, from the same start."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        start = [rng.standard_normal((4, 3)), rng.standard_normal(4)]
        self.x = rng.standard_normal((16, 3)).astype(np.float32)
        self.y = rng.standard_normal((16, 4)).astype(np.float32)
        self.ours = [nn.Parameter(a.astype(np.float32)) for a in start]
        self.theirs = [torch.nn.Parameter(torch.tensor(a, dtype=torch.float32)) for a in start]

    def step(self, ours: optim.Optimizer, theirs: object) -> None:
        ours.zero_grad()
        loss = nn.functional.mse_loss(nn.functional.linear(Tensor(self.x), *self.ours), self.y)
        loss.backward()
        ours.step()
        theirs.zero_grad()
        predicted = torch.nn.functional.linear(torch.tensor(self.x), *self.theirs)
        torch.nn.functional.mse_loss(predicted, torch.tensor(self.y)).backward()
        theirs.step()

    def check(self) -> None:
        for a, b in zip(self.ours, self.theirs, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 0, ATOL)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_are_those_of_pytorch(name: str) -> None:
    kind, options = OPTIMIZERS[name]
    problem = Problem()
    ours = getattr(optim, kind)(problem.ours, **options)
    theirs = getattr(torch.optim, kind)(problem.theirs, **options)
    for _ in range(STEPS):
        problem.step(ours, theirs)
    problem.check()


def test_groups_have_options_of_their_own_and_follow_the_cosine() -> None:
    problem = Problem()
    pairs = []
    for module, params in ((optim, problem.ours), (torch.optim, problem.theirs)):
        groups = [{"params": [params[0]], "lr": 0.1}, {"params": params[1], "weight_decay": 0.1}]
        optimizer = module.SGD(groups, lr=0.02, momentum=0.9)
        schedules = module if module is optim else module.lr_scheduler
        pairs.append((optimizer, schedules.CosineAnnealingLR(optimizer, 15, eta_min=0.001)))
    (ours, our_schedule), (theirs, their_schedule) = pairs
    for _ in range(15):
        problem.step(ours, theirs)
        our_schedule.step()
        their_schedule.step()
        assert our_schedule.get_last_lr() == pytest.approx(their_schedule.get_last_lr())
    problem.check()
    assert our_schedule.get_last_lr() == pytest.approx([0.001, 0.001])


@pytest.mark.parametrize("name", ["nesterov", "adamw"])
def test_a_resumed_run_takes_the_same_steps(name: str) -> None:
    kind, options = OPTIMIZERS[name]

    def run(steps: int, problem: Problem, state: dict | None = None) -> optim.Optimizer:
        optimizer = getattr(optim, kind)(problem.ours, **options)
        if state is not None:
            optimizer.load_state_dict(state)
        theirs = torch.optim.SGD(problem.theirs)
        for _ in range(steps):
            problem.step(optimizer, theirs)
        return optimizer

    whole, halves = Problem(), Problem()
    run(6, whole)
    first = run(3, halves)
    run(3, halves, first.state_dict())
    for a, b in zip(whole.ours, halves.ours, strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_a_resumed_schedule_goes_on_where_it_was() -> None:
    def schedule() -> optim.CosineAnnealingLR:
        return optim.CosineAnnealingLR(optim.SGD([nn.Parameter(randn(2))], lr=1.0), 10)

    first, second = schedule(), schedule()
    for _ in range(4):
        first.step()
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert first.get_last_lr() == second.get_last_lr()


def test_a_parameter_without_gradient_stays_and_a_closure_is_called() -> None:
    used, unused = nn.Parameter(randn(2)), nn.Parameter(randn(2))
    before = unused.detach().numpy().copy()
    optimizer = optim.Adam([used, unused])

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (used * used).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    np.testing.assert_array_equal(unused.detach().numpy(), before)
    assert optimizer.step() is None


def test_a_step_counts_as_a_change_of_the_parameter() -> None:
    weight = nn.Parameter(randn(2))
    loss = (weight * weight).sum()
    optimizer = optim.SGD([weight], lr=0.1)
    weight.grad = randn(2)
    optimizer.step()
    with pytest.raises(InputError, match="modified by an in-place operation"):
        loss.backward()


def test_mistakes_are_named() -> None:
    weight = nn.Parameter(randn(2))
    with pytest.raises(InputError, match="non-empty list"):
        optim.SGD([], lr=0.1)
    with pytest.raises(InputError, match="non-empty list"):
        optim.SGD(weight, lr=0.1)
    with pytest.raises(InputError, match="lr is -1"):
        optim.SGD([weight], lr=-1)
    with pytest.raises(InputError, match="there twice"):
        optim.SGD([weight, weight], lr=1)
    with pytest.raises(InputError, match="no leaf"):
        optim.SGD([weight * 2], lr=1)
    with pytest.raises(InputError, match="nesterov needs"):
        optim.SGD([weight], lr=1, nesterov=True)
    with pytest.raises(InputError, match="option 'rate' is unknown"):
        optim.SGD([{"params": [weight], "rate": 1}], lr=1)
    with pytest.raises(InputError, match="betas"):
        optim.Adam([weight], betas=(0.9, 1.0))
    state = optim.SGD([nn.Parameter(randn(1)), nn.Parameter(randn(1))]).state_dict()
    with pytest.raises(InputError, match=r"groups of \[2\]"):
        optim.SGD([weight]).load_state_dict(state)
    with pytest.raises(InputError, match="T_max"):
        optim.CosineAnnealingLR(optim.SGD([weight]), 0)
