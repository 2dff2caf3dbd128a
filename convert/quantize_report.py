"""What quantizing a file takes and gives: options, report, and the .quant.json beside it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from midge.convert.calibrate import METHODS
from midge.convert.calibration_data import RANDOM, Samples, Spec
from midge.convert.coverage import Coverage, counts
from midge.convert.images import ImageOptions
from midge.convert.io_types import IO_TYPES
from midge.convert.quantize import QuantizedGraph
from midge.convert.quantize_dynamic import DYNAMIC, WEIGHT_ONLY
from midge.convert.saturation import Saturation
from midge.core.errors import InputError
from midge.quant.scheme import QuantParams

Array = npt.NDArray[Any]
STATIC = "static"
MODES = (STATIC, DYNAMIC, WEIGHT_ONLY)


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """How to quantize; the fields are the command line's options.

    Args:
        mode: "static" (calibrated), "dynamic" or "weight-only"; the other two need no data.
        per_channel: one weight scale per output channel.
        reduce_range: 7-bit weights, which cannot saturate in ONNX Runtime on x86 without VNNI.
        activation_type: "uint8" or "int8", in the ONNX file.
        io_type: "float32", "int8" or "uint8", of the file's inputs and outputs.
        calibration_method: one of calibrate.METHODS.
        samples: most calibration samples to take; None takes all.
        skip_bad_samples: leave samples with NaN or Inf out instead of stopping.
        images: preprocessing of calibration images, where the data are a folder of them.
        nodes_to_exclude: names of nodes that stay in float.
        op_types_to_quantize: the only operators to quantize; None stands for all.
        dead_channels: leave out channels that change no bit of the outputs.
        drop_softmax: remove each Softmax, LogSoftmax or Sigmoid that only ArgMax or the indices of
            TopK read.
        strict: a node that stays in float unasked, or a range that collapsed, is an error.
        input_shapes: shapes of inputs with unknown dimensions, by name.
        input_values: numbers that inputs hold throughout, by name; they become constants.
        seed: of everything random.
    """

    mode: str = STATIC
    per_channel: bool = True
    reduce_range: bool = False
    activation_type: str = "uint8"
    io_type: str = "float32"
    calibration_method: str = "minmax"
    samples: int | None = None
    skip_bad_samples: bool = False
    images: ImageOptions | None = None
    nodes_to_exclude: tuple[str, ...] = ()
    op_types_to_quantize: tuple[str, ...] | None = None
    dead_channels: bool = True
    drop_softmax: bool = False
    strict: bool = False
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    input_values: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """What quantizing a file gave.

    Args:
        output: the file written.
        parameters: its .quant.json.
        coverage: what became of every node of the file that was read.
        notices: lines that the user must see.
        samples: calibration samples used.
        collapsed: tensors whose calibrated range is a single point at 0.
        saturation: which layers may saturate in ONNX Runtime on x86 without VNNI.
    """

    output: Path
    parameters: Path
    coverage: list[Coverage]
    notices: list[str]
    samples: int
    collapsed: tuple[str, ...] = ()
    saturation: Saturation = field(default_factory=Saturation)

    @property
    def counts(self) -> dict[str, int]:
        """Number of nodes per state."""
        return counts(self.coverage)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "output": str(self.output),
            "parameters": str(self.parameters),
            "counts": self.counts,
            "coverage": [c.to_json() for c in self.coverage],
            "notices": self.notices,
            "samples": self.samples,
            "collapsed": list(self.collapsed),
            "saturation": self.saturation.to_json(),
        }


def check_options(options: QuantizeOptions) -> None:
    """Refuse an option that cannot be, before anything is read.

    Raises:
        InputError: naming it and what is allowed.
    """
    choices: dict[str, Iterable[str]] = {
        "mode": MODES,
        "calibration_method": METHODS,
        "activation_type": ("uint8", "int8"),
        "io_type": IO_TYPES,
    }
    for name, allowed in choices.items():
        value = getattr(options, name)
        if value not in allowed:
            option = name.replace("_", "-")
            raise InputError(f"--{option} {value!r} must be one of {', '.join(allowed)}.")


def check_data(calib_spec: object | None, options: QuantizeOptions) -> None:
    """Refuse missing calibration data, data that would be ignored, and options that ask for some.

    Raises:
        InputError: naming what is missing or left over.
    """
    if options.mode == STATIC:
        if calib_spec is None:
            raise InputError("--mode static needs calibration data: give --calib-data.")
        return
    if calib_spec is not None:
        raise InputError(
            f"--mode {options.mode} takes no calibration data; leave --calib-data out, or use "
            "--mode static."
        )
    for name in ("strict", "skip_bad_samples"):
        if getattr(options, name):
            option = name.replace("_", "-")
            raise InputError(f"--{option} has no meaning in --mode {options.mode}; leave it out.")
    if options.reduce_range and options.mode == WEIGHT_ONLY:
        raise InputError(
            f"--reduce-range has no meaning in --mode {WEIGHT_ONLY}, whose products are float; "
            "leave it out."
        )
    if options.images is not None and options.images.given():
        raise InputError(
            f"{', '.join(options.images.given())}: no meaning in --mode {options.mode}; leave out."
        )
    for name in ("io_type", "activation_type", "calibration_method", "samples"):
        if getattr(options, name) != getattr(QuantizeOptions(), name):
            option = f"--{name.replace('_', '-')} {getattr(options, name)}"
            raise InputError(f"{option} has no meaning in --mode {options.mode}; leave it out.")


def parameters_path(out: Path) -> Path:
    """Return where the parameters of a quantized file go: model.int8.onnx -> model.quant.json."""
    return out.with_name(out.name.removesuffix(".onnx").removesuffix(".int8") + ".quant.json")


def parameters_record(
    path: str | Path,
    written: Mapping[str, str],
    spec: Spec,
    options: QuantizeOptions,
    samples: Samples,
    params: Mapping[str, QuantParams],
    quantized: QuantizedGraph,
    saturation: Saturation,
) -> dict[str, Any]:
    """Return the content of the .quant.json: what makes the file reproducible and readable.

    `written` is the file_record of the quantized file.
    """
    return {
        "model": {"name": Path(path).name, "sha256": _sha256(Path(path))},
        "quantized": dict(written),
        "mode": options.mode,
        "calibration": {
            "method": options.calibration_method,
            "samples": samples.count,
            "skipped": samples.skipped,
            "sha256": samples.sha256(),
            "random": spec == RANDOM,
            "images": preprocessing(options),
        },
        "seed": options.seed,
        "per_channel": options.per_channel,
        "reduce_range": options.reduce_range,
        "drop_softmax": options.drop_softmax,
        "activation_type": options.activation_type,
        "io_type": options.io_type,
        "activations": {
            name: {"scale": float(p.scale), "zero_point": p.zero_point, "dtype": p.dtype}
            for name, p in params.items()
        },
        "weights": {
            name: {"scale": [float(s) for s in code.scale], "raised": list(code.raised)}
            for name, code in quantized.codes.items()
        },
        "saturation": saturation.to_json(),
    }


def kept_record(
    path: str | Path, written: Mapping[str, str], saturation: Saturation
) -> dict[str, Any]:
    """Return the content of the .quant.json of a file that was quantized before."""
    return {
        "model": {"name": Path(path).name, "sha256": _sha256(Path(path))},
        "quantized": dict(written),
        "mode": "quantized already",
        "saturation": saturation.to_json(),
    }


def weights_record(
    path: str | Path,
    written: Mapping[str, str],
    options: QuantizeOptions,
    scales: Mapping[str, Array],
    saturation: Saturation,
) -> dict[str, Any]:
    """Return the content of the .quant.json of a file that was quantized without data."""
    return {
        "model": {"name": Path(path).name, "sha256": _sha256(Path(path))},
        "quantized": dict(written),
        "mode": options.mode,
        "per_channel": options.per_channel,
        "reduce_range": options.reduce_range,
        "drop_softmax": options.drop_softmax,
        "saturation": saturation.to_json(),
        "weights": {
            name: {"scale": [float(s) for s in scale.reshape(-1)]} for name, scale in scales.items()
        },
    }


def preprocessing(options: QuantizeOptions) -> dict[str, Any] | None:
    """Return what was done to calibration images, None where there were none."""
    images = options.images
    return images.to_json() if images is not None and images.given() else None


def file_record(path: Path, data: bytes) -> dict[str, str]:
    """Return name and hash of a file that is going to hold `data`."""
    return {"name": path.name, "sha256": hashlib.sha256(data).hexdigest()}


def as_json(record: Mapping[str, Any]) -> bytes:
    """Return the bytes of a .quant.json."""
    return (json.dumps(record, indent=1) + "\n").encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
