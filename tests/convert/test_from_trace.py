"""Exports: every operator with an ONNX form, whole modules, and any batch."""

import numpy as np
import pytest

from midge.convert import graph as g
from midge.convert.canonical import canonicalize
from midge.convert.from_trace import export_onnx, trace_to_onnx, verify_export
from midge.convert.onnx_in import read_model
from midge.convert.onnx_out import to_proto
from midge.convert.ort import make_session, run
from midge.core import Tensor, from_numpy, manual_seed, nn, randn
from midge.core.errors import CheckError, UnsupportedError
from midge.core.nn import functional as F
from midge.core.trace import trace


@pytest.fixture(autouse=True)
def seed():
    manual_seed(0)


def exported(function, *inputs):
    """Trace, verify with the batch traced and with three times the batch, return the model."""
    model = trace_to_onnx(trace(function, *inputs), "net")
    verify_export(model, function, *inputs)
    larger = [from_numpy(np.concatenate([x.numpy()] * 3)) for x in inputs]
    verify_export(model, function, *larger)
    return model


IMAGES = (2, 4, 6, 8)
FUNCTIONS = {
    "arithmetic": lambda x: (x + 1.5) * x - x / 3 + (-x).abs(),
    "powers": lambda x: (x * x + 1).sqrt().log().exp() ** 2,
    "clip": lambda x: x.clip(-0.5, 0.5) + x.clip(min=0) + x.relu(),
    "sigmoid and tanh": lambda x: x.sigmoid() * x.tanh(),
    "softmax": lambda x: F.softmax(x, 1) + F.log_softmax(x, -1),
    "means": lambda x: x.mean((2, 3)).sum(1, keepdim=True) + x.mean((1, 2, 3)).reshape(-1, 1),
    "extremes": lambda x: x.amax(1) - x.amin((1,)),
    "reshape": lambda x: x.reshape(x.shape[0], -1) + x.flatten(1),
    "permute": lambda x: x.permute(0, 2, 3, 1).reshape(x.shape[0], 6, -1),
    "slices": lambda x: x[:, 1:3, ::2, -3:],
    "concat": lambda x: F.cat([x, x * 2], 1) if hasattr(F, "cat") else x,
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=0.5),
    "max pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "average pool": lambda x: F.avg_pool2d(x, 2, padding=1, count_include_pad=False),
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_export(name):
    exported(FUNCTIONS[name], randn(*IMAGES))


class Block(nn.Module):
    """A residual block."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = (self.norm(self.conv(x)) + x).relu()
        return self.head(y.mean((2, 3)))


def test_a_module_keeps_its_names_and_any_batch():
    block = Block().eval()
    block.norm.running_mean.array[:] = 0.3
    model = exported(block, randn(*IMAGES))
    assert [v.name for v in model.graph.inputs] == ["input"]
    assert g.dims(model.graph.inputs[0]) == (None, 4, 6, 8)
    assert g.dims(model.graph.outputs[0]) == (None, 3)
    assert {"conv.weight", "norm.running_mean", "head.bias"} <= set(model.graph.initializers)
    assert [n.name for n in model.graph][:2] == ["conv", "norm"]
    assert "GlobalAveragePool" in [n.op_type for n in model.graph]


def test_an_export_folds_to_integer_ready_layers():
    model = exported(Block().eval(), randn(*IMAGES))
    before = model.clone()
    canonicalize(model)
    ops = [n.op_type for n in model.graph]
    assert ops == ["Conv", "Add", "Relu", "GlobalAveragePool", "Flatten", "Gemm"]
    x = randn(*IMAGES).numpy()
    (want,), (got,) = (run(make_session(to_proto(m)), {"input": x}) for m in (before, model))
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_linear_over_a_sequence_exports():
    exported(nn.Linear(8, 3).eval(), randn(2, 5, 8))
    exported(nn.Linear(8, 3, bias=False).eval(), randn(2, 5, 8))


def test_several_inputs_and_outputs_export():
    model = exported(lambda a, b: (a @ b, a.sum((1, 2))), randn(2, 3, 4), randn(2, 4, 5))
    assert [v.name for v in model.graph.outputs] == ["output_0", "output_1"]


def test_a_fixed_batch_stays_fixed():
    graph = trace(lambda x: x.reshape(4, 2), randn(2, 4), batch_axis=None)
    model = trace_to_onnx(graph, "net")
    assert g.dims(model.graph.inputs[0]) == (2, 4)
    assert g.dims(model.graph.outputs[0]) == (4, 2)


def test_an_operator_without_a_form_is_named():
    graph = trace(lambda x: x.relu(), randn(2, 4))
    node = graph.nodes[0]
    broken = type(node)("mystery", "block.mystery", node.inputs, node.outputs, {})
    graph.nodes[0] = broken
    with pytest.raises(UnsupportedError, match=r"block\.mystery \(mystery\)"):
        trace_to_onnx(graph, "net")


def test_a_wrong_export_is_noticed():
    block = Block().eval()
    x = randn(*IMAGES)
    model = trace_to_onnx(trace(block, x), "net")
    block.head.bias.array[:] += 0.01
    with pytest.raises(CheckError, match="differs"):
        verify_export(model, block, x)


def test_export_writes_a_file_that_reads_back(tmp_path):
    export_onnx(Block().eval(), tmp_path / "block.onnx", randn(*IMAGES))
    assert len(read_model(tmp_path / "block.onnx").graph) == 7
