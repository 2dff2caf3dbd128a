"""The click group. Commands load on first use, so that `midge --help` imports nothing heavy."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from midge.cli import errors

# command -> its line in the help; module midge.cli.cmd_<command> defines function `command`
COMMANDS = {
    "demo": "The whole road on real handwriting, from training to C.",
    "train": "A recipe's network, trained in float and tuned in integers.",
    "init": "Write a commented recipe for a model.",
    "convert": "Fold constants and batch norms: ONNX to canonical ONNX.",
    "quantize": "Float ONNX to INT8 ONNX, from calibration data.",
    "compile": "ONNX to a self-contained folder of C.",
    "verify": "Prove that ONNX Runtime, the executor and C give equal bits.",
    "bench": "Time the C on this machine beside other engines.",
    "report": "Accuracy against latency, RAM and flash: one HTML page.",
    "inspect": "Layers, shapes, MACs, parameters and coverage of a model.",
    "doctor": "What this machine can do: compilers, emulators, GPU.",
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the road, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"midge.cli.cmd_{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest names."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from midge.core.errors import did_you_mean  # imports NumPy: too slow for the help

            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list from the table, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from midge import __version__

        click.echo(f"midge {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def group() -> None:
    """Put a neural network on a small device: what you evaluate is what you ship."""


def run(arguments: Sequence[str], **extra: Any) -> int:
    """Run one command line and return its exit status; `extra` goes to click."""
    return errors.run(
        lambda: group.main(list(arguments), prog_name="midge", standalone_mode=False, **extra),
        arguments,
    )


def main() -> None:
    """Run the console script."""
    sys.exit(run(sys.argv[1:]))
