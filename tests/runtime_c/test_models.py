"""Real networks: the compiled C gives the integer executor's bits in every build."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from midge.convert.build import host_program
from midge.convert.emit import emit
from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.convert.memory import place
from midge.convert.onnx_in import read_model
from midge.core.native import find_compiler

MODELS = os.environ.get("MIDGE_MODELS")
FILES = {"ic": "ic01_resnet8_int8_qdq.onnx", "kws": "kws01_dscnn_int8_qdq.onnx"}
BUILDS = [("gcc", "-O0"), ("gcc", "-O2"), ("gcc", "-O3"), ("clang", "-O2")]
SAMPLES = 1000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS, reason="MIDGE_MODELS is not set"),
]


@pytest.fixture(scope="module", params=sorted(FILES))
def compiled(request, tmp_path_factory):
    """Folder and name of a compiled network, raw samples and the executor's raw results."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    plan = lower(read_model(Path(MODELS) / "mlperf_tiny" / FILES[name]), name=name)
    place(plan)
    rng = np.random.default_rng(7)
    tensor = plan.tensors[plan.inputs[0]]
    info = np.iinfo(tensor.dtype)
    shape = (SAMPLES, *(tensor.file_shape or tensor.shape))
    x = rng.integers(info.min, info.max + 1, shape).astype(tensor.dtype)
    x[::3] //= 8  # quieter samples saturate less
    y = Executor(plan).run_batch([x])[0]
    emit(plan, folder, name, golden=([x[:4]], [y[:4]]))
    return folder, name, x.tobytes(), y.tobytes()


@pytest.mark.parametrize("requant", ["float", "int"])
@pytest.mark.parametrize(("name", "level"), BUILDS)
def test_c_equals_the_executor_on_1000_samples(compiled, name, level, requant):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    folder, model, x, y = compiled
    program = host_program(
        folder, model, compiler=find_compiler(name), flags=(level,), requant=requant
    )
    assert program.run(x) == y


@pytest.mark.board
@pytest.mark.parametrize(
    ("board", "form"), [("cortex-m4", "FLOAT"), ("cortex-m55", "FLOAT"), ("rv32imc", "INT")]
)
def test_the_golden_test_passes_on_the_board(compiled, run_on_board, board, form):
    folder, name, _, _ = compiled
    assert run_on_board(folder, name, board, form) == (0, f"{name}: pass, 4 samples\n")
