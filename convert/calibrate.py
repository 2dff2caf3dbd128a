"""Calibration: the ranges of a float model's activations, from samples, streaming.

The model runs in ONNX Runtime with its intermediate tensors as outputs, one sample at a time, and
each tensor's observer sees every value. Memory does not grow with the number of samples, and the
ranges do not depend on how samples are batched or ordered.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import onnx
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.large_models import Message, message
from midge.convert.lower_params import is_quantize
from midge.convert.ort import make_session, run
from midge.core.errors import InputError, ToolError, did_you_mean
from midge.quant.histogram import (
    HistogramObserver,
    entropy_range,
    mse_range,
    percentile_range,
)
from midge.quant.observers import AverageObserver, MinMaxObserver, Observer, Range

METHODS: dict[str, Callable[[], Observer]] = {
    "minmax": MinMaxObserver,
    "average": AverageObserver,
    "percentile": partial(HistogramObserver, percentile_range),
    "mse": partial(HistogramObserver, mse_range),
    "entropy": partial(HistogramObserver, entropy_range),
}
Progress = Callable[[int], None]  # called with the number of samples done


def observe(
    model: ir.Model,
    samples: Iterable[Mapping[str, g.Array]],
    make_observer: Callable[[], Observer] = MinMaxObserver,
    *,
    tensors: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Observer]:
    """Run a float model over samples and observe its activations.

    Args:
        model: canonical float graph.
        samples: a dict of input arrays each.
        make_observer: makes one observer a tensor.
        tensors: names of the activations to observe; all float32 ones by default.
        progress: called after each sample.

    Raises:
        InputError: the model does not run, or an activation is not finite, by sample index and
            tensor.
    """
    names = list(activations(model)) if tensors is None else list(tensors)
    inputs = {g.name_of(v) for v in model.graph.inputs}
    computed = [n for n in names if n not in inputs]
    observers = {name: make_observer() for name in names}
    # What a file has in codes already runs in float: integer kernels may saturate.
    level = "none" if any(map(is_quantize, model.graph)) else "all"
    session = None
    for index, sample in enumerate(samples):
        try:
            session = session or make_session(expose(model, computed), level=level)
            arrays = run(session, sample, computed) if computed else []
        except ToolError as error:
            raise InputError(f"the float model does not run: {error}") from error
        seen = dict(zip(computed, arrays, strict=True)) | {n: sample[n] for n in inputs}
        for name, observer in observers.items():
            try:
                observer.update(seen[name])
            except InputError as error:
                raise InputError(
                    f"calibration sample {index}: tensor {name!r} of the float model: {error}; the "
                    "model overflows on this sample."
                ) from error
        if progress is not None:
            progress(index + 1)
    return observers


def calibrate(
    model: ir.Model,
    samples: Iterable[Mapping[str, g.Array]],
    method: str = "minmax",
    *,
    tensors: Iterable[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Range]:
    """Return the range of every float activation, by tensor name.

    Args:
        model: canonical float graph.
        samples: a dict of input arrays each.
        method: one of METHODS.
        tensors: names of the activations; all float32 ones by default.
        progress: called after each sample.

    Raises:
        InputError: the method is unknown, or there are no samples.
    """
    if method not in METHODS:
        raise InputError(
            f"calibration method {method!r} is unknown; it must be one of {', '.join(METHODS)}."
            f"{did_you_mean(method, METHODS)}"
        )
    observers = observe(model, samples, METHODS[method], tensors=tensors, progress=progress)
    try:
        return {name: observer.range() for name, observer in observers.items()}
    except InputError as error:
        raise InputError(f"the calibration data hold no sample: {error}.") from error


def activations(model: ir.Model) -> dict[str, ir.Value]:
    """Return the float32 tensors that depend on the inputs, by name."""
    values = [*model.graph.inputs, *(v for n in model.graph for v in n.outputs)]
    return {g.name_of(v): v for v in values if g.is_float(v) and not g.is_constant(v)}


def expose(model: ir.Model, names: list[str]) -> Message:
    """Return the model with these tensors among its outputs."""
    made = message(model)
    proto = made.proto
    present = {o.name for o in proto.graph.output}
    for name in names:
        if name not in present:
            info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            proto.graph.output.append(info)
    return made
