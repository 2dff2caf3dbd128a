"""RNN, GRU and LSTM give PyTorch's results and gradients from PyTorch's parameters."""

import numpy as np
import pytest

import midge.core as core
from midge.core import nn
from midge.core.errors import InputError

torch = pytest.importorskip("torch")
T, B, WIDTH, H = 6, 3, 4, 5
TOLERANCE = 3e-6  # float32 sums in another order

FORMS = {
    "one layer": {},
    "both ways": {"bidirectional": True},
    "two layers, batch first": {"num_layers": 2, "batch_first": True},
    "two layers both ways without biases": {
        "num_layers": 2,
        "bidirectional": True,
        "bias": False,
    },
}


def pair(kind, options):
    """One module of each library with the same parameters."""
    ours, theirs = (getattr(m, kind)(WIDTH, H, **options) for m in (nn, torch.nn))
    known = dict(ours.named_parameters())
    assert set(known) == {name for name, _ in theirs.named_parameters()}
    for name, parameter in theirs.named_parameters():
        parameter.data = torch.from_numpy(known[name].detach().numpy().copy())
    return ours, theirs


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_results_and_gradients_are_those_of_pytorch(kind, form, given):
    options, rng = FORMS[form], np.random.default_rng(1)
    ours, theirs = pair(kind, options)
    shape = (B, T, WIDTH) if options.get("batch_first") else (T, B, WIDTH)
    rows = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    x = rng.normal(0, 1, shape).astype(np.float32)
    states = [rng.normal(0, 1, (rows, B, H)).astype(np.float32) for _ in range(2)]
    results = []
    for module, tensor in ((ours, core.tensor), (theirs, torch.tensor)):
        made = [tensor(s) for s in states]
        state = (tuple(made) if kind == "LSTM" else made[0]) if given else None
        y, last = module(tensor(x), state)
        ends = last if kind == "LSTM" else (last,)
        sum((v * v).sum() for v in (y, *ends)).backward()
        gradients = {n: p.grad.numpy() for n, p in module.named_parameters()}
        results.append(([v.detach().numpy() for v in (y, *ends)], gradients))
    (got, grads), (want, wanted) = results
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)
    for name, b in wanted.items():
        scale = max(1.0, float(np.abs(b).max()))
        np.testing.assert_allclose(grads[name], b, rtol=0, atol=TOLERANCE * scale, err_msg=name)


def test_weights_lie_within_the_bound_that_pytorch_draws_from():
    for parameter in nn.GRU(WIDTH, H).parameters():
        assert 0 < np.abs(parameter.detach().numpy()).max() <= H**-0.5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.LSTM(0, 8), "input_size=0"),
        (lambda: nn.GRU(4, 8, num_layers=0), "num_layers=0"),
        (lambda: nn.RNN(4, 8, nonlinearity="rely"), "Did you mean 'relu'"),
        (lambda: nn.LSTM(4, 8)(core.zeros(4)), r"x is \[4\]"),
        (lambda: nn.LSTM(4, 8)(core.zeros(5, 2, 3)), "input_size=4"),
        (lambda: nn.LSTM(4, 8)(core.zeros(0, 2, 4)), "no empty axis"),
        (lambda: nn.GRU(4, 8)(core.zeros(5, 2, 4), core.zeros(1, 3, 8)), r"here \[1, 2, 8\]"),
    ],
)
def test_a_wrong_size_is_named(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_an_rnn_of_relu_gives_pytorchs_results():
    theirs, ours = torch.nn.RNN(3, 5, nonlinearity="relu"), nn.RNN(3, 5, nonlinearity="relu")
    for name, parameter in ours.named_parameters():
        parameter.array[...] = dict(theirs.named_parameters())[name].detach().numpy()
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    got, last = ours(core.tensor(x))
    want, theirs_last = theirs(torch.from_numpy(x))
    assert (got.detach().numpy() > 0).any()
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(last.detach().numpy(), theirs_last.detach().numpy(), atol=1e-6)
