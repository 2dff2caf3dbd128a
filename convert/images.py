"""Calibration on folders of images, preprocessed exactly as the user says and never by a guess.

A pixel p of 0 to 255 becomes (p * scale - mean) / std, per channel, computed in float64 and rounded
once to float32. Nothing else happens: no cropping, no rotation by EXIF, no resizing unless asked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.convert import graph as g
from midge.core.errors import InputError

Array = npt.NDArray[Any]
SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
LAYOUTS = ("nchw", "nhwc")
MODES = {1: "L", 3: "RGB"}  # Pillow's name by number of channels
EIGHT_BIT = ("1", "CMYK", "L", "LA", "P", "RGB", "RGBA", "YCbCr")
WAYS = "(pixel * --scale - --mean) / --std"


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How the pixels of an image become the input of a model; what is None must be given.

    Args:
        mean: one number, or one for each channel.
        std: one number, or one for each channel, above 0.
        scale: of pixels, which are 0 to 255; often 1/255.
        layout: "nchw" or "nhwc", of the model's input.
        resize: scale each image to the model's height and width (bilinear).
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    scale: float | None = None
    layout: str | None = None
    resize: bool = False

    def given(self) -> list[str]:
        """Return the options that are set, as the command line spells them."""
        values = {"mean": self.mean, "std": self.std, "scale": self.scale, "layout": self.layout}
        names = [f"--{name}" for name, value in values.items() if value is not None]
        return [*names, *(["--resize"] if self.resize else [])]

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain data."""
        return {
            "mean": list(self.mean or ()),
            "std": list(self.std or ()),
            "scale": self.scale,
            "layout": self.layout,
            "resize": "bilinear" if self.resize else None,
        }

    def __str__(self) -> str:
        """Return one line for people."""
        mean, std = (",".join(f"{v:g}" for v in values or ()) for values in (self.mean, self.std))
        sizes = "resized (bilinear)" if self.resize else "not resized"
        return f"(pixel * {self.scale:.9g} - {mean}) / {std}, {self.layout}, {sizes}"


def find_images(folder: Path) -> list[Path]:
    """Return the images in a folder and in the folders below, in the order of their paths."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())


class ImageFolder:
    """The images of a folder, as samples of the only input of a model.

    Args:
        folder: that holds them.
        model: whose input they are for.
        options: complete.
    """

    def __init__(self, folder: Path, model: ir.Model, options: ImageOptions) -> None:
        """Check the options.

        Raises:
            InputError: an option is missing or does not fit the model, or Pillow is missing.
        """
        self.files, self.layout, self.resize = find_images(folder), options.layout, options.resize
        self.scale = options.scale or 0.0
        _require(folder, options)
        inputs = list(model.graph.inputs)
        dims = g.dims(inputs[0]) if inputs else None
        if len(inputs) != 1 or dims is None or len(dims) != 4:
            raise InputError(
                f"{folder} holds images, and the model does not take one input of images; give "
                ".npz files or module:function."
            )
        self.name = g.name_of(inputs[0])
        order = (1, 2, 3) if options.layout == "nchw" else (3, 1, 2)
        channels, self.height, self.width = (dims[i] for i in order)
        if channels not in MODES:
            raise InputError(
                f"{folder}: with --layout {options.layout} input {self.name!r} of shape "
                f"{list(dims)} has {channels} channels, and images have 1 or 3; check --layout."
            )
        self.mode = MODES[channels]
        self.mean = _per_channel("--mean", options.mean, channels)
        self.std = _per_channel("--std", options.std, channels)
        if options.resize and (self.height is None or self.width is None):
            raise InputError(
                f"--resize: height and width of input {self.name!r} are unknown; bind them with "
                "--input-shape."
            )

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        """Give one image after another.

        Raises:
            InputError: one cannot be read or does not have the model's size.
        """
        for path in self.files:
            pixels = self._pixels(path).astype(np.float64)
            x = (pixels * self.scale - self.mean) / self.std
            x = x.transpose(2, 0, 1) if self.layout == "nchw" else x
            yield {self.name: x[None].astype(np.float32)}

    def _pixels(self, path: Path) -> Array:
        """Return the pixels, [height, width, channels] uint8."""
        from PIL import Image

        try:
            with Image.open(path) as image:
                size, mode = image.size, image.mode
                if mode in EIGHT_BIT and (self.resize or self._fits(*size)):
                    pixels = image.convert(self.mode)
                    if self.resize and not self._fits(*size):
                        target = (int(self.width or 0), int(self.height or 0))
                        pixels = pixels.resize(target, Image.Resampling.BILINEAR)
                    array = np.asarray(pixels)
                    return array.reshape(*array.shape[:2], -1)
        except Exception as error:  # Pillow raises many kinds
            raise InputError(f"{path} is no readable image: {error}.") from error
        if mode not in EIGHT_BIT:
            raise InputError(f"{path}: its pixels are of mode {mode!r}, not of 8 bits; convert it.")
        raise InputError(
            f"{path} is {size[0]} wide and {size[1]} high, the model takes {self.width} by "
            f"{self.height}; resize the images as for training, or give --resize."
        )

    def _fits(self, width: int, height: int) -> bool:
        return self.width in (None, width) and self.height in (None, height)


def _require(folder: Path, options: ImageOptions) -> None:
    missing = [n for n in ("mean", "std", "scale", "layout") if getattr(options, n) is None]
    if missing:
        names = ", ".join(f"--{n}" for n in missing)
        raise InputError(
            f"{folder} holds images, and how to preprocess them is not guessed: give {names} as in "
            f"training; an input is {WAYS}."
        )
    if not np.isfinite(options.scale or np.nan):
        raise InputError(f"--scale {options.scale!r}: must be a finite number other than 0.")
    if options.layout not in LAYOUTS:
        raise InputError(f"--layout {options.layout!r} must be one of {', '.join(LAYOUTS)}.")
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{folder} holds images, and Pillow is missing: pip install midge[images]."
        ) from error


def _per_channel(option: str, values: tuple[float, ...] | None, channels: int) -> Array:
    array = np.asarray(values or (), np.float64)
    if len(array) not in (1, channels):
        raise InputError(
            f"{option} has {len(array)} values, and the model has {channels} channels; give one, "
            "or one for each."
        )
    if not np.isfinite(array).all() or (option == "--std" and np.any(array <= 0)):
        raise InputError(f"{option} {','.join(f'{v:g}' for v in array)}: not a usable number.")
    return array
