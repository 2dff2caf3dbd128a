"""Runs the nodes of an imported graph in order, and those inside of If, Loop and Scan.

Which branch is taken and how often a loop runs is decided in each run, from values that a trace
must not depend on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from midge.convert import graph as g
from midge.convert.to_module_call import Call, Row, array, beside
from midge.core import ops
from midge.core.errors import InputError
from midge.core.nn import Module
from midge.core.tensor import Tensor
from midge.core.trace import scope

Values: TypeAlias = Mapping[str, Tensor | None]
INT64, BOOL = np.dtype(np.int64), np.dtype(np.bool_)
ENDLESS = 2**63 - 1  # steps of a Loop without a number


@dataclass(frozen=True, slots=True)
class Step:
    """One node.

    Args:
        call: what its row knows of it.
        row: computes it.
        inputs: names of its operands, empty for an absent one.
        outputs: names of its results, empty for one that nobody wants.
        blocks: the graphs inside of it, by attribute.
    """

    call: Call
    row: Row
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    blocks: "dict[str, Block]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """A graph, or one inside of a node.

    Args:
        inputs: names of what goes in.
        outputs: names of what comes out.
        steps: in order.
        places: module and attribute of each constant, by its name in the graph.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    places: dict[str, tuple[Module, str]]

    def run(self, inputs: Sequence[Tensor], outer: Values, training: bool) -> list[Tensor]:
        """Return the outputs.

        Args:
            inputs: in the order of `inputs`.
            outer: values of the graphs around this one.
            training: the module is in train() mode.
        """
        values: dict[str, Any] = {**outer, "": None}
        values |= {name: getattr(*place) for name, place in self.places.items()}
        values |= zip(self.inputs, inputs, strict=True)
        for step in self.steps:
            call = replace(step.call, training=True) if training else step.call
            with scope(call.label):
                made = _compute(step, call, values)
            values.update(zip(step.outputs, made, strict=False))
        return [values[name] for name in self.outputs]


def _compute(step: Step, call: Call, values: dict[str, Any]) -> Sequence[Tensor]:
    """Return the results of one node; an error names it."""
    operands = [values[name] for name in step.inputs]
    try:
        if step.blocks:
            return CONTROL[call.node.op_type](step, call, operands, values)
        made = step.row(call, *operands)
    except InputError as error:
        where, text = f"{call.label} ({g.operator(call.node)}): ", str(error)
        if step.blocks or text.startswith(where):
            raise
        raise type(error)(where + text) from error
    return made if isinstance(made, tuple) else (made,)


def _if(step: Step, call: Call, operands: Sequence[Any], values: Values) -> list[Tensor]:
    """Run the branch that the condition selects."""
    taken = bool(array(operands[0]).reshape(()))
    block = step.blocks["then_branch" if taken else "else_branch"]
    return block.run((), values, call.training)


def _loop(step: Step, call: Call, operands: Sequence[Any], values: Values) -> list[Tensor]:
    """Run the body until its condition is false; what it gives beyond its state is stacked."""
    limit, condition, *state = operands
    body = step.blocks["body"]
    count = ENDLESS if limit is None else int(array(limit).reshape(()))
    going = condition is None or bool(array(condition).reshape(()))
    like = limit if limit is not None else condition
    rows: list[list[Tensor]] = [[] for _ in body.outputs[1 + len(state) :]]
    index = 0
    while going and index < count:
        number, true = beside(like, index, INT64), beside(like, True, BOOL)
        kept, *made = body.run([number, true, *state], values, call.training)
        state = made[: len(state)]
        for row, value in zip(rows, made[len(state) :], strict=True):
            row.append(value)
        going = bool(array(kept).reshape(()))
        index += 1
    if not index and rows:
        raise call.fail("it takes no step", "give it one, or take it out")
    return [*state, *(ops.stack(row) for row in rows)]


def _scan(step: Step, call: Call, operands: Sequence[Any], values: Values) -> list[Tensor]:
    """Run the body on one entry of each sequence after the other, and stack what it gives."""
    body, count = step.blocks["body"], int(call.get("num_scan_inputs"))
    state, sequences = list(operands[:-count]), operands[-count:]
    outs = len(body.outputs) - len(state)
    axes = call.get("scan_input_axes", (0,) * count)
    back = call.get("scan_input_directions", (0,) * count)
    steps = sequences[0].shape[axes[0]]
    rows: list[list[Tensor]] = [[] for _ in range(outs)]
    for index in range(steps):
        entries = [
            _entry(x, axis, steps - 1 - index if reverse else index)
            for x, axis, reverse in zip(sequences, axes, back, strict=True)
        ]
        made = body.run([*state, *entries], values, call.training)
        state = made[: len(state)]
        for row, value in zip(rows, made[len(state) :], strict=True):
            row.append(value)
    turned = call.get("scan_output_directions", (0,) * outs)
    places = call.get("scan_output_axes", (0,) * outs)
    stacked = [
        ops.stack(row[:: -1 if reverse else 1], axis)
        for row, reverse, axis in zip(rows, turned, places, strict=True)
    ]
    return [*state, *stacked]


def _entry(x: Tensor, axis: int, index: int) -> Tensor:
    """Return one entry along an axis, without it."""
    at = axis % x.ndim
    return ops.reshape(ops.narrow(x, at, index, 1), (*x.shape[:at], *x.shape[at + 1 :]))


Control = Callable[[Step, Call, Sequence[Any], Values], list[Tensor]]
CONTROL: dict[str, Control] = {"If": _if, "Loop": _loop, "Scan": _scan}
