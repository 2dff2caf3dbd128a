"""midge inspect: what is in a model, and what `midge quantize` would make of it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from midge.cli.console import Console, short
from midge.cli.options import common_options, input_shape_option
from midge.convert.onnx_in import notices, read_model
from midge.convert.operators import operator_table
from midge.convert.summary import ModelSummary, NodeSummary, TensorSummary, summarize


@click.command("inspect")
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--ops", is_flag=True, help="Show what midge does with each operator; no MODEL.")
@input_shape_option
@common_options
def command(
    model: Path | None,
    ops: bool,
    input_shapes: dict[str, tuple[int, ...]],
    as_json: bool,
    quiet: bool,
) -> None:
    """Show the layers, shapes, multiply-accumulates, parameters and coverage of a model.

    MODEL is any .onnx file. Of a float file the last columns say what `midge quantize` would make
    of each node, of a quantized one what each node is.
    """
    console = Console(as_json, quiet)
    if ops:
        if model is not None:
            raise click.UsageError("--ops takes no MODEL.")
        _show_operators(console)
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    with console.working(f"Reading {model}"):
        graph = read_model(model, input_shapes, dynamic=True)
        summary = summarize(graph)
    for line in notices(graph):
        console.notice(line)
    _show(console, model, summary)
    console.result(
        {
            "model": str(model),
            **asdict(summary),
            "macs": summary.macs,
            "parameters": summary.parameters,
        }
    )


def _show_operators(console: Console) -> None:
    rows = operator_table()
    console.table(
        ("operator", "gradient", "8 bit", "C int8", "C float32"),
        [
            (
                row.op_type,
                "yes" if row.gradient else "",
                row.quantized or f"no: {row.reason}",
                "refused" if row.refused else row.int8,
                "refused" if row.refused else row.float32,
            )
            for row in rows
        ],
    )
    console.result({"operators": [asdict(row) for row in rows]})


def _show(console: Console, model: Path, summary: ModelSummary) -> None:
    kind = "quantized" if summary.quantized else "float"
    console.text(f"{model}: {kind}, opset {summary.opset}")
    console.text(f"  inputs   {_tensors(summary.inputs)}")
    console.text(f"  outputs  {_tensors(summary.outputs)}")
    columns = ["node", "operator", "output shape", ">MACs", ">parameters", "becomes", "because"]
    if summary.quantized:
        columns[-2:] = ["is", ">range"]
    console.table(columns, map(_row, summary.nodes))
    console.text(f"{summary.macs:,} multiply-accumulates, {summary.parameters:,} parameters")


def _row(node: NodeSummary) -> Sequence[str]:
    last = f"{node.range[0]:.4g} to {node.range[1]:.4g}" if node.range else short(node.reason, 60)
    return (
        short(node.name),
        node.op_type,
        _shape(node.shape),
        f"{node.macs:,}" if node.macs else "",
        f"{node.parameters:,}" if node.parameters else "",
        node.fate,
        last,
    )


def _tensors(tensors: Iterable[TensorSummary]) -> str:
    return ", ".join(f"{t.name} {t.dtype}[{_shape(t.shape)}]" for t in tensors)


def _shape(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if d is None else str(d) for d in shape)
