"""Tracing: run a model once and write down the operators that its outputs depend on.

While tracing, every operator on a tensor that depends on the inputs gives a TracedTensor, whose
values cannot be looked at from Python: a branch on one would be frozen into the graph. Operators on
parameters and constants alone are simply computed; their results become constants. A second run
with another batch shows whether a batch size was frozen into the graph.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from midge.core.autograd.modes import STATE, no_grad
from midge.core.backend import Array, to_numpy, xp_of
from midge.core.errors import InputError
from midge.core.tensor import Tensor
from midge.core.tracer import TracedTensor, TraceNode, Tracer, TraceValue

# A slice that runs to the end of the batch, as ONNX spells it.
TO_THE_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TraceGraph:
    """What a traced run computed.

    Args:
        inputs: the graph's inputs.
        outputs: the graph's outputs.
        nodes: operators in the order in which they ran.
        constants: parameters and buffers under their dotted names, others as "constant_N".
        values: every input and every result of a node, by name.
        batch_axis: axis of every input that counts samples, or None.
    """

    inputs: list[TraceValue]
    outputs: list[TraceValue]
    nodes: list[TraceNode]
    constants: dict[str, Tensor]
    values: dict[str, TraceValue]
    batch_axis: int | None = 0


@contextmanager
def scope(owner: Any) -> Iterator[None]:
    """Name the nodes recorded inside after a module; does nothing unless a trace is running.

    Args:
        owner: a module of the traced model, or a name to add to the current path.
    """
    tracer = STATE.tracer
    if not isinstance(tracer, Tracer):
        yield
        return
    if isinstance(owner, str):
        path = tracer.scopes[-1][0]
        entry = (f"{path}.{owner}" if path else owner), False
    else:
        entry = tracer.modules.get(id(owner), tracer.scopes[-1])
    tracer.scopes.append(entry)
    try:
        yield
    finally:
        tracer.scopes.pop()


def trace(
    model: Callable[..., Any],
    *example_inputs: Tensor,
    batch_axis: int | None = 0,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> TraceGraph:
    """Run `model` on example inputs and return its graph.

    Args:
        model: a module in eval mode, or a function of Tensors; returns a Tensor or a tuple of them.
        example_inputs: one Tensor per argument; only shapes and dtypes matter.
        batch_axis: axis of every input that counts samples. The graph then holds for any batch:
            the batch in a reshape or expand is -1. None fixes every size.
        input_names: default "input", or "input_0", "input_1", ...
        output_names: default "output", or "output_0", "output_1", ...

    Raises:
        InputError: a Python branch on a traced value, training mode, a batch size that is frozen
            into the graph, or an output that does not depend on the inputs.
    """
    if not example_inputs or not all(isinstance(x, Tensor) for x in example_inputs):
        raise InputError("trace: give one example Tensor per input of the model.")
    _refuse_training(model)
    arrays = [x.detach().array for x in example_inputs]
    graph = _run(model, arrays, input_names, output_names)
    if batch_axis is None:
        return replace(graph, batch_axis=None)
    axes = {x.ndim > batch_axis and x.shape[batch_axis] for x in arrays}
    if False in axes or len(axes) != 1:
        shapes = ", ".join(str(list(x.shape)) for x in arrays)
        raise InputError(
            f"trace: inputs {shapes} do not share one batch size on axis {batch_axis}; set "
            "batch_axis, or None to fix every size."
        )
    batch = arrays[0].shape[batch_axis]
    size = 3 if batch < 3 else 2
    picks = [xp_of(x).arange(size) % batch for x in arrays]
    others = [x.take(i, axis=batch_axis) for x, i in zip(arrays, picks, strict=True)]
    try:
        other = _run(model, others, input_names, output_names)
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(
            f"trace: the model does not run with a batch of {size} ({error}); pass "
            "batch_axis=None if its batch size is meant to be fixed."
        ) from error
    return replace(graph, nodes=_free_batch(graph, other, (batch, size)), batch_axis=batch_axis)


def _refuse_training(model: Any) -> None:
    modules = model.named_modules() if hasattr(model, "named_modules") else ()
    for name, module in modules:
        if getattr(module, "training", False):
            raise InputError(
                f"trace: module {name or type(module).__name__!r} is in training mode; call eval() "
                "first."
            )


def _run(
    model: Any,
    arrays: Sequence[Array],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> TraceGraph:
    """Run once and return the graph with every size as it was."""
    if STATE.tracer is not None:
        raise InputError("trace: a trace is already running.")
    tensors: dict[str, Tensor] = {}
    modules: dict[int, tuple[str, bool]] = {}
    if hasattr(model, "named_parameters"):
        tensors.update(model.named_parameters())
        tensors.update(model.named_buffers())
    if hasattr(model, "named_modules"):
        for name, module in model.named_modules():
            modules.setdefault(id(module), (name, any(True for _ in module.children())))
    tracer = Tracer(tensors, modules)
    names = _names("input", input_names, len(arrays))
    tracer.used.update(names)
    inputs = [tracer.wrap(a, n) for a, n in zip(arrays, names, strict=True)]
    STATE.tracer = tracer
    try:
        with no_grad():
            result = model(*inputs)
    finally:
        STATE.tracer = None
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    for i, output in enumerate(outputs):
        if not isinstance(output, TracedTensor):
            raise InputError(f"trace: output {i} does not depend on the inputs.")
    found = [tracer.name_of(output) for output in outputs]
    return _graph(tracer, names, found, _names("output", output_names, len(outputs)))


def _names(stem: str, given: Sequence[str] | None, count: int) -> list[str]:
    if given is None:
        return [stem] if count == 1 else [f"{stem}_{i}" for i in range(count)]
    if len(given) != count or len(set(given)) != count:
        raise InputError(f"trace: {count} different {stem} names are needed, got {list(given)}.")
    return list(given)


def _graph(
    tracer: Tracer, inputs: Sequence[str], found: Sequence[str], wanted: Sequence[str]
) -> TraceGraph:
    """Drop what no output needs and give the outputs their names."""
    needed = set(found)
    nodes: list[TraceNode] = []
    for node in reversed(tracer.nodes):
        if needed.intersection(node.outputs):
            nodes.append(node)
            needed.update(i for i in node.inputs if i is not None)
    nodes.reverse()
    new = {old: name for old, name in zip(found, wanted, strict=True) if old not in inputs}
    taken = (needed | set(inputs)) - set(new)
    clash = taken.intersection(new.values())
    if clash:
        raise InputError(f"trace: output name {sorted(clash)[0]!r} is taken by another tensor.")
    nodes = [
        replace(
            n,
            inputs=tuple(None if i is None else new.get(i, i) for i in n.inputs),
            outputs=tuple(new.get(o, o) for o in n.outputs),
        )
        for n in nodes
    ]
    kept = [*inputs, *(o for n in nodes for o in n.outputs)]
    old_names = {name: old for old, name in new.items()}
    values = {name: replace(tracer.values[old_names.get(name, name)], name=name) for name in kept}
    return TraceGraph(
        inputs=[values[n] for n in inputs],
        outputs=[values[new.get(n, n)] for n in found],
        nodes=nodes,
        constants={n: c for n, c in tracer.constants.items() if n in needed},
        values=values,
    )


def _free_batch(graph: TraceGraph, other: TraceGraph, sizes: tuple[int, int]) -> list[TraceNode]:
    """Return the nodes with the batch size written as -1.

    Args:
        graph: the traced run.
        other: the same with another batch.
        sizes: batch size of the two.

    Raises:
        InputError: the runs differ in anything else, so a batch size was frozen somewhere.
    """
    if [(n.op, n.inputs) for n in graph.nodes] != [(n.op, n.inputs) for n in other.nodes]:
        raise _frozen("the operators that run")
    for name, constant in graph.constants.items():
        a, b = to_numpy(constant.array), to_numpy(other.constants[name].array)
        if a.shape != b.shape or a.tobytes() != b.tobytes():
            raise _frozen(f"constant {name!r}")
    return [_free_node(a, b, graph, sizes) for a, b in zip(graph.nodes, other.nodes, strict=True)]


def _free_node(
    node: TraceNode, other: TraceNode, graph: TraceGraph, sizes: tuple[int, int]
) -> TraceNode:
    attributes = dict(node.attributes)
    for key, value in node.attributes.items():
        changed = other.attributes[key]
        if value is changed or value == changed:
            continue
        leading = isinstance(value, tuple) and value[1:] == changed[1:]
        leading = leading and value[0] * sizes[1] == changed[0] * sizes[0]
        if not leading or not _may_be_free(node, key, graph):
            raise _frozen(f"attribute {key!r} of {node.name} ({node.op})")
        attributes[key] = (TO_THE_END if node.op == "slice" else -1, *value[1:])
    return replace(node, attributes=attributes)


def _may_be_free(node: TraceNode, key: str, graph: TraceGraph) -> bool:
    """Tell whether the first entry of an attribute may be the batch."""
    source = graph.values.get(str(node.inputs[0]))
    whole = source is not None and source.shape[:1] == node.attributes[key][:1]
    if node.op == "expand":  # the batch must be there already; -1 keeps it
        return whole
    if node.op == "slice":
        return whole and key == "stops" and node.attributes["steps"][0] == 1
    return node.op == "reshape"


def _frozen(what: str) -> InputError:
    return InputError(
        f"trace: {what} depends on the batch size, which a graph for any batch cannot express; "
        "pass batch_axis=None to fix it."
    )
