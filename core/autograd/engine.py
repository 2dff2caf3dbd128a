"""The backward pass: nodes run newest first, each once, when all its gradients have arrived.

A node's sequence number is larger than those of the nodes that made its inputs, so taking the
largest number next is a topological order without recursion and without a first counting pass.
"""

import heapq
from collections.abc import Sequence
from typing import Any

from midge.core.autograd.hooks import run_hooks
from midge.core.autograd.modes import STATE
from midge.core.autograd.node import Node
from midge.core.backend import xp_of
from midge.core.errors import InputError
from midge.core.ops.reduce import sum_to
from midge.core.tensor import Tensor

Key = tuple[int, int]  # id of a node or a leaf, output index


def backward(
    tensors: Sequence[Tensor],
    grad_tensors: Sequence[Tensor | None],
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` to the `grad` of the leaves, or of `inputs` only.

    Args:
        tensors: roots of the pass.
        grad_tensors: gradient of the loss by each root; None for single elements.
        retain_graph: keep saved data; default `create_graph`.
        create_graph: record the pass itself.
        inputs: tensors that receive gradients; default every leaf.
    """
    run = _Pass(retain_graph, create_graph, inputs)
    for tensor, grad in run(tensors, grad_tensors):
        _accumulate(tensor, grad, create_graph)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `outputs` by `inputs`; no `grad` attribute changes.

    Args:
        outputs: roots of the pass.
        inputs: tensors to differentiate by, leaves or not.
        grad_outputs: gradient of the loss by each output; None for single elements.
        retain_graph: keep saved data; default `create_graph`.
        create_graph: record the pass itself, for higher-order gradients.
        allow_unused: return None for an input that the outputs do not depend on.

    Raises:
        InputError: an input was not used and `allow_unused` is False.
    """
    roots = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    targets = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if grad_outputs is None or isinstance(grad_outputs, Tensor):
        grads: Sequence[Tensor | None] = (grad_outputs,) * len(roots)
    else:
        grads = grad_outputs
    found = {id(t): g for t, g in _Pass(retain_graph, create_graph, targets)(roots, grads)}
    missing = [i for i, t in enumerate(targets) if id(t) not in found]
    if missing and not allow_unused:
        raise InputError(
            f"grad: input {missing[0]} was not used to compute the outputs; "
            "pass allow_unused=True to get None for it."
        )
    return tuple(found.get(id(t)) for t in targets)


class _Pass:
    """One backward pass: pending gradients per node output and per leaf."""

    def __init__(
        self, retain: bool | None, create: bool, inputs: "Sequence[Tensor] | None"
    ) -> None:
        self.retain = create if retain is None else retain
        self.create = create
        self.pending: dict[Node, list[Tensor | None]] = {}
        self.heap: list[tuple[int, Node]] = []
        self.leaves: dict[int, tuple[Tensor, Tensor]] = {}
        self.wanted: dict[Key, Tensor] | None = None
        self.found: list[tuple[Tensor, Tensor]] = []
        self.needed: set[Node] | None = None
        if inputs is not None:
            self.wanted = {_key(t): t for t in inputs}
            for position, t in enumerate(inputs):
                if not t.requires_grad:
                    raise InputError(f"grad: input {position} does not require gradients.")

    def __call__(
        self, roots: Sequence[Tensor], grads: "Sequence[Tensor | None]"
    ) -> list[tuple[Tensor, Tensor]]:
        """Run the pass; returns (tensor, gradient) of the leaves or of the wanted inputs."""
        if len(roots) != len(grads):
            raise InputError(f"backward: {len(roots)} outputs but {len(grads)} gradients.")
        seeds = [_seed(root, grad) for root, grad in zip(roots, grads, strict=True)]
        if self.wanted is not None:
            self.needed = self._nodes_towards_wanted(roots)
        previous = STATE.grad
        STATE.grad = self.create
        try:
            for root, grad in zip(roots, seeds, strict=True):
                node = root.grad_fn
                self._send(root if node is None else node, root._index, grad)
            while self.heap:
                self._run(heapq.heappop(self.heap)[1])
            self._finish_leaves()
        finally:
            STATE.grad = previous
        return self.found

    def _send(self, target: Node | Tensor, index: int, grad: Tensor) -> None:
        """Add a gradient to what is pending at a node output or a leaf."""
        if isinstance(target, Node):
            if self.needed is not None and target not in self.needed:
                return
            grad = fit(grad, *target.metas[index], target)
            slots = self.pending.get(target)
            if slots is None:
                self.pending[target] = slots = [None] * len(target.metas)
                heapq.heappush(self.heap, (-target.sequence, target))
            before = slots[index]
            slots[index] = grad if before is None else before + grad
            return
        if self.wanted is not None and (id(target), 0) not in self.wanted:
            return
        grad = fit(grad, target.array.shape, target.array.dtype, None)
        if id(target) in self.leaves:
            grad = self.leaves[id(target)][1] + grad
        self.leaves[id(target)] = target, grad

    def _run(self, node: Node) -> None:
        """Run one node whose gradients are complete and pass its results on."""
        slots = self.pending.pop(node)
        for index, grad in enumerate(slots):
            if grad is None:
                continue
            if node.hooks is not None:
                grad = slots[index] = run_hooks(node.hooks.get(index), grad)
            if node.retained is not None and index in node.retained:
                node.retained[index](grad)
            if self.wanted is not None and (id(node), index) in self.wanted:
                self.found.append((self.wanted[id(node), index], grad))
        if self.needed is not None and not self._leads_on(node):
            return
        if len(slots) == 1:
            results = node.rule.backward(node, slots[0])
        else:
            results = node.rule.backward(node, *_with_zeros(node, slots))
        if not self.retain:
            node.release()
        if type(results) is not tuple:
            results = (results,)
        if len(results) != len(node.edges):
            raise InputError(
                f"{node.name} returned {len(results)} gradients for {len(node.edges)} inputs."
            )
        for edge, grad in zip(node.edges, results, strict=True):
            if edge is not None and grad is not None:
                self._send(edge[0], edge[1], grad)

    def _leads_on(self, node: Node) -> bool:
        """Tell whether any input of `node` leads to a wanted tensor."""
        assert self.needed is not None
        assert self.wanted is not None
        for edge in node.edges:
            if edge is None:
                continue
            target, index = edge
            if (
                target in self.needed
                if isinstance(target, Node)
                else (id(target), index) in self.wanted
            ):
                return True
        return False

    def _nodes_towards_wanted(self, roots: Sequence[Tensor]) -> set[Node]:
        """Return the nodes that are wanted themselves or lead to what is wanted."""
        assert self.wanted is not None
        stack = [n for n in (r.grad_fn for r in roots) if n is not None]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += [e[0] for e in node.edges if e is not None and isinstance(e[0], Node)]
        self.needed = set()
        for node in sorted(seen, key=lambda n: n.sequence):
            here = any((id(node), i) in self.wanted for i in range(len(node.metas)))
            if here or self._leads_on(node):
                self.needed.add(node)
        return self.needed

    def _finish_leaves(self) -> None:
        """Run the hooks of the leaves, whose gradients are complete now."""
        for leaf, grad in self.leaves.values():
            if leaf._hooks is not None:
                grad = run_hooks(leaf._hooks.before, grad)
            self.found.append((leaf, grad))


def _key(tensor: Tensor) -> Key:
    node = tensor.grad_fn
    return (id(tensor), 0) if node is None else (id(node), tensor._index)


def _seed(root: Tensor, grad: Tensor | None) -> Tensor:
    """Return the gradient that starts the pass at `root`."""
    if not root.requires_grad:
        raise InputError(
            "backward from a tensor that does not require gradients and has no grad_fn; was it "
            "made in no_grad, or from inputs without requires_grad?"
        )
    if grad is not None:
        if grad.shape != root.shape:
            raise InputError(
                f"backward: the gradient has shape {list(grad.shape)}, the output "
                f"{list(root.shape)}."
            )
        return grad
    if root.array.size != 1:
        raise InputError(
            f"backward of a tensor of shape {list(root.shape)} needs a gradient; only a single "
            "element has the implicit gradient 1."
        )
    return Tensor(xp_of(root.array).ones_like(root.array))


def _with_zeros(node: Node, slots: list[Tensor | None]) -> list[Tensor]:
    """Fill in zeros for the outputs of `node` that nobody used."""
    like = next(g for g in slots if g is not None)
    xp = xp_of(like.array)
    return [
        Tensor(xp.zeros(shape, dtype)) if grad is None else grad
        for grad, (shape, dtype) in zip(slots, node.metas, strict=True)
    ]


def fit(grad: Tensor, shape: tuple[int, ...], dtype: Any, node: Node | None) -> Tensor:
    """Sum a broadcast gradient of an output of `node` to `shape` and cast it to `dtype`."""
    if grad.array.shape != shape:
        try:
            grad = sum_to(grad, shape)
        except InputError:
            where = "a leaf" if node is None else node.name
            raise InputError(
                f"{where}: got a gradient of shape {list(grad.shape)} for a tensor of shape "
                f"{list(shape)}."
            ) from None
    return grad if grad.array.dtype == dtype else grad.to(dtype)


def _accumulate(tensor: Tensor, grad: Tensor, create: bool) -> None:
    """Add to `tensor.grad`, in memory of its own and in the layout of the tensor."""
    if create:
        tensor.grad = grad if tensor.grad is None else tensor.grad + grad
    elif tensor.grad is None:
        own = xp_of(tensor.array).empty_like(tensor.array)
        own[...] = grad.array
        tensor.grad = Tensor(own)
    else:
        tensor.grad.array += grad.array
        tensor.grad._version[0] += 1
    if tensor._hooks is not None:
        for hook in tuple(tensor._hooks.after.values()):
            hook(tensor)
