"""midge train: a recipe to a trained and a quantized ONNX file."""

from pathlib import Path

import click

from midge.cli.console import Console
from midge.cli.options import WholeNumber, common_options
from midge.cli.train import find_recipe, load_train_recipe, run_training
from midge.core.errors import CheckError


@click.command("train")
@click.argument("recipe")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for the models and checkpoints; a stopped run goes on from there.",
)
@click.option("--seed", type=WholeNumber(min=0), help="Replaces the recipe's seed.")
@common_options
def command(recipe: str, output: Path, seed: int | None, as_json: bool, quiet: bool) -> None:
    """Train a network in float, tune it in integers, and write both as ONNX.

    RECIPE is a YAML file, or the name of a recipe that ships with midge. Data sets are read from
    the folder that MIDGE_DATA names.
    """
    console = Console(as_json, quiet)
    report = run_training(load_train_recipe(find_recipe(recipe), seed), output, console)
    form = ".5f" if report.agreement is None else ".2%"
    agreement = "" if report.agreement is None else f", agreement {report.agreement:.2%}"
    console.table(
        ["model", f">{report.metric}"],
        [
            ["float32", f"{report.float_score:{form}}"],
            ["int8, quantized after training", f"{report.static_score:{form}}"],
            ["int8, tuned, as C", f"{report.qat_score:{form}}"],
        ],
        title=f"{report.data}, {report.n} test samples{agreement}",
    )
    console.text(
        f"{report.mismatches} of {report.elements} output elements differ between training and C"
    )
    console.text(f"Wrote {', '.join(report.files)}")
    console.result(report.to_json())
    if report.mismatches:
        raise CheckError(f"{output}: the C differs from the network that was trained.")
