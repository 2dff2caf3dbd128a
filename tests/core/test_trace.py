"""Tracing: the graph replays to the same values, and nothing is frozen silently."""

from pathlib import Path

import numpy as np
import pytest

from midge.core import Tensor, autograd, nn, ops, randn, tensor, zeros
from midge.core.errors import InputError
from midge.core.opspec import OPS, apply
from midge.core.trace import TO_THE_END, scope, trace


def values(*shape):
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def replay(graph, *inputs):
    """Run a traced graph on other inputs by its own records."""
    known = {v.name: x for v, x in zip(graph.inputs, inputs, strict=True)}
    known.update(graph.constants)
    for node in graph.nodes:
        operands = [None if i is None else known[i] for i in node.inputs]
        attributes = dict(node.attributes)
        if node.op in ("reshape", "expand"):
            result = getattr(ops, node.op)(operands[0], attributes["shape"])
        else:
            result = apply(OPS[node.op], operands, attributes)
        results = result if isinstance(result, tuple) else (result,)
        known.update(zip(node.outputs, results, strict=True))
    return [known[v.name] for v in graph.outputs]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)

    def forward(self, x):
        return ops.relu(self.bn(self.conv(x)) + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2)
        self.block1 = Block()
        self.block2 = Block()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        x = self.block2(self.block1(ops.relu6(self.stem(x))))
        return self.fc(ops.global_avg_pool2d(x).flatten(1))


def test_nodes_are_named_after_their_modules():
    graph = trace(Net().eval(), values(2, 3, 8, 8))
    assert [(n.name, n.op) for n in graph.nodes] == [
        ("stem", "conv2d"),
        ("op_0", "clip"),
        ("block1.conv", "conv2d"),
        ("block1.bn", "batch_norm"),
        ("block1.add", "add"),
        ("block1.relu", "relu"),
        ("block2.conv", "conv2d"),
        ("block2.bn", "batch_norm"),
        ("block2.add", "add"),
        ("block2.relu", "relu"),
        ("op_1", "global_avg_pool2d"),
        ("op_2", "reshape"),
        ("fc", "linear"),
    ]
    assert {"stem.weight", "block1.bn.running_var", "fc.bias"} <= set(graph.constants)
    assert [v.name for v in graph.inputs + graph.outputs] == ["input", "output"]
    assert graph.outputs[0].shape == (2, 2)
    assert graph.values["block1.conv"].shape == (2, 4, 3, 3)


def test_a_traced_graph_replays_with_another_batch():
    net = Net().eval()
    graph = trace(net, values(2, 3, 8, 8))
    x = randn(5, 3, 8, 8)
    np.testing.assert_array_equal(replay(graph, x)[0].array, net(x).detach().array)


def test_the_batch_is_free_in_reshape_and_slice():
    def function(x):
        return x.reshape(x.shape[0], -1)[:, 1:].unsqueeze(1).expand(-1, 2, -1)

    graph = trace(function, values(2, 2, 3))
    attributes = [n.attributes for n in graph.nodes]
    assert attributes[0] == {"shape": (-1, 6)}
    assert attributes[1]["stops"] == (TO_THE_END, 6)
    assert attributes[2] == {"shape": (-1, 1, 5)}
    assert attributes[3] == {"shape": (-1, 2, 5)}


def test_any_example_batch_gives_the_same_graph():
    def function(x):
        return x.reshape(x.shape[0], -1).reshape(-1, 3)

    graphs = [trace(function, values(n, 2, 3)) for n in (1, 2, 3, 50)]
    assert all(g.nodes == graphs[0].nodes for g in graphs)
    assert [n.attributes for n in graphs[0].nodes] == [{"shape": (-1, 6)}, {"shape": (-1, 3)}]


def test_a_fixed_batch_is_kept_when_asked_for():
    graph = trace(lambda x: x.reshape(1, -1) * 2, values(1, 2, 3), batch_axis=None)
    assert graph.batch_axis is None
    assert graph.nodes[0].attributes == {"shape": (1, 6)}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.reshape(1, 6), "does not run with a batch of 3"),
        (lambda x: x.reshape(1, -1), "'shape' of op_0"),
        (lambda x: x * x.shape[0], "constant 'constant_0' depends on the batch"),
        (lambda x: x.sum(0) if x.shape[0] == 1 else x.mean(0), "the operators that run"),
        (lambda x: x[: x.shape[0] // 2 + 1] * 1, "'stops' of op_0"),
    ],
)
def test_a_frozen_batch_size_is_an_error(function, message):
    with pytest.raises(InputError, match=message):
        trace(function, values(1, 2, 3))


BRANCHES = [
    lambda x: x if x.sum() > 0 else -x,
    lambda x: x * float(x.max()),
    lambda x: x * int(x.max()),
    lambda x: x * x.max().item(),
    lambda x: Tensor(x.numpy()) * x,
    lambda x: Tensor(np.asarray(x)) * x,
    lambda x: x * Tensor(x.array),
    lambda x: sum(row for row in x),
    lambda x: x[x.argmax()],
    lambda x: x * x.tolist()[0][0],
    lambda x: x[x > 0],
]


@pytest.mark.parametrize("function", BRANCHES)
def test_looking_at_a_traced_value_is_an_error_with_its_line(function):
    line = function.__code__.co_firstlineno
    with pytest.raises(InputError, match=rf"{Path(__file__).name}:{line}: .*freeze"):
        trace(function, values(2, 3))


def test_what_no_output_needs_is_dropped():
    def function(x, y):
        unused = (y * 3).exp()
        assert unused.shape[1:] == (3,)
        return x + 1

    graph = trace(function, values(2, 3), values(2, 3))
    assert [n.op for n in graph.nodes] == ["add"]
    assert [v.name for v in graph.inputs] == ["input_0", "input_1"]
    assert [c.item() for c in graph.constants.values()] == [1.0]


def test_constants_are_computed_once():
    w = tensor([[1.0, 2.0]])
    graph = trace(lambda x: x @ (w * 2).t(), values(3, 2))
    assert [n.op for n in graph.nodes] == ["matmul"]
    assert graph.constants["constant_0"].tolist() == [[2.0], [4.0]]


def test_parameters_keep_one_name_however_often_they_are_used():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)

        def forward(self, x):
            return self.first(self.first(x))

    graph = trace(Tied().eval(), values(2, 3))
    assert [n.name for n in graph.nodes] == ["first", "first_1"]
    assert {n.inputs[1] for n in graph.nodes} == {"first.weight"}


def test_several_outputs_get_names():
    graph = trace(lambda x: (x + 1, x * 2), values(2, 3), output_names=["a", "b"])
    assert [v.name for v in graph.outputs] == ["a", "b"]
    assert [n.outputs for n in graph.nodes] == [("a",), ("b",)]
    top = trace(lambda x: x.max(1), values(2, 3))
    assert [v.name for v in top.outputs] == ["output_0", "output_1"]
    assert top.nodes[0].op == "max"
    assert [v.dtype for v in top.outputs] == ["float32", "int64"]


def test_scopes_name_nodes():
    def function(x):
        with scope("stage"), scope("part"):
            return x * 2

    assert [n.name for n in trace(function, values(2, 3)).nodes] == ["stage.part"]
    with scope("outside"):
        pass


def test_training_mode_is_refused_by_name():
    net = Net().eval()
    net.block1.bn.train()
    with pytest.raises(InputError, match=r"module 'block1\.bn' is in training mode"):
        trace(net, values(2, 3, 8, 8))


def test_an_output_that_does_not_depend_on_the_inputs_is_refused():
    with pytest.raises(InputError, match="output 0 does not depend"):
        trace(lambda x: zeros(2), values(2, 3))


def test_writes_random_numbers_and_custom_functions_are_refused():
    class Twice(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    with pytest.raises(InputError, match="in-place operation cannot be traced"):
        trace(lambda x: (x * 1).add_(1), values(2, 3))
    with pytest.raises(InputError, match="random numbers drawn while tracing"):
        trace(lambda x: x + randn(3), values(2, 3))
    with pytest.raises(InputError, match="Twice: a custom Function cannot be traced"):
        trace(Twice.apply, values(2, 3))


def test_a_failed_trace_leaves_nothing_behind():
    with pytest.raises(InputError):
        trace(lambda x: x[5, 5, 5], values(2, 3))
    assert (tensor([1.0]) * 2).tolist() == [2.0]


def test_tracing_needs_examples_with_one_batch_size():
    with pytest.raises(InputError, match="give one example Tensor per input"):
        trace(lambda: 1)
    with pytest.raises(InputError, match=r"inputs \[2, 3\], \[3, 3\] do not share one batch"):
        trace(lambda x, y: x, values(2, 3), values(3, 3))
