"""Gradients compared with central finite differences, in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from midge.core.autograd.engine import grad
from midge.core.autograd.modes import enable_grad, no_grad
from midge.core.backend import Array
from midge.core.errors import CheckError, InputError
from midge.core.tensor import Tensor


def _outputs(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    """Return the float outputs of one call."""
    result = function(*inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    return [o for o in outputs if isinstance(o, Tensor) and o.dtype.kind == "f"]


def _numerical(
    function: Callable[..., Any], inputs: Sequence[Any], position: int, eps: float
) -> list[Array]:
    """Return, per output, the matrix d output / d input by central differences."""
    x = inputs[position].array
    columns = []
    with no_grad():
        for place in np.ndindex(*x.shape):
            ends = []
            for step in (eps, -eps):
                moved = x.copy()
                moved[place] += step
                changed = [*inputs[:position], Tensor(moved), *inputs[position + 1 :]]
                ends.append([o.array.copy() for o in _outputs(function, changed)])
            columns.append([(a - b).ravel() / (2 * eps) for a, b in zip(*ends, strict=True)])
        count = len(_outputs(function, inputs))
    return [np.stack([c[i] for c in columns], 1) for i in range(count)] if columns else []


def _analytical(output: Tensor, inputs: Sequence[Tensor], create_graph: bool) -> list[Array]:
    """Return, per input, the matrix d output / d input by one backward pass per output element."""
    rows: list[list[Array]] = [[] for _ in inputs]
    for place in np.ndindex(*output.shape):
        seed = np.zeros(output.shape, output.dtype)
        seed[place] = 1
        grads = grad([output], inputs, [Tensor(seed)], True, create_graph, allow_unused=True)
        for row, x, g in zip(rows, inputs, grads, strict=True):
            if g is not None and g.shape != x.shape:
                raise CheckError(f"gradcheck: gradient {list(g.shape)} for input {list(x.shape)}.")
            row.append(np.zeros(x.array.size) if g is None else g.array.ravel())
    empty = [np.zeros((0, x.array.size)) for x in inputs]
    return [np.stack(row) if row else e for row, e in zip(rows, empty, strict=True)]


def gradcheck(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
) -> bool:
    """Compare backward with central differences, element by element.

    Args:
        function: takes the inputs, returns a Tensor or a tuple.
        inputs: Tensors and others; the float64 ones with requires_grad are checked.
        eps: half the distance of the two evaluations.
        atol: absolute tolerance.
        rtol: relative tolerance.

    Returns:
        True.

    Raises:
        InputError: nothing to check, or an input is not float64.
        CheckError: a gradient is wrong; the message names input, output and element.
    """
    positions = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not positions:
        raise InputError("gradcheck: no input requires gradients.")
    for i in positions:
        if inputs[i].dtype != np.float64:
            raise InputError(f"gradcheck: input {i} is {inputs[i].dtype}; it needs float64.")
    wanted = [inputs[i] for i in positions]
    exact = [_numerical(function, inputs, i, eps) for i in positions]
    for k, output in enumerate(_outputs(function, inputs)):
        if output.requires_grad:
            found = _analytical(output, wanted, False)
        else:
            found = [np.zeros((output.array.size, x.array.size)) for x in wanted]
        for i, numerical, analytical in zip(positions, exact, found, strict=True):
            if numerical:
                _compare(analytical, numerical[k], f"output {k} by input {i}", atol, rtol)
    return True


def _compare(found: Array, exact: Array, where: str, atol: float, rtol: float) -> None:
    wrong = ~(np.abs(found - exact) <= atol + rtol * np.abs(exact))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise CheckError(
            f"gradcheck: d {where}, elements ({row}, {column}): backward gives "
            f"{found[row, column]:.9g}, finite differences {exact[row, column]:.9g}."
        )


def gradgradcheck(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    seed: int = 0,
) -> bool:
    """Compare the second derivatives: gradcheck of the function that returns the gradients.

    Args:
        function: as for gradcheck.
        inputs: as for gradcheck.
        eps: as for gradcheck.
        atol: as for gradcheck.
        rtol: as for gradcheck.
        seed: of the output gradients, which are inputs of the second pass.
    """
    positions = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    outputs = [o for o in _outputs(function, inputs) if o.requires_grad]
    rng = np.random.default_rng(seed)
    seeds = [Tensor(rng.standard_normal(o.shape), requires_grad=True) for o in outputs]
    count = len(inputs)

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        given, grads = list(args[:count]), list(args[count:])
        for i in positions:
            if not given[i].requires_grad:  # a moved copy, evaluated in no_grad
                given[i] = Tensor(given[i].array, requires_grad=True)
        return _first_order(function, given, positions, grads)

    return gradcheck(gradients, [*inputs, *seeds], eps, atol, rtol)


def _first_order(
    function: Callable[..., Any], inputs: list[Any], positions: list[int], grads: list[Tensor]
) -> tuple[Tensor, ...]:
    """Return the gradients by the inputs at `positions`, recorded for a second pass."""
    with enable_grad():
        outputs = [o for o in _outputs(function, inputs) if o.requires_grad]
        wanted = [inputs[i] for i in positions]
        found = grad(outputs, wanted, grads, create_graph=True, allow_unused=True)
        zeros = [x * 0.0 if g is None else g for x, g in zip(wanted, found, strict=True)]
    return tuple(zeros)
