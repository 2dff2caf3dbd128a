"""--mean, --std, --scale, --layout and --resize: what a folder of images needs."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import click

from midge.convert.images import LAYOUTS, ImageOptions

Command = TypeVar("Command", bound=Callable[..., Any])
OPTIONS = ("mean", "std", "scale", "layout", "resize")


def _numbers(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Turn "0.5,1/255", or a list in a config file, into a tuple of floats."""
    if value is None:
        return None
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    try:
        return tuple(float(Fraction(str(part).strip())) for part in parts)
    except (ValueError, OverflowError, ZeroDivisionError):
        text = f"{value!r} is not of the form 0.5 or 0.485,0.456,0.406."
        raise click.BadParameter(text, ctx, parameter) from None


def _number(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Turn "1/255" into a float."""
    numbers = _numbers(ctx, parameter, value)
    if numbers is not None and len(numbers) != 1:
        raise click.BadParameter(f"{value!r} must be one number, as 1/255.", ctx, parameter)
    return numbers and numbers[0]


def image_options(command: Command) -> Command:
    """Add the options; the command receives one argument for each of OPTIONS."""
    for option in reversed(
        [
            click.option(
                "--mean",
                type=click.UNPROCESSED,
                callback=_numbers,
                metavar="M,...",
                help="Of a folder of images: input = (pixel * scale - mean) / std, pixels are "
                "0 to 255; one value, or one per channel.",
            ),
            click.option(
                "--std",
                type=click.UNPROCESSED,
                callback=_numbers,
                metavar="S,...",
                help="See --mean.",
            ),
            click.option(
                "--scale",
                type=click.UNPROCESSED,
                callback=_number,
                metavar="X",
                help="See --mean; often 1/255.",
            ),
            click.option("--layout", type=click.Choice(LAYOUTS), help="Of the input for images."),
            click.option(
                "--resize", is_flag=True, help="Resize images to the model's size (bilinear)."
            ),
        ]
    ):
        command = option(command)
    return command


def take_images(options: dict[str, Any]) -> ImageOptions:
    """Take what `image_options` added out of the arguments of a command."""
    return ImageOptions(**{name: options.pop(name) for name in OPTIONS})
