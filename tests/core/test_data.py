import numpy as np
import pytest

from midge.core import Generator, Tensor, data, manual_seed
from midge.core.errors import InputError, UnsupportedError


class Squares(data.Dataset):
    def __getitem__(self, index: int) -> dict[str, object]:
        return {"x": np.full(2, index, np.float32), "y": index * index, "name": f"s{index}"}

    def __len__(self) -> int:
        return 10


def numbers(n: int = 10) -> data.TensorDataset:
    return data.TensorDataset(Tensor(np.arange(n, dtype=np.float32)), np.arange(n))


def order(loader: data.DataLoader) -> list[int]:
    return [int(v) for batch in loader for v in batch[1].numpy()]


def test_batches_come_in_order_and_the_last_is_shorter() -> None:
    loader = data.DataLoader(numbers(), batch_size=4)
    assert [len(x) for x, _ in loader] == [4, 4, 2]
    assert len(loader) == 3
    assert order(loader) == list(range(10))
    dropped = data.DataLoader(numbers(), batch_size=4, drop_last=True)
    assert [len(x) for x, _ in dropped] == [4, 4]
    assert len(dropped) == 2


def test_shuffling_is_decided_by_the_generator_and_differs_from_epoch_to_epoch() -> None:
    def epochs(generator: Generator | None) -> list[list[int]]:
        loader = data.DataLoader(numbers(), 3, shuffle=True, generator=generator)
        return [order(loader) for _ in range(2)]

    first, second = epochs(Generator(4))
    assert [first, second] == epochs(Generator(4))
    assert first != second
    assert sorted(first) == list(range(10))
    manual_seed(4)
    by_default = epochs(None)
    manual_seed(4)
    assert epochs(None) == by_default


def test_samples_are_joined_part_by_part() -> None:
    batch = next(iter(data.DataLoader(Squares(), batch_size=3)))
    np.testing.assert_array_equal(batch["x"].numpy(), [[0, 0], [1, 1], [2, 2]])
    assert batch["x"].dtype == np.float32
    np.testing.assert_array_equal(batch["y"].numpy(), [0, 1, 4])
    assert batch["y"].dtype == np.int64
    assert batch["name"] == ["s0", "s1", "s2"]
    pair = data.default_collate([(1.5, [np.int8(1)]), (2.5, [np.int8(2)])])
    assert pair[0].dtype == np.float32
    assert isinstance(pair[1], list)
    assert pair[1][0].dtype == np.int8


def test_a_whole_batch_equals_its_collated_samples_in_every_layout() -> None:
    images = np.random.default_rng(0).standard_normal((6, 4, 5, 3)).astype(np.float32)
    last = Tensor(images.transpose(0, 3, 1, 2))
    dataset = data.TensorDataset(last, np.arange(6))
    x, _ = dataset.batch([4, 0, 2])
    expected = data.default_collate([dataset[i][0] for i in (4, 0, 2)])
    np.testing.assert_array_equal(x.numpy(), expected.numpy())
    assert x.numpy().transpose(0, 2, 3, 1).flags.c_contiguous


def test_a_batch_is_a_copy() -> None:
    dataset = numbers()
    x, _ = next(iter(data.DataLoader(dataset, batch_size=10)))
    x.array[...] = 0
    assert dataset.tensors[0].numpy().any()


def test_random_split_shares_out_every_sample_once() -> None:
    parts = data.random_split(numbers(), [0.75, 0.25], Generator(0))
    assert [len(p) for p in parts] == [8, 2]
    again = data.random_split(numbers(), [8, 2], Generator(0))
    assert [p.indices for p in parts] == [p.indices for p in again]
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    assert sorted(order(data.DataLoader(parts[0], 3))) == sorted(parts[0].indices)
    with pytest.raises(InputError, match="must add up to 10"):
        data.random_split(numbers(), [5, 4])


def test_a_subset_works_with_any_data_set() -> None:
    batch = next(iter(data.DataLoader(data.Subset(Squares(), [5, 3]), batch_size=2)))
    np.testing.assert_array_equal(batch["y"].numpy(), [25, 9])


def test_mistakes_are_named() -> None:
    with pytest.raises(UnsupportedError, match="num_workers=2"):
        data.DataLoader(numbers(), num_workers=2)
    with pytest.raises(InputError, match="batch_size is 0"):
        data.DataLoader(numbers(), batch_size=0)
    with pytest.raises(InputError, match=r"first dimensions \[2, 3\]"):
        data.TensorDataset(np.zeros(2), np.zeros(3))
    with pytest.raises(InputError, match=r"sample 1 of the batch has shape \[3\]"):
        data.default_collate([np.zeros(2), np.zeros(3)])
    with pytest.raises(InputError, match="different lengths"):
        data.default_collate([(1, 2), (1,)])
    with pytest.raises(InputError, match="type set"):
        data.default_collate([{1}, {2}])


def test_collate_fn_replaces_everything() -> None:
    loader = data.DataLoader(numbers(4), batch_size=2, collate_fn=len)
    assert list(loader) == [2, 2]
