"""From a traced module to the steps of its quantized twin: what fuses, and who shares a scale."""

from collections.abc import Callable
from dataclasses import dataclass, field

from midge.core.errors import UnsupportedError
from midge.core.trace import TraceGraph
from midge.core.tracer import TraceNode
from midge.quant.qat_tables import Region, find_regions

ACCUMULATE = ("conv2d", "linear")
SAME_SCALE = (
    *("amax", "amin", "clip", "concat", "expand", "index_select", "max_pool2d", "maximum"),
    *("minimum", "pad", "permute", "relu", "reshape", "slice"),
)
REQUANTIZE = ("add", "avg_pool2d", "global_avg_pool2d", "matmul", "mean", "mul", "sub", "sum")
JOINED = ("concat", "maximum", "minimum")  # a constant among their operands shares their scale
LIMITED = (*ACCUMULATE, "add", "mul", "sub")  # operators that a following Relu or Clip fuses into


@dataclass(slots=True)
class Step:
    """One quantized operator with what was fused into it.

    Args:
        node: the traced operator.
        output: the value that carries the codes, after the fused operators.
        norm: a fused batch norm.
        low: lower limit of a fused Relu or Clip, in real values.
        high: upper limit of a fused Clip.
        slot: index of its observed range, or -1 where the range is its input's or fixed.
        region: the function of one tensor of which `node` is the last node, if it is one.
    """

    node: TraceNode
    output: str
    norm: TraceNode | None = None
    low: float | None = None
    high: float | None = None
    slot: int = -1
    region: Region | None = None


@dataclass(slots=True)
class QATGraph:
    """The steps in order and, per value, the range slots that make its scale.

    Args:
        trace: the float graph.
        steps: in execution order.
        input_slots: slot of each graph input.
        slots: value name -> slots whose union is its range; () for a fixed range (softmax).
        slot_names: value name of each slot, for messages.
    """

    trace: TraceGraph
    steps: list[Step]
    input_slots: dict[str, int]
    slots: dict[str, tuple[int, ...]]
    slot_names: list[str] = field(default_factory=list)


def build(trace: TraceGraph) -> QATGraph:
    """Fuse a traced graph and assign range slots.

    Rules: a batch norm fuses into the Conv2d or Linear before it; a Relu or Clip fuses into the
    Conv2d, Linear, Add or Sub before it; each only where nothing else reads the value between.
    Elementwise nodes that are one function of one tensor are one step (qat_tables.py). Same-scale
    operators share the range of their inputs.

    Raises:
        UnsupportedError: an operator has no quantized form.
    """
    readers = _readers(trace)
    regions = {r.nodes[-1].name: r for r in find_regions(trace)}
    fused = {n.name for r in regions.values() for n in r.nodes} - set(regions)
    steps: list[Step] = []
    for node in trace.nodes:
        if node.name in fused:
            continue
        step = Step(node, node.outputs[0], region=regions.get(node.name))
        if step.region is not None:
            steps.append(step)
            continue
        if node.op in ACCUMULATE:
            _fuse(step, readers, fused, _take_norm)
        if node.op in LIMITED:
            _fuse(step, readers, fused, _take_limit)
        if node.op == "batch_norm":
            raise UnsupportedError(
                f"{node.name} (batch_norm): QAT folds a batch norm into the Conv2d or Linear "
                "before it, and here is none that feeds it alone; move it behind one."
            )
        steps.append(step)
    return _assign_slots(trace, steps)


def _readers(trace: TraceGraph) -> dict[str, list[TraceNode]]:
    """Nodes that read each value; a graph output counts as a reader that fuses with nothing."""
    readers: dict[str, list[TraceNode]] = {}
    for node in trace.nodes:
        for name in node.inputs:
            if name is not None:
                readers.setdefault(name, []).append(node)
    end = TraceNode("output", "", (), (), {})
    for value in trace.outputs:
        readers.setdefault(value.name, []).append(end)
    return readers


def _fuse(
    step: Step,
    readers: dict[str, list[TraceNode]],
    fused: set[str],
    take: Callable[[Step, TraceNode], bool],
) -> None:
    """Absorb the one reader of the step's output where `take` accepts it."""
    after = readers.get(step.output, [])
    if len(after) == 1 and after[0].name not in fused and take(step, after[0]):
        fused.add(after[0].name)
        step.output = after[0].outputs[0]


def _take_norm(step: Step, node: TraceNode) -> bool:
    """Accept a batch norm on the step's own output."""
    if node.op != "batch_norm" or node.inputs[0] != step.output:
        return False
    step.norm = node
    return True


def _take_limit(step: Step, node: TraceNode) -> bool:
    """Accept Relu, and a Clip whose range contains 0 at its lower end or inside."""
    if node.op == "relu":
        step.low = 0.0
        return True
    if node.op != "clip":
        return False
    step.low, step.high = _limits(node)
    return True


def _limits(node: TraceNode) -> tuple[float | None, float | None]:
    """Bounds of a clip as floats."""
    low, high = node.attributes.get("min"), node.attributes.get("max")
    return None if low is None else float(low), None if high is None else float(high)


def _assign_slots(trace: TraceGraph, steps: list[Step]) -> QATGraph:
    """Give every producer a slot and every value the slots of its group."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    own: dict[str, int] = {}
    names: list[str] = []

    def new_slot(value: str) -> int:
        own[value] = len(names)
        names.append(value)
        return own[value]

    inputs = {value.name: new_slot(value.name) for value in trace.inputs}
    fixed: set[str] = set()
    for step in steps:
        op = step.node.op
        _refuse(step, trace)
        if step.region is not None or op in ACCUMULATE or op in REQUANTIZE:
            step.slot = new_slot(step.output)
        elif op in SAME_SCALE:
            moved = activations(step.node, trace)
            for name in moved:
                parent[root(name)] = root(step.output)
            if op in JOINED and len(moved) < len(step.node.inputs):
                step.slot = new_slot(step.output)  # of the constants
        elif op == "softmax":
            fixed.add(step.output)
        else:
            raise _no_form(step.node, "QAT has no quantized form for it")
    groups: dict[str, list[int]] = {}
    for value, slot in own.items():
        groups.setdefault(root(value), []).append(slot)
    values = [*inputs, *(step.output for step in steps)]
    slots = {v: tuple(groups.get(root(v), ())) for v in values}
    loose = {root(v) for v in fixed}
    for value in values:
        if root(value) in loose and slots[value]:
            raise UnsupportedError(f"{value}: a softmax output cannot share its scale by concat.")
    return QATGraph(trace, steps, inputs, slots, names)


def _no_form(node: TraceNode, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{node.name} ({node.op}): {why}; leave it out of the module that is prepared, or replace "
        "it."
    )


def _refuse(step: Step, trace: TraceGraph) -> None:
    """Refuse what has a quantized form in other cases only.

    Raises:
        UnsupportedError: naming the node.
    """
    node, a = step.node, step.node.attributes
    if trace.values[node.outputs[0]].dtype != "float32":
        raise _no_form(node, "QAT has no quantized form for results that are no float32")
    if node.op in ("mean", "sum", "amax", "amin") and 0 in a["dim"]:
        raise _no_form(node, "QAT keeps the batch, which it reduces")
    if node.op == "matmul" and len(activations(node, trace)) < 2:
        raise _no_form(node, "QAT multiplies by constant matrices in a Linear only")


def activations(node: TraceNode, trace: TraceGraph) -> list[str]:
    """Return the inputs that are no constants."""
    return [n for n in node.inputs if n is not None and n not in trace.constants]
