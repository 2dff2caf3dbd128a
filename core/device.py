"""Devices: "cpu" (NumPy) and "cuda" or "cuda:1" (CuPy)."""

from dataclasses import dataclass
from typing import TypeAlias

from midge.core.backend import Array, load_cupy, xp_of
from midge.core.errors import InputError, did_you_mean


@dataclass(frozen=True, slots=True)
class Device:
    """Where a tensor lies; printed as "cpu" or "cuda:0".

    Args:
        type: "cpu" or "cuda".
        index: number of the CUDA device; 0 on the CPU.
    """

    type: str
    index: int = 0

    def __str__(self) -> str:
        """Return the name that `as_device` reads."""
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"


DeviceLike: TypeAlias = "Device | str"
CPU = Device("cpu")


def as_device(device: DeviceLike) -> Device:
    """Parse "cpu", "cuda" or "cuda:N" and make sure that the device answers.

    Raises:
        InputError: unknown name, or a CUDA device that is not there.
    """
    if isinstance(device, Device):
        return device
    kind, colon, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdecimal()):
        raise InputError(
            f"device {device!r} is unknown; use 'cpu', 'cuda' or 'cuda:N'."
            f"{did_you_mean(kind, ('cpu', 'cuda'))}"
        )
    if kind == "cpu":
        return CPU
    found = Device("cuda", int(number or 0))
    count = int(load_cupy().cuda.runtime.getDeviceCount())
    if found.index >= count:
        raise InputError(f"device '{found}': this machine has {count} CUDA device(s).")
    return found


def is_available(kind: str = "cuda") -> bool:
    """Tell whether a device of this kind can be used here."""
    try:
        as_device(kind)
    except InputError:
        return False
    return True


def device_of(array: Array) -> Device:
    """Return the device an array lies on."""
    if xp_of(array).__name__ == "numpy":
        return CPU
    return Device("cuda", int(array.device.id))


def move(array: Array, device: Device) -> Array:
    """Return the array on `device`; no copy if it already lies there."""
    if device_of(array) == device:
        return array
    if device.type == "cpu":
        return array.get()
    cupy = load_cupy()
    with cupy.cuda.Device(device.index):
        return cupy.asarray(array)
