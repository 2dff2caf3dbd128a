"""OpSpec: everything about one operator in one record, the registry OPS, and the one `apply`.

To add an operator, write in a file of core/ops

    def _scale(ctx: Node, x: Array, *, factor: float) -> Array:       # arrays in, array(s) out
        ctx.save(0)                                  # keep input 0 (~0 would be output 0)
        return x * x.dtype.type(factor)

    def _scale_backward(ctx: Node, grad: Tensor) -> Gradients:        # Tensors in, Tensors out
        (x,) = ctx.saved_tensors
        return grad * ctx.attributes["factor"]

    SCALE = register(OpSpec("scale", "", _scale, _scale_backward, samples))

    def scale(x: Tensor, factor: float) -> Tensor:                    # checks, then apply
        return apply(SCALE, (x,), {"factor": factor})

Rules of the house:
- `forward(ctx, *arrays, **attributes)` gets raw arrays (None for an absent optional input) of any
  strides, all of one module (`xp_of`), and must return new arrays, except where `view=True`.
- `backward(ctx, *grads)` is written in Tensor operators only, so that create_graph works; it
  returns one Tensor or None per input (or the bare Tensor where there is one input). A gradient
  that is still broadcast is summed to the input's shape, and cast to its dtype, by the engine.
- What cannot be differentiated (axes, sizes, kernel sizes) travels as keyword attributes, already
  in canonical form (dims >= 0, tuples): a trace shows them as they are.
- Whatever backward needs goes through `ctx.save`, or, for arrays that are neither input nor output,
  `ctx.anything = array`; both are freed when backward has run. Small facts go to `ctx.facts`.
- `ctx.needs_input_grad[i]` tells whether input i wants a gradient: save and compute nothing else.
- `samples(rng)` yields Sample inputs in float64; one test walks OPS and checks each against finite
  differences, first and second order, another against PyTorch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from midge.core.autograd.modes import STATE
from midge.core.autograd.node import Edge, Node, SavedTensor
from midge.core.backend import Array, is_array, xp_of
from midge.core.errors import InputError
from midge.core.tensor import Tensor

Gradients: TypeAlias = "Tensor | tuple[Tensor | None, ...] | None"


@dataclass(frozen=True, slots=True)
class Sample:
    """One test input of an operator.

    Args:
        inputs: float64 arrays (or integer ones, or None) as NumPy arrays.
        attributes: keyword attributes.
    """

    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operator.

    Args:
        name: PyTorch-like name, the key of OPS.
        onnx: ONNX op_type, or "" where no single ONNX operator does the same.
        forward: from arrays to an array or a tuple of arrays.
        backward: gradient rule in Tensor operators, or None if it has no gradient.
        samples: test inputs drawn from a NumPy generator.
        view: the result may share memory with input 0.
        constants: positions of float inputs that have no gradient (masks, running statistics).
        traced_as: name in a trace, where two operators differ in their gradient only.
    """

    name: str
    onnx: str
    forward: Callable[..., Any]
    backward: Callable[..., Gradients] | None
    samples: Callable[[np.random.Generator], Iterable[Sample]]
    view: bool = False
    constants: tuple[int, ...] = ()
    traced_as: str = ""


OPS: dict[str, OpSpec] = {}
NO_ATTRIBUTES: Mapping[str, Any] = {}
_NO_GRADIENT = ((), (False,), (False, False), (False, False, False))
_NDARRAY = np.ndarray


def register(spec: OpSpec) -> OpSpec:
    """Add an operator to OPS and return it."""
    if spec.name in OPS:
        raise ValueError(f"operator {spec.name!r} is registered twice.")
    OPS[spec.name] = spec
    return spec


def apply(
    spec: OpSpec,
    inputs: Sequence[Tensor | None],
    attributes: Mapping[str, Any] = NO_ATTRIBUTES,
) -> Tensor:
    """Run an operator on tensors and record exactly one node, or none.

    Returns:
        A Tensor; use `apply_multi` where forward returns a tuple of arrays. Integer and bool
        outputs never require grad.
    """
    if STATE.tracer is not None:
        traced: Tensor = STATE.tracer.apply(spec, inputs, attributes)
        return traced
    needs = _NO_GRADIENT[len(inputs)] if len(inputs) < 4 else (False,) * len(inputs)
    recording = False
    if STATE.grad and spec.backward is not None:
        for t in inputs:
            if t is not None and (t._requires_grad or (t._view is not None and t.requires_grad)):
                recording = True
                needs = tuple([t is not None and t.requires_grad for t in inputs])
                break
    node = Node(spec, attributes, needs)
    arrays = [None if t is None else t.array for t in inputs]
    try:
        result = spec.forward(node, *arrays, **attributes)
    except (ValueError, TypeError) as error:
        raise explain(spec, arrays, error) from None
    if type(result) is tuple:
        outputs = tuple([Tensor(as_array(array, arrays)) for array in result])
        if recording:
            record(node, inputs, outputs)
        return outputs  # type: ignore[return-value]  # see apply_multi
    output = Tensor(result if type(result) is _NDARRAY else as_array(result, arrays))
    if recording:
        record(node, inputs, (output,))
    if spec.view:
        assert inputs[0] is not None
        output._link_view(inputs[0], spec, attributes)
    return output


# The same function for operators with several outputs.
apply_multi = cast("Callable[..., tuple[Tensor, ...]]", apply)


def record(node: Node, inputs: Sequence[Tensor | None], outputs: tuple[Tensor, ...]) -> None:
    """Put `node` into the graph between its inputs and its outputs."""
    live = False
    for index, output in enumerate(outputs):
        if output.array.dtype.kind == "f":
            output._requires_grad = live = True
            output._node, output._index = node, index
    if not live:
        return
    edges: list[Edge] = []
    for tensor, needed in zip(inputs, node.needs_input_grad, strict=True):
        if needed:
            assert tensor is not None
            source = tensor._node if tensor._view is None else tensor.grad_fn
            edges.append((tensor, 0) if source is None else (source, tensor._index))
        else:
            edges.append(None)
    node.record(tuple(edges), tuple([(o.array.shape, o.array.dtype) for o in outputs]))
    if node.saved:
        saved = []
        for position in node.saved:
            kept = inputs[position] if position >= 0 else outputs[~position]
            saved.append(None if kept is None else SavedTensor(kept, node))
        node.saved = saved


def explain(spec: OpSpec, arrays: Sequence[Array | None], error: Exception) -> Exception:
    """Return NumPy's complaint about an operator with the operator's name and input shapes.

    Raises:
        InputError: the inputs lie on different devices, which is why it failed.
    """
    xp_of(*arrays)
    if isinstance(error, InputError | TypeError):
        return error
    shapes = ", ".join("None" if a is None else str(list(a.shape)) for a in arrays)
    return InputError(f"{spec.name}: inputs {shapes} do not fit together ({error}).")


def as_array(result: Any, arrays: Sequence[Array | None]) -> Array:
    """Return `result` as an array: NumPy hands 0-dim results back as scalars."""
    return result if is_array(result) else xp_of(*arrays).asarray(result)
