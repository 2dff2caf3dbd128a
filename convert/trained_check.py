"""Whether a file computes what its QAT model computes, found by running both once."""

import numpy as np
import onnx_ir as ir

from midge.convert.executor import Executor
from midge.convert.lower import lower
from midge.core import Tensor, no_grad
from midge.core.backend import to_numpy
from midge.core.errors import CheckError
from midge.quant.arithmetic import reals
from midge.quant.qat import QATModel


def check_same_bits(model: QATModel, quantized: ir.Model, seed: int) -> None:
    """Compare the integer executor with a finalized model on one random sample.

    Args:
        model: after finalize(), in eval().
        quantized: written from it, inputs and outputs in float32; it is left as it is.
        seed: of the sample, which is spread over the range of each input.

    Raises:
        CheckError: an element differs.
    """
    rng = np.random.default_rng(seed)
    samples = []
    for value in model.graph.trace.inputs:
        low, high = reals(model.params_of(value.name))[[0, -1]]
        samples.append(rng.uniform(low, high, (1, *value.shape[1:])).astype(np.float32))
    with no_grad():
        result = model(*(Tensor(x).to(model.ranges.device) for x in samples))
    outputs = result if isinstance(result, tuple) else (result,)
    executor = Executor(lower(quantized.clone(), name="trained"))
    for value, want, got in zip(
        model.graph.trace.outputs, outputs, executor.run(samples), strict=True
    ):
        wrong = int(np.count_nonzero(to_numpy(want.array).ravel() != got.ravel()))
        if wrong:
            raise CheckError(
                f"{value.name}: {wrong} of {got.size} elements of the quantized graph differ from "
                "the model that was trained, and nothing is written; please report this network."
            )
