"""Options that several commands share, and the parameter types behind them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from midge.cli.config import config_option

TRUTHS = {"true": 1.0, "false": 0.0}
Command = TypeVar("Command", bound=Callable[..., Any])


def _parse_shapes(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Turn ("x=1,3,224,224", ...) into {"x": (1, 3, 224, 224), ...}."""
    shapes = {}
    for value in values:
        name, equals, text = value.rpartition("=")
        try:
            shape = tuple(int(part) for part in text.split(","))
        except ValueError:
            shape = ()
        if not (equals and name and shape and all(d >= 0 for d in shape)):
            raise click.BadParameter(f"{value!r} is not of the form NAME=1,3,224,224.")
        shapes[name] = shape
    return shapes


def _split_names(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Turn ("a,b", "c") into ("a", "b", "c")."""
    return tuple(name for value in values for part in value.split(",") if (name := part.strip()))


def names_option(option: str, what: str) -> Callable[[Command], Command]:
    """Add a repeatable option that takes names separated by commas, as one tuple."""
    return click.option(option, metavar="NAME,...", multiple=True, callback=_split_names, help=what)


def model_argument(command: Command) -> Command:
    """Add the positional MODEL; reading it reports a missing or broken file."""
    return click.argument("model", type=click.Path(path_type=Path))(command)


def output_option(what: str) -> Callable[[Command], Command]:
    """Add -o/--output, a path; `what` completes the sentence "Where to write ..."."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        required=True,
        help=f"Where to write {what}.",
    )


def input_shape_option(command: Command) -> Command:
    """Add --input-shape, repeatable, as a dict of shapes by name."""
    return click.option(
        "--input-shape",
        "input_shapes",
        metavar="NAME=D0,D1,...",
        multiple=True,
        callback=_parse_shapes,
        help="Bind an unknown dimension, e.g. --input-shape x=1,3,224,224. Repeatable.",
    )(command)


def _parse_values(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, float]:
    """Turn ("sr=16000", "flag=true") into {"sr": 16000.0, "flag": 1.0}."""
    numbers = {}
    for value in values:
        name, equals, text = value.rpartition("=")
        try:
            number = TRUTHS[text.lower()] if text.lower() in TRUTHS else float(text)
        except ValueError:
            number = math.nan
        if not (equals and name and math.isfinite(number)):
            raise click.BadParameter(f"{value!r} is not of the form NAME=16000.")
        numbers[name] = number
    return numbers


def input_value_option(command: Command) -> Command:
    """Add --input-value, repeatable, as a dict of numbers by name."""
    return click.option(
        "--input-value",
        "input_values",
        metavar="NAME=NUMBER",
        multiple=True,
        callback=_parse_values,
        help="Make an input a constant, e.g. --input-value sr=16000. Repeatable.",
    )(command)


def drop_softmax_option(command: Command) -> Command:
    """Add --drop-softmax."""
    return click.option(
        "--drop-softmax",
        is_flag=True,
        help="Remove a Softmax, LogSoftmax or Sigmoid that only ArgMax or TopK's indices read.",
    )(command)


def calibration_options(command: Command) -> Command:
    """Add --calib-data and --random-calib."""
    command = click.option(
        "--random-calib",
        is_flag=True,
        help="Calibrate on random numbers: for a dry run, never for a real model.",
    )(command)
    return click.option(
        "--calib-data",
        metavar="DATA",
        help="A .npy or .npz file, a folder of them or of images, or module:function.",
    )(command)


class WholeNumber(click.IntRange):
    """An integer within limits; the message for anything else calls it what people do."""

    name = "whole number"


def samples_option(default: int | None, what: str) -> Callable[[Command], Command]:
    """Add --samples, a positive number."""
    return click.option(
        "--samples",
        type=WholeNumber(min=1),
        default=default,
        show_default=default is not None,
        help=what,
    )


def seed_option(command: Command) -> Command:
    """Add --seed, a non-negative number."""
    return click.option(
        "--seed",
        type=WholeNumber(min=0),
        default=0,
        show_default=True,
        help="Seed of everything random.",
    )(command)


def common_options(command: Command) -> Command:
    """Add --config, --json, --quiet and --debug, which every command has."""
    command = config_option(command)
    command = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    )(command)
    command = click.option("-q", "--quiet", is_flag=True, help="No progress, no notices.")(command)
    return click.option(
        "--json", "as_json", is_flag=True, help="Write the result as JSON on stdout."
    )(command)
