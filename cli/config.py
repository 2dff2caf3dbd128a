"""--config: a YAML file whose keys are the options of the command that reads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from midge.cli.recipe import read_recipe
from midge.core.errors import InputError

NOT_IN_CONFIG = {"config", "help", "debug"}


def keys(command: click.Command) -> dict[str, str]:
    """Return key -> parameter name of everything a config file may set, as the options spell it."""
    found: dict[str, str] = {}
    for parameter in command.params:
        if parameter.name is None or parameter.name in NOT_IN_CONFIG:
            continue
        if isinstance(parameter, click.Argument):
            found[parameter.name] = parameter.name
        for spelling in (*parameter.opts, *parameter.secondary_opts):
            if spelling.startswith("--"):
                found[spelling.removeprefix("--")] = parameter.name
    return found


def apply_config(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Take the defaults of a command from a file; what stands on the command line wins.

    Raises:
        InputError: the file, a key or a value is at fault.
    """
    if path is None or ctx.resilient_parsing:
        return
    known = keys(ctx.command)
    # A value that is a mapping (input shapes and values) has keys of the user's own.
    values = read_recipe(path, {**dict.fromkeys(known, True), "input-shape": {}})
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        name = known[key]
        defaults[name] = _flag(ctx.command, key, value, path) if isinstance(value, bool) else value
        if isinstance(value, Mapping):
            defaults[name] = [f"{k}={_text(v)}" for k, v in value.items()]
    ctx.default_map = {**defaults, **(ctx.default_map or {})}


def _text(value: Any) -> str:
    """Return what stands behind NAME= on the command line: numbers separated by commas."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _flag(command: click.Command, key: str, value: bool, path: Path) -> Any:
    """Return what a yes or no means for this spelling: `per-tensor: true` is per-channel false."""
    for parameter in command.params:
        if f"--{key}" in parameter.secondary_opts:
            return not value
        if f"--{key}" in parameter.opts and not getattr(parameter, "is_flag", False):
            raise InputError(f"{path}: {key!r} takes a value, not yes or no.")
    return value


def config_option(command: Any) -> Any:
    """Add --config to a command."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=apply_config,
        help="A YAML file with options of this command as keys.",
    )(command)
