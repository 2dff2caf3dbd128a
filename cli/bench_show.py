"""The tables of midge bench."""

from collections.abc import Sequence

from midge.cli.bench import Race
from midge.cli.console import Console, short
from midge.cli.report_html import microseconds
from midge.convert.bench_callgrind import Instructions
from midge.convert.bench_host import CPU
from midge.convert.bench_layers import Layer

FAR = 0.05  # of the range: whoever differs more computes something else
UNKNOWN = ""


def show_race(console: Console, title: str, race: Race, threads: int) -> None:
    """Write the times of all contenders, and whoever answers something else."""
    rows = [
        (
            label,
            microseconds(row.timing.median_us),
            f"{microseconds(row.timing.p10_us)} to {microseconds(row.timing.p90_us)}",
            UNKNOWN if row.ratio is None else f"{row.ratio:.2f}",
            UNKNOWN if row.difference is None else f"{row.difference:.2%}",
            row.version,
        )
        for label, row in race.rows.items()
    ]
    how = f"{threads} threads" if threads > 1 else "one thread"
    clock = ", CPU time" if race.clock == CPU else ""
    columns = ("engine", ">median, us", ">p10 to p90, us", ">x fastest peer", ">differs", "version")
    console.table(columns, rows, title=f"{title}, {how}, batch 1{clock}")
    if race.clock == CPU:
        console.text("The machine was busy: CPU time of all engines, not time by the wall clock.")
    console.text(f"load {race.load[0]:.1f} before, {race.load[1]:.1f} after")
    console.text("differs: by how much from the executor at most, in terms of the output's range")
    for label, row in race.rows.items():
        if row.difference is not None and row.difference > FAR:
            console.notice(f"{label} answers something else: its time proves nothing.")
    for line in race.notices:
        console.notice(line)


def show_layers(console: Console, title: str, layers: Sequence[Layer], memory: str) -> None:
    """Write the time of every step and the sum."""
    rows = [
        (
            short(layer.name),
            layer.kernel.removeprefix("midge_"),
            f"{layer.macs:,}",
            f"{layer.median_us:,.2f}",
            f"{layer.min_us:,.2f}",
            f"{layer.share:.1%}",
            UNKNOWN if layer.gmacs is None else f"{layer.gmacs:.1f}",
            UNKNOWN if layer.peak_share is None else f"{layer.peak_share:.0%}",
        )
        for layer in layers
    ]
    macs = f"{sum(layer.macs for layer in layers):,}"
    sums = [sum(layer.median_us for layer in layers), sum(layer.min_us for layer in layers)]
    rows.append(("all", "", macs, f"{sums[0]:,.2f}", f"{sums[1]:,.2f}", "", "", ""))
    columns = (
        "step",
        "kernel",
        ">MACs",
        ">median, us",
        ">min, us",
        ">share",
        ">GMAC/s",
        ">of peak",
    )
    console.table(columns, rows, title=f"{title}, step by step")
    console.text(memory)


def show_instructions(console: Console, counts: Instructions) -> None:
    """Write the instructions of one inference."""
    rows = [
        (kernel, f"{count:,}", f"{count / counts.total:.1%}")
        for kernel, count in counts.kernels.items()
    ]
    rows.append(("midge_run and all below", f"{counts.total:,}", ""))
    title = f"instructions of one inference ({counts.version})"
    console.table(("kernel", ">instructions", ">share"), rows, title=title)
