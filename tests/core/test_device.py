"""Devices: names, and a clear error where no CUDA device answers."""

import pytest

from midge.core import backend, tensor
from midge.core.device import CPU, Device, as_device, is_available
from midge.core.errors import InputError

needs_no_gpu = pytest.mark.skipif(is_available(), reason="this machine has a CUDA device")


def test_names_are_parsed():
    assert as_device("cpu") is CPU
    assert as_device(CPU) is CPU
    assert str(Device("cuda", 1)) == "cuda:1"
    for wrong in ("gpu", "cuda:x", "cuda:", "cpu0"):
        with pytest.raises(InputError, match="is unknown; use 'cpu', 'cuda' or 'cuda:N'"):
            as_device(wrong)


@needs_no_gpu
def test_a_missing_cuda_device_is_one_clear_line():
    with pytest.raises(
        InputError, match=r"device 'cuda': .*; use device 'cpu'|or use device 'cpu'"
    ):
        tensor([1.0], device="cuda")


def test_moving_to_the_same_device_copies_nothing():
    x = tensor([1.0])
    assert x.cpu() is x
    assert x.to("cpu") is x
    assert x.to(x) is x


def test_arrays_of_two_modules_do_not_mix(monkeypatch):
    class Foreign:
        pass

    class Module:
        ndarray = Foreign

    monkeypatch.setattr(backend, "_cupy", Module)
    assert backend.xp_of(Foreign(), None) is Module
    with pytest.raises(InputError, match="different devices"):
        backend.xp_of(Foreign(), tensor([1.0]).array)
