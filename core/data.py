"""Data sets and the loader that makes batches of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from midge.core.backend import Array, is_array, xp_of
from midge.core.creation import tensor
from midge.core.errors import InputError, UnsupportedError
from midge.core.ops.layout import nchw
from midge.core.random import Generator, default_generator
from midge.core.tensor import Tensor


class Dataset:
    """Base of data sets: a subclass defines __getitem__ and __len__.

    It may also define `batch(indices)`, which returns a whole batch at once; DataLoader then uses
    it in the place of __getitem__ and collation.
    """

    def __getitem__(self, index: int) -> Any:
        """Return one sample."""
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__().")

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError(f"{type(self).__name__} has no __len__().")


class TensorDataset(Dataset):
    """Samples are the rows of tensors.

    Args:
        tensors: tensors or arrays with one first dimension.
    """

    def __init__(self, *tensors: Any) -> None:
        """Keep the tensors."""
        self.tensors = tuple(t if isinstance(t, Tensor) else Tensor(t) for t in tensors)
        sizes = [len(t) for t in self.tensors]
        if len(set(sizes)) != 1:
            raise InputError(f"TensorDataset: first dimensions {sizes} must be one size.")

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        """Return one row of every tensor."""
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.tensors[0])

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """Return rows of every tensor, in the memory layout of that tensor."""
        return tuple(Tensor(_take(t.array, indices)) for t in self.tensors)


def _take(array: Array, indices: Sequence[int]) -> Array:
    """Return rows of an array; [N, C, H, W] that lies as N, H, W, C stays so."""
    rows = xp_of(array).asarray(indices)
    if array.ndim == 4 and not array.flags.c_contiguous:
        return nchw(array.transpose(0, 2, 3, 1)[rows])
    return array[rows]


class Subset(Dataset):
    """Some samples of another data set.

    Args:
        dataset: the other data set.
        indices: numbers of its samples.
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        """Keep both."""
        self.dataset = dataset
        self.indices = [int(i) for i in indices]

    def __getitem__(self, index: int) -> Any:
        """Return one sample."""
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.indices)

    def __getattr__(self, name: str) -> Any:
        """Offer batch() where the other data set has it."""
        if name == "batch" and hasattr(self.dataset, "batch"):
            return lambda rows: self.dataset.batch([self.indices[i] for i in rows])
        raise AttributeError(f"Subset has no attribute {name!r}")


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset]:
    """Cut a data set into parts without common samples.

    Args:
        dataset: the data set.
        lengths: numbers of samples, or shares that add up to 1 (what is left over by rounding down
            goes to the first parts, one sample each).
        generator: source of the random order; default the one of manual_seed().

    Raises:
        InputError: the lengths do not add up.
    """
    total = len(dataset)
    counts = [int(c) for c in lengths]
    if abs(sum(lengths) - 1) < 1e-6 and min(lengths) >= 0 and total != 1:
        counts = [int(c * total) for c in lengths]
        for i in range(total - sum(counts)):
            counts[i % len(counts)] += 1
    elif sum(lengths) != total or counts != list(lengths) or min(counts) < 0:
        raise InputError(
            f"random_split: lengths {list(lengths)} must add up to {total} samples, or to 1."
        )
    order = (generator or default_generator).permutation(total)
    ends = np.cumsum([0, *counts])
    return [Subset(dataset, order[a:b]) for a, b in pairwise(ends)]


def default_collate(samples: Sequence[Any]) -> Any:
    """Join samples to a batch.

    Tensors, arrays and numbers get a new first dimension; tuples, lists and dicts are joined part
    by part; strings stay a list.

    Raises:
        InputError: the samples have different shapes, lengths or keys, or an unknown type.
    """
    first = samples[0]
    if isinstance(first, Tensor) or is_array(first):
        arrays = [s.array if isinstance(s, Tensor) else s for s in samples]
        for index, array in enumerate(arrays):
            if array.shape != arrays[0].shape:
                raise InputError(
                    f"collate: sample {index} of the batch has shape {list(array.shape)}, the "
                    f"first {list(arrays[0].shape)}; pad them or pass collate_fn."
                )
        return Tensor(xp_of(arrays[0]).stack(arrays))
    if isinstance(first, bool | int | float | np.generic):
        return (
            tensor(list(samples))
            if not isinstance(first, np.generic)
            else Tensor(np.array(samples))
        )
    if isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, Mapping):
        return {key: default_collate([s[key] for s in samples]) for key in first}
    if isinstance(first, tuple | list):
        if any(len(s) != len(first) for s in samples):
            raise InputError("collate: the samples of a batch have different lengths.")
        joined = [default_collate(part) for part in zip(*samples, strict=True)]
        return tuple(joined) if isinstance(first, tuple) else joined
    raise InputError(
        f"collate: samples of type {type(first).__name__} cannot be joined; pass collate_fn."
    )


class DataLoader:
    """Batches of a data set, in order or shuffled anew every time it is iterated over.

    Args:
        dataset: has __getitem__ and __len__.
        batch_size: samples in a batch.
        shuffle: draw the order.
        num_workers: 0; samples are made in this process.
        collate_fn: joins a list of samples; default default_collate.
        drop_last: leave out a last batch that is not full.
        generator: source of the order; default the one of manual_seed().

    Raises:
        InputError: batch_size below 1.
        UnsupportedError: num_workers other than 0.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        generator: Generator | None = None,
    ) -> None:
        """Keep the options."""
        if batch_size < 1:
            raise InputError(f"DataLoader: batch_size is {batch_size}; it must be >= 1.")
        if num_workers != 0:
            raise UnsupportedError(
                f"DataLoader: num_workers={num_workers} is not supported; use num_workers=0."
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.generator = generator

    def __len__(self) -> int:
        """Return the number of batches."""
        samples = len(self.dataset)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches; the order is drawn when the first one is asked for."""
        samples = len(self.dataset)
        generator = self.generator or default_generator
        order = generator.permutation(samples) if self.shuffle else np.arange(samples)
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield self._batch([int(i) for i in order[start : start + self.batch_size]])

    def _batch(self, indices: list[int]) -> Any:
        if self.collate_fn is None:
            whole = getattr(self.dataset, "batch", None)
            if whole is not None:
                return whole(indices)
        return (self.collate_fn or default_collate)([self.dataset[i] for i in indices])
