"""Calibration samples from files and functions: one dict of arrays a sample, checked, streaming.

Samples lie along axis 0 of an array. An input whose leading dimension is unknown or 1 gets one row
at a time, so that scales never depend on how samples were batched; one whose leading dimension is
fixed to n gets n rows at a time.
"""

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from midge.convert import graph as g
from midge.convert.array_files import ArrayFile, open_npy, open_npz
from midge.convert.images import ImageFolder, ImageOptions, find_images
from midge.core.errors import InputError, did_you_mean

Array = npt.NDArray[Any]
Sample = dict[str, Array]
RANDOM = "random"  # the spec of --random-calib
RANDOM_SAMPLES = 32
IN_MEMORY = "calibration data"  # what messages call arrays that have no file
SUFFIXES = (".npy", ".npz")


class InMemory:
    """Calibration data that a Python caller holds.

    Args:
        data: an array (for one input) or a dict of arrays by input name, samples along axis 0; or
            an iterable of these, or a function that returns one. It is iterated more than once.
    """

    def __init__(self, data: Any) -> None:
        """Hold the data."""
        self.data = data

    def items(self) -> Iterable[Any]:
        """Return the arrays or dicts of one iteration."""
        if callable(self.data):
            made: Iterable[Any] = self.data()
            return made
        data = self.data
        if isinstance(data, np.ndarray | Mapping):
            return [data]
        if isinstance(data, Iterator):
            raise InputError(
                "calibration data: an iterator can be read only once; give a list, or the function "
                "that makes the iterator."
            )
        if not isinstance(data, Iterable):
            raise InputError(f"calibration data: {type(data).__name__} is neither array nor list.")
        return data


Spec = str | InMemory


class Samples:
    """Checked samples; iterate as often as needed.

    Attributes:
        skipped: indices of bad samples left out in the last iteration.
        count: samples given in the last iteration.
    """

    def __init__(
        self,
        source: Callable[[], Iterator[Mapping[str, Array]]],
        model: ir.Model,
        *,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> None:
        """Wrap a source of dicts that hold one sample each.

        Args:
            source: starts a new iteration.
            model: whose inputs the samples are for.
            limit: most samples to take; None takes all.
            skip_bad: leave samples with NaN or Inf out instead of stopping.
        """
        self._source, self._limit, self._skip_bad = source, limit, skip_bad
        self._inputs = {g.name_of(v): v for v in model.graph.inputs}
        self.skipped: list[int] = []
        self.count = 0
        self._digest = 0

    def __iter__(self) -> Iterator[Sample]:
        """Give the samples.

        Raises:
            InputError: a sample does not fit the model, by index and tensor, or there is none.
        """
        self.skipped, self.count, self._digest = [], 0, 0
        for index, given in enumerate(self._source()):
            if self._limit is not None and self.count >= self._limit:
                break
            sample = self._check(index, given)
            if sample is None:
                self.skipped.append(index)
                continue
            self.count += 1
            self._digest += int.from_bytes(_digest(sample))  # the order does not matter
            yield sample
        if not self.count:
            raise InputError("the calibration data hold no usable sample.")

    def sha256(self) -> str:
        """Return a hash of the samples of the last iteration, whatever their order."""
        return hashlib.sha256(f"{self.count} {self._digest}".encode()).hexdigest()

    def _check(self, index: int, given: Mapping[str, Array]) -> Sample | None:
        where = f"calibration sample {index}"
        for name in given:
            if name not in self._inputs:
                raise InputError(
                    f"{where}: the model has no input {name!r}; its inputs are "
                    f"{', '.join(map(repr, self._inputs))}.{did_you_mean(name, self._inputs)}"
                )
        sample = {}
        for name, value in self._inputs.items():
            if name not in given:
                raise InputError(f"{where}: input {name!r} is missing.")
            array = np.asarray(given[name])
            want = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
            if array.dtype != want:
                raise InputError(
                    f"{where}: input {name!r} is {array.dtype}, the model takes {want}; convert "
                    f"the data with .astype({str(want)!r}), preprocessed as the model expects."
                )
            if not _fits(array.shape, g.dims(value)):
                raise InputError(
                    f"{where}: input {name!r} has shape {list(array.shape)}, the model takes "
                    f"{value.shape}."
                )
            if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
                if self._skip_bad:
                    return None
                kind = "NaN" if np.isnan(array).any() else "Inf"
                raise InputError(
                    f"{where} (from 0): input {name!r} holds {kind}; repair the data or leave such "
                    "samples out with --skip-bad-samples."
                )
            sample[name] = np.ascontiguousarray(array)
        return sample


def _fits(shape: tuple[int, ...], want: tuple[int | None, ...] | None) -> bool:
    if want is None:
        return True
    same = len(shape) == len(want)
    return same and all(w is None or s == w for s, w in zip(shape, want, strict=True))


def _digest(sample: Sample) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(sample):
        digest.update(f"{name} {sample[name].dtype.str} {sample[name].shape} ".encode())
        digest.update(sample[name].tobytes())
    return digest.digest()


def open_samples(
    spec: Spec,
    model: ir.Model,
    *,
    seed: int = 0,
    limit: int | None = None,
    skip_bad: bool = False,
    images: ImageOptions | None = None,
) -> Samples:
    """Open calibration data.

    Args:
        spec: path of a .npy (one input) or .npz (arrays named as the inputs), or of a folder of
            them or of images; or "module:function", which returns an iterable of dicts (or of
            arrays, for one input), one a sample; or "random"; or arrays in memory.
        model: whose inputs the samples are for.
        seed: of random samples.
        limit: most samples to take.
        skip_bad: leave samples with NaN or Inf out instead of stopping.
        images: how to preprocess the images of a folder.

    Raises:
        InputError: the data cannot be opened.
    """
    images = images or ImageOptions()
    path = None if isinstance(spec, InMemory) else Path(spec)
    if path is not None and path.is_dir() and find_images(path):
        if _arrays_in(path):
            raise InputError(f"{path} holds both arrays and images; part them.")
        folder = ImageFolder(path, model, images)
        return Samples(lambda: iter(folder), model, limit=limit, skip_bad=skip_bad)
    if images.given():
        raise InputError(
            f"{', '.join(images.given())}: only for a folder of images, and the calibration data "
            "are none; arrays must be preprocessed already."
        )
    if spec == RANDOM:
        return Samples(_random(model, seed, limit or RANDOM_SAMPLES), model)
    if isinstance(spec, InMemory):
        held = spec

        def source() -> Iterator[Sample]:
            for item in held.items():
                yield from _rows(_named(item, model, IN_MEMORY), model, IN_MEMORY)

        return Samples(source, model, limit=limit, skip_bad=skip_bad)
    path = Path(spec)
    if path.is_dir():
        files = _arrays_in(path)
        if not files:
            raise InputError(
                f"{path}: the folder holds no .npy or .npz file and no image; give data of another "
                "kind, as WAV or CSV, through module:function."
            )
    elif path.exists():
        if path.suffix not in SUFFIXES:
            raise InputError(
                f"{path}: calibration data must be .npy, .npz or a folder of them or of images; "
                "give data of another kind through module:function."
            )
        files = [path]
    elif ":" in spec:
        return Samples(_from_function(spec, model), model, limit=limit, skip_bad=skip_bad)
    else:
        near = did_you_mean(path.name, (p.name for p in path.parent.glob("*"))) if path.name else ""
        raise InputError(f"{spec}: no such calibration data.{near}")
    return Samples(lambda: _from_files(files, model), model, limit=limit, skip_bad=skip_bad)


def _arrays_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in SUFFIXES)


def _random(model: ir.Model, seed: int, count: int) -> Callable[[], Iterator[Sample]]:
    def source() -> Iterator[Sample]:
        rng = np.random.default_rng(seed)
        for _ in range(count):
            sample = {}
            for value in model.graph.inputs:
                dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
                shape = [1 if d is None else d for d in g.dims(value) or ()]
                wide = rng.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)
                sample[g.name_of(value)] = wide.astype(dtype)
            yield sample

    return source


def _from_function(spec: str, model: ir.Model) -> Callable[[], Iterator[Sample]]:
    """Import module:function with the working directory on the path."""
    module_name, _, function_name = spec.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"--calib-data {spec}: {module_name} cannot be imported: {_what(error)}."
        ) from error
    finally:
        sys.path.pop(0)
    function = getattr(module, function_name, None)
    if not callable(function):
        near = did_you_mean(function_name, vars(module))
        raise InputError(f"--calib-data {spec}: {module_name} has no {function_name}().{near}")

    def source() -> Iterator[Sample]:
        try:
            items: Iterable[Any] = function()
            for item in items:
                yield from _rows(_named(item, model, spec), model, spec)
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(
                f"--calib-data {spec}: {function_name}() failed: {_what(error)}."
            ) from error

    return source


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")


def _named(item: Any, model: ir.Model, where: str) -> dict[str, Array]:
    """Return a dict of arrays; a bare array is the only input's."""
    if isinstance(item, Mapping):
        return {str(k): np.asarray(v) for k, v in item.items()}
    names = [g.name_of(v) for v in model.graph.inputs]
    if len(names) != 1:
        raise InputError(
            f"{where}: the model has {len(names)} inputs ({', '.join(map(repr, names))}); give one "
            "array for each, by name."
        )
    return {names[0]: np.asarray(item)}


def _from_files(files: list[Path], model: ir.Model) -> Iterator[Sample]:
    for path in files:
        if path.suffix == ".npz":
            yield from _rows(open_npz(path), model, str(path))
        else:
            yield from _rows(_named(open_npy(path), model, str(path)), model, str(path))


def _rows(arrays: Mapping[str, Array | ArrayFile], model: ir.Model, where: str) -> Iterator[Sample]:
    """Cut arrays along axis 0 into samples, as many rows each as the model's inputs take."""
    inputs = {g.name_of(v): g.dims(v) for v in model.graph.inputs}
    parts = {k: _cut(a, inputs.get(k), f"{where}: {k!r}") for k, a in arrays.items()}
    counts = {k: len(p) for k, p in parts.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"{where}: the arrays hold different numbers of samples: {counts}.")
    streams = {k: iter(p) for k, p in parts.items()}
    for _ in range(next(iter(counts.values()), 0)):
        yield {k: next(s) for k, s in streams.items()}


class _Cut:
    """The samples in one array."""

    def __init__(self, rows: Iterable[Array], count: int, join: int, whole: bool) -> None:
        self.rows, self.count, self.join, self.whole = rows, count, join, whole

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Array]:
        rows = iter(self.rows)
        for _ in range(self.count):
            taken = [next(rows) for _ in range(self.join)]
            yield taken[0] if self.whole else np.stack(taken)


def _cut(array: Array | ArrayFile, want: tuple[int | None, ...] | None, where: str) -> _Cut:
    """Say how an array falls into samples.

    A rank one above the input's: each row is a whole sample. The input's own rank: rows are joined
    into as many as the leading dimension takes. One below: the array is one sample without a batch.
    """
    size = len(want) if want is not None else array.ndim
    if array.ndim == size + 1:
        return _Cut(array, len(array), 1, whole=True)
    if array.ndim == size - 1 and want is not None and want[0] in (None, 1):
        return _Cut([np.asarray(array)], 1, 1, whole=False)
    if array.ndim != size or size == 0:
        return _Cut([np.asarray(array)], 1, 1, whole=True)  # the check of the sample will say it
    rows = (want[0] if want is not None else None) or 1
    if len(array) % rows:
        raise InputError(
            f"{where} has {len(array)} rows, and the model takes {rows} at a time; "
            f"give a multiple of {rows}."
        )
    return _Cut(array, len(array) // rows, rows, whole=False)
