"""The Plan under construction: tensors, buffers, steps, and bytes reordered where they must be."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from midge.convert import layout as lay
from midge.convert.layout import Layout, Shape
from midge.convert.plan import ITEM_BYTES, Params, Plan, PlanOp, PlanTensor, Transpose
from midge.quant.scheme import QuantParams


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of the file and where its elements are.

    Args:
        tensor: index into Program.tensors.
        shape: in the file.
        layout: storage order.
        params: of the codes in the file's dtype; None for float32.
    """

    tensor: int
    shape: Shape
    layout: Layout
    params: QuantParams | None = None

    @property
    def codes(self) -> QuantParams:
        """Parameters in the file's dtype, of a tensor that has some."""
        assert self.params is not None
        return self.params

    @property
    def stored_codes(self) -> QuantParams:
        """Parameters of the int8 codes."""
        return self.codes.as_dtype("int8")


@dataclass(slots=True)
class Program:
    """What has been lowered so far.

    Args:
        tensors: as in Plan.
        ops: as in Plan.
        buffer_bytes: as in Plan; every buffer is written once.
        named: tensors that carry the name of a quantized tensor of the file.
        reordered: what was brought into another storage order already.
    """

    tensors: list[PlanTensor] = field(default_factory=list)
    ops: list[PlanOp] = field(default_factory=list)
    buffer_bytes: list[int] = field(default_factory=list)
    named: set[int] = field(default_factory=set)
    reordered: dict[tuple[Stored, Layout], Stored] = field(default_factory=dict)

    def new(
        self,
        name: str,
        shape: Sequence[int],
        layout: Layout,
        params: QuantParams | None,
        *,
        dtype: str | None = None,
        storage: Sequence[int] | None = None,
    ) -> Stored:
        """Add a tensor with a buffer of its own.

        Args:
            name: in the file.
            shape: in the file.
            layout: storage order.
            params: in the file's dtype, None for float32.
            dtype: as stored; by default "int8" with params, else "float32".
            storage: shape as stored; by default the layout's.
        """
        dtype = dtype or ("int8" if params else "float32")
        self.buffer_bytes.append(prod(shape) * ITEM_BYTES[dtype])
        tensor = PlanTensor(
            name=name,
            shape=tuple(storage or layout.storage_shape),
            dtype=dtype,
            buffer=len(self.buffer_bytes) - 1,
            params=params.as_dtype("int8") if params and dtype == "int8" else params,
            layout=layout.order,
            file_params=params,
            file_shape=tuple(shape),
        )
        self.tensors.append(tensor)
        return Stored(len(self.tensors) - 1, tuple(shape), layout, params)

    def view(self, stored: Stored, shape: Sequence[int]) -> int:
        """Return a tensor with this storage shape, and these parameters, over the same bytes."""
        tensor = self.tensors[stored.tensor]
        params = stored.stored_codes if stored.params else None
        wanted = (tensor.buffer, tuple(shape), params)
        if (tensor.buffer, tensor.shape, tensor.params) == wanted:
            return stored.tensor
        for index, known in enumerate(self.tensors):
            if (known.buffer, known.shape, known.params) == wanted:
                return index
        view = replace(
            tensor,
            shape=tuple(shape),
            params=params,
            layout=(),
            file_params=None,
            file_shape=(),
        )
        self.tensors.append(view)
        return len(self.tensors) - 1

    def claim(self, stored: Stored, name: str, params: QuantParams) -> Stored:
        """Give the bytes the name of a quantized tensor of the file, beside any they have."""
        claimed = replace(stored, params=params)
        if stored.tensor not in self.named and self._fits(stored):
            tensor = replace(self.tensors[stored.tensor], name=name, file_params=params)
            self.tensors[stored.tensor] = tensor
            self.named.add(stored.tensor)
            return claimed
        spelt = lay.spelt(stored.shape, stored.layout)
        tensor = replace(
            self.tensors[stored.tensor],
            name=name,
            shape=spelt.storage_shape,
            layout=spelt.order,
            params=params.as_dtype("int8"),
            file_params=params,
            file_shape=stored.shape,
        )
        self.tensors.append(tensor)
        self.named.add(len(self.tensors) - 1)
        return replace(claimed, tensor=len(self.tensors) - 1)

    def _fits(self, stored: Stored) -> bool:
        """Tell whether the tensor itself has the shape that `stored` gives its bytes."""
        tensor = self.tensors[stored.tensor]
        return tensor.file_shape == stored.shape and len(tensor.layout) == len(tensor.shape)

    def op(
        self, name: str, params: Params, inputs: Sequence[int], output: Stored, macs: int = 0
    ) -> Stored:
        """Add a step and return its output."""
        self.ops.append(PlanOp(name, params, tuple(inputs), output.tensor, macs))
        return output

    def reorder(self, stored: Stored, target: Layout, name: str) -> Stored:
        """Return the tensor in another storage order, by a Transpose where bytes must move.

        Whoever asks for the same order again gets the same tensor.
        """
        if stored.layout.canonical() == target.canonical():
            return stored
        known = self.reordered.get((stored, target))
        if known is not None:
            return known
        step = lay.permutation(stored.layout, target)
        if step is None:  # no common digits: through the file's own order, which any digits fit
            stored = self.reorder(stored, lay.identity((prod(stored.shape),)), name)
            return self.reorder(stored, target, name)
        shape, perm = _as_image(step, target.storage_shape)
        output = self.new(
            f"{self.tensors[stored.tensor].name}_{name}",
            stored.shape,
            target,
            stored.params,
            dtype=self.tensors[stored.tensor].dtype,
            storage=[shape[k] for k in perm],
        )
        inputs = [self.view(stored, shape)]
        name = self.tensors[output.tensor].name
        made = self.op(name, Transpose(perm), inputs, self.as_written(output))
        self.reordered[stored, target] = made
        return made

    def as_written(self, stored: Stored) -> Stored:
        """Return a tensor that is only what a step writes: `claim` says what it is in the file."""
        tensor = self.tensors[stored.tensor]
        self.tensors[stored.tensor] = replace(tensor, layout=(), file_params=None, file_shape=())
        return stored

    def plan(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], notices: Sequence[str]
    ) -> Plan:
        """Return the finished Plan, without offsets."""
        return Plan(
            name=name,
            tensors=self.tensors,
            ops=self.ops,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            buffer_bytes=self.buffer_bytes,
            notices=list(notices),
        )


def _as_image(
    step: tuple[tuple[int, ...], tuple[int, ...]], storage: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a Transpose with the rows of the image that it makes, where it makes one.

    Args:
        step: shape and permutation, with as few axes as can be.
        storage: shape of the result.
    """
    shape, perm = step
    if perm == (1, 0) and len(storage) == 4 and storage[::3] == (1, shape[0]):
        return (1, storage[3], *storage[1:3]), (0, 2, 3, 1)
    return step
