"""Writes docs/x86.md from what x86.py measured."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from midge.convert.bench_peers import ENGINES

Facts = dict[str, Any]
KB = 1024
VNNI = "vnni"
QUIET = 1.0  # load average up to which two cores have room for two threads
FAR = 0.05  # of the range: such an answer is another one

INTRODUCTION = """# Speed and size on x86-64

`python tests/bench/x86.py --output docs/x86.md` measures everything on this page and writes it;
nothing here is typed by hand. `midge bench MODEL --peers` does the same for one model, `--layers`
shows its steps and `--instructions` counts instructions.
"""

METHOD = """
## How it is measured

Batch 1. Every engine is a process of its own, blocked on a pipe while the others run. Chunks of
25 ms go round robin and another engine begins each round; a chunk is timed in bursts of 0.3 ms, and
the figures are the median, the 10th and the 90th percentile of all bursts. Ratios are only taken
inside one run. Where an engine was interrupted in most of its bursts, all engines of that run are
compared by CPU time, which the table says.

The timed call is the engine's own run on inputs that are in place, by its cheapest entry from
Python; `one Relu`, of twelve numbers, shows what that entry costs. The C also copies its input in
before every run, because a run may lay its results over it. OpenVINO computes with one stream, and
float32 as float32. ONNX Runtime and OpenVINO run as they are installed.

`differs` is the largest difference of an output from midge's executor, in terms of the range of
that output. The codes of the C must be equal, or the script fails. Inputs are random over the whole
range of codes. Without VNNI, ONNX Runtime and OpenVINO add products of two neighbours in 16 bits,
which saturates: that is fast, and it is where they differ by some percent; LiteRT and the C do not.

KWS, VWW and IC are the files of MLPerf Tiny, as .tflite for LiteRT. AD is quantized by midge;
LiteRT runs the same scales and weights and also the official file, which has others. MobileNetV2
(1.0 at 224 x 224, 0.3 at 80 x 80) and ResNet-18 are exported from PyTorch with seeded weights and
quantized by midge; their .tflite files, and those of KWS and AD in float32, hold the same numbers.
`all channels` is VWW with the channels that midge leaves out because they change no bit; the other
engines compute them.

`arena` is all RAM of a run but the stack: inputs, outputs, intermediate results, scratch. `flash`
is code of all instruction sets, records and weights of the build that is timed. `constants` are
weights, biases, multipliers and records, padding included, divided by the bytes of the weights, of
the biases and of 4 for each output channel.
"""


def page(facts: Facts) -> str:
    """Return the text of the page."""
    return "\n".join([INTRODUCTION.rstrip(), "", *_body(facts), METHOD.rstrip()]) + "\n"


def _body(facts: Facts) -> Iterator[str]:
    yield (
        f"Run of {datetime.date.today().isoformat()}: {facts['machine']}; "
        f"C: {facts['compiler']}; "
        + ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
        + f". {facts['chunks']} chunks of each engine; loads are those of the minute before."
    )
    yield ""
    if not any(VNNI in level for level in facts["peaks"]):
        yield (
            "**This processor has no VNNI.** The tables compare AVX2 with AVX2: they say nothing "
            "about processors with AVX512 or AVX-VNNI. `docs/vnni.md` counts instructions on an "
            "emulated one."
        )
        yield ""
    shown = "; ".join(f"{name} {rate:.0f}" for name, rate in facts["peaks"].items())
    yield f"Most multiply-accumulates of one core, 1e9 a second: {shown}."
    yield ""
    yield "## In short"
    yield ""
    yield "Time of the C's best instruction set, built for speed, in terms of others in one run:"
    yield "the ratio of the medians, in brackets of the 10th percentiles, those of a calm machine."
    yield ""
    yield from _summary(facts["results"])
    for result in facts["results"]:
        yield ""
        yield from _race(result)


def _summary(results: Sequence[Facts]) -> Iterator[str]:
    ratios = " | ".join(f"x {name}" for name in ENGINES)
    yield (
        f"| network | C, us | {ratios} | threads speed up | arena: speed / size, KB | flash, KB "
        "| constants |"
    )
    yield "|---" + "|--:" * (len(ENGINES) + 5) + "|"
    for result in results:
        for title, build, timing, speed_up in _shown(result):
            against = " | ".join(_against(result, name, timing) for name in ENGINES)
            small = result["builds"].get("size") if build is result["builds"]["speed"] else None
            arenas = " / ".join(kb(b["arena"]) for b in (build, small) if b)
            constants = (build["const"] + build["records"]) / (build["ideal"] or 1)
            shown = f"{constants:.3f}" if build["ideal"] else ""
            yield (
                f"| {title} | {microseconds(timing['median_us'])} | {against} "
                f"| {number(speed_up)} | {arenas} | {kb(build['flash'])} | {shown} |"
            )


def _shown(result: Facts) -> Iterator[tuple[str, Facts, Facts, float | None]]:
    """Yield (title, build, timing, speed-up by threads) of the best instruction set of the C."""
    timings, builds = result["race"]["timings"], result["builds"]
    for special in (name for name in builds if name != "size"):
        labels = [label for label in timings if result["build_of"].get(label) == special]
        title = _title(result) if special == "speed" else f"{_title(result)}, {special}"
        many = [timings[label] for label in labels if "threads" in label]
        one = timings[labels[0]]
        if many:
            yield title, builds[special], many[0], one["median_us"] / many[0]["median_us"]
        else:
            yield title, builds[special], one, None


def _against(result: Facts, engine: str, own: Facts) -> str:
    """Return a time in terms of an engine's, or nothing where it did not run."""
    many = f", {result['threads']} threads" if result["threads"] > 1 else ""
    timing = result["race"]["timings"].get(engine + many)
    if timing is None:
        return ""
    median, low = (own[key] / timing[key] for key in ("median_us", "p10_us"))
    return f"{median:.2f} ({low:.2f})"


def _title(result: Facts) -> str:
    threads = f", {result['threads']} threads" if result["threads"] > 1 else ""
    return f"{result['name']}, {result['kind']}{threads}"


def _race(result: Facts) -> Iterator[str]:
    race = result["race"]
    load = " to ".join(f"{value:.1f}" for value in race["load"])
    yield f"## {_title(result)}"
    yield ""
    clock = "time by the wall clock" if race["clock"] == "wall" else "CPU time"
    yield f"{result['macs']:,} multiply-accumulates; {clock}; load {load}."
    yield ""
    yield (
        "| engine | us, median (p10 to p90) | x fastest peer | 1e9 MAC/s "
        "| arena, KB | flash, KB | differs |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for label, timing in race["timings"].items():
        build = result["builds"].get(result["build_of"].get(label, ""))
        memory = f"{kb(build['arena'])} | {kb(build['flash'])}" if build else " | "
        differs = timing["difference"]
        mark = "" if differs is None else f"{differs:.2%}"
        if differs is not None and differs > FAR:
            mark = f"**{mark}**"
        low, high = microseconds(timing["p10_us"]), microseconds(timing["p90_us"])
        yield (
            f"| {label} | {microseconds(timing['median_us'])} ({low} to {high}) "
            f"| {number(timing['ratio'])} | {result['macs'] / timing['median_us'] / 1e3:.1f} "
            f"| {memory} | {mark} |"
        )
    if result["threads"] > 1 and max(race["load"]) > QUIET:
        yield ""
        yield "**The machine was busy:** what several threads take says nothing here."
    for line in race["notices"]:
        yield ""
        yield line


def kb(count: int) -> str:
    """Return bytes in units of 1024."""
    return f"{count / KB:,.1f}"


def microseconds(value: float) -> str:
    """Return microseconds with as many digits as they are worth."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def number(value: float | None) -> str:
    """Return a ratio, or nothing where there is none."""
    return "" if value is None else f"{value:.2f}"
