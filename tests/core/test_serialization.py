import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from midge.core import Tensor, load, nn, optim, randn, save
from midge.core.errors import InputError


def same(a: object, b: object) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, Tensor | np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    else:
        assert a == b or (a != a and b != b)


def test_a_nested_value_comes_back_as_it_was(tmp_path: Path) -> None:
    value = {
        "tensor": randn(2, 3),
        "half": Tensor(np.ones((2, 0), np.float16)),
        "scalar": Tensor(np.array(7)),
        "flags": np.array([True, False]),
        "state": {0: {"step": 3}, 1: {}},
        "list": [1, 2.5, None, True, "text", float("inf"), float("nan"), 0.1],
        "tuple": (0.9, 0.999),
    }
    save(value, tmp_path / "deep" / "file.midge")
    same(load(tmp_path / "deep" / "file.midge"), value)


def test_channels_last_tensors_keep_their_values(tmp_path: Path) -> None:
    images = np.arange(24.0).reshape(1, 2, 3, 4).transpose(0, 3, 1, 2)
    save(Tensor(images), tmp_path / "x")
    np.testing.assert_array_equal(load(tmp_path / "x").numpy(), images)


def test_shared_memory_is_written_once_and_requires_grad_is_kept(tmp_path: Path) -> None:
    weight = nn.Parameter(randn(100, 100))
    save([weight, weight.detach()], tmp_path / "x")
    assert (tmp_path / "x").stat().st_size < 50_000
    first, second = load(tmp_path / "x")
    assert first.requires_grad
    assert not second.requires_grad


def test_the_same_value_gives_the_same_bytes(tmp_path: Path) -> None:
    value = {"x": Tensor(np.arange(5)), "lr": 0.1}
    for name in "ab":
        save(value, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_run_continues_from_a_checkpoint(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    optimizer = optim.AdamW(net.parameters())
    net(randn(4, 3)).sum().backward()
    optimizer.step()
    save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c")
    state = load(tmp_path / "c")
    other = nn.Sequential(nn.Linear(3, 2))
    other.load_state_dict(state["net"])
    resumed = optim.AdamW(other.parameters())
    resumed.load_state_dict(state["optimizer"])
    same(resumed.state_dict(), optimizer.state_dict())


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save(1, path)
    with pytest.raises(InputError, match=r"value\['a'\]\[1\] is a object"):
        save({"a": [1, object()]}, path)
    assert load(path) == 1
    assert os.listdir(tmp_path) == ["x"]
    with pytest.raises(InputError, match="keys must be str or int"):
        save({(1, 2): 3}, path)


def test_a_pickle_in_disguise_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "boom"),)

    plain = tmp_path / "plain"
    plain.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="not a file written by"):
        load(plain)
    array = np.empty(1, object)
    array[0] = Bomb()
    hidden = tmp_path / "hidden"
    with zipfile.ZipFile(hidden, "w") as archive:
        archive.writestr("structure.json", '{"format": "midge-1", "value": ["array", 0]}')
        with archive.open("0.npy", "w") as member:
            np.lib.format.write_array(member, array, allow_pickle=True)
    with pytest.raises(InputError, match="damaged"):
        load(hidden)
    assert not (tmp_path / "boom").exists()


def test_missing_damaged_and_newer_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "gone")
    path = tmp_path / "x"
    save(randn(50), path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="damaged"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("structure.json", '{"format": "midge-9", "value": 1}')
    with pytest.raises(InputError, match="'midge-9'"):
        load(path)
