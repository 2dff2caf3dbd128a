"""The report as one self-contained HTML page: template, style sheet and charts in one file."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from midge.cli.report import Report, Variant
from midge.cli.report_chart import Axis, Point, linear_axis, marker_sample, positive_axis, scatter

LARGE, SMALL = (700, 500), (370, 242)  # pixels; text has the same size in both
SHAPES = ("circle", "square", "triangle", "diamond", "wedge")
NOTHING = "\N{EN DASH}"
TIMES = " \N{MULTIPLICATION SIGN} "


def render(report: Report) -> str:
    """Return the page. It refers to nothing outside itself and needs no script."""
    template = Template(_resource("report.html"))
    return template.substitute(
        style=_resource("report.css"),
        title=escape(report.title),
        metric=escape(report.metric),
        created=escape(report.created),
        verdict=_verdict(report),
        figures=_figures(report),
        charts=_charts(report),
        variants=_variants(report),
        footnote=_footnote(report),
        layers=_layers(report),
        coverage=_coverage(report),
        notices=_notices(report),
        facts=_facts(report),
        command=escape(report.command),
    )


def _resource(name: str) -> str:
    return (files("midge.cli") / name).read_text(encoding="utf-8")


def _verdict(report: Report) -> str:
    compared = [v for v in report.variants if v.elements]
    if not compared:
        return '<p class="verdict">No output was compared bit for bit.</p>'
    elements = sum(v.elements or 0 for v in compared)
    wrong = sum(v.mismatches or 0 for v in compared)
    names = escape("; ".join(v.name for v in compared))
    kind, say = ("bad", f"{wrong:,} of") if wrong else ("good", "0 of")
    return (
        f'<p class="verdict {kind}"><strong>{say} {elements:,}</strong> output elements differ '
        f"from the integer executor. Compared: {names}.</p>"
    )


def _figures(report: Report) -> str:
    """Return the key figures of the last C variant, each against the first variant."""
    shipped = next((v for v in reversed(report.variants) if v.engine == "C"), None)
    if shipped is None:
        return ""
    base = report.variants[0]
    rivals = [v for v in report.variants if v.latency and v.model == base.model]
    alike = [v for v in rivals if v.engine == shipped.engine] or rivals
    timed = min(alike, key=lambda v: v.latency.median_us if v.latency else 0.0, default=None)
    cards = []
    if shipped.accuracy is not None:
        note = ""
        if base.accuracy is not None:
            points = 100 * (shipped.accuracy - base.accuracy)
            note = f"{points:+.2f} points against {base.model}".replace("-", "\N{MINUS SIGN}")
        cards.append((f"{100 * shipped.accuracy:.2f} %", "accuracy", note))
    if shipped.latency:
        note = ""
        if timed and timed.latency:
            ratio = timed.latency.median_us / shipped.latency.median_us
            times = f"{ratio:.2f} times as fast" if ratio >= 1 else f"{1 / ratio:.2f} times as long"
            note = f"{times} as {timed.name}"
        cards.append((f"{microseconds(shipped.latency.median_us)} µs", "per inference", note))
    if shipped.flash_bytes is not None:
        note = _share(shipped.flash_bytes, base.model, [v.flash_bytes for v in rivals])
        cards.append((f"{shipped.flash_bytes:,} B", "flash", shipped.flash_note or note))
    if shipped.ram_bytes is not None:
        note = _share(shipped.ram_bytes, base.model, [v.ram_bytes for v in rivals])
        cards.append((f"{shipped.ram_bytes:,} B", "RAM: arena and worst stack", note))
    inner = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><p>{escape(note)}</p></div>"
        for value, name, note in cards
    )
    return f'<dl class="figures">{inner}</dl><p class="quiet">{escape(shipped.name)}</p>'


def _share(value: int, model: str, others: Sequence[int | None]) -> str:
    """Return how a size compares with the smallest that the float model needs in C."""
    known = [other for other in others if other]
    return f"{100 * value / min(known):.0f} % of {model}, C" if known else ""


def _charts(report: Report) -> str:
    drawn = [
        _chart(report, "microseconds per inference", _median_us, LARGE),
        _chart(report, "RAM, bytes", lambda v: v.ram_bytes, SMALL),
        _chart(report, "flash, bytes", lambda v: v.flash_bytes, SMALL),
    ]
    drawn = [chart for chart in drawn if chart]
    if not drawn:
        return ""
    legend = "".join(
        f"<li>{marker_sample(f's{i}', 'circle')} {escape(model)}</li>"
        for i, model in enumerate(_models(report))
        if any(v.model == model and _drawn(v) for v in report.variants)
    ) + "".join(
        f"<li>{marker_sample('plain', SHAPES[i % len(SHAPES)])} {escape(engine)}</li>"
        for i, engine in enumerate(_engines(report))
    )
    return f'<ul class="legend">{legend}</ul><div class="charts">{"".join(drawn)}</div>'


def _chart(
    report: Report,
    title: str,
    value: Callable[[Variant], float | None],
    size: tuple[int, int],
) -> str:
    shown = [v for v in report.variants if v.accuracy is not None and value(v)]
    if not shown:
        return ""
    models, engines = _models(report), _engines(report)
    points = [
        Point(
            x=value(v) or 0.0,
            y=100 * (v.accuracy or 0.0),
            label=v.name,
            series=f"s{models.index(v.model)}",
            shape=SHAPES[engines.index(v.engine) % len(SHAPES)],
            hollow=title.startswith("flash") and bool(v.flash_note),
        )
        for v in shown
    ]
    x = positive_axis(title, [p.x for p in points], lambda t: f"{t:,.6g}")
    y = _accuracy_axis(report)
    what = f"Accuracy in percent against {title}: " + "; ".join(
        f"{p.label}: {p.y:.2f} % at {p.x:,.6g}" for p in points
    )
    return f"<figure>{scatter(points, x, y, size, what)}</figure>"


def _accuracy_axis(report: Report) -> Axis:
    values = [100 * v.accuracy for v in report.variants if v.accuracy is not None]
    return linear_axis("accuracy, %", values, lambda t: f"{t:.1f}")


def _median_us(variant: Variant) -> float | None:
    return variant.latency.median_us if variant.latency else None


def _models(report: Report) -> list[str]:
    return list(dict.fromkeys(v.model for v in report.variants))


def _engines(report: Report) -> list[str]:
    return list(dict.fromkeys(v.engine for v in report.variants if _drawn(v)))


def _drawn(variant: Variant) -> bool:
    """Say whether any chart can show it."""
    return bool(variant.latency or variant.ram_bytes or variant.flash_bytes)


def _variants(report: Report) -> str:
    columns = (
        "model",
        "engine",
        ">accuracy",
        ">95 % interval",
        ">median µs",
        ">p10 to p90",
        ">flash, B",
        ">RAM, B",
        ">differing elements",
    )
    return _table(columns, (_variant_row(v) for v in report.variants))


def _footnote(report: Report) -> str:
    notes = dict.fromkeys(v.flash_note for v in report.variants if v.flash_note)
    return escape(f" * {'; '.join(notes)}." if notes else "")


def _variant_row(v: Variant) -> tuple[str, ...]:
    interval = v.interval
    flash = NOTHING if v.flash_bytes is None else f"{v.flash_bytes:,}"
    return (
        escape(v.model),
        escape(v.engine),
        NOTHING if v.accuracy is None else f"{100 * v.accuracy:.2f} %",
        f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}" if interval else NOTHING,
        microseconds(v.latency.median_us) if v.latency else NOTHING,
        f"{microseconds(v.latency.p10_us)} to {microseconds(v.latency.p90_us)}"
        if v.latency
        else NOTHING,
        f"{flash} *" if v.flash_note else flash,
        NOTHING if v.ram_bytes is None else f"{v.ram_bytes:,}",
        NOTHING if v.elements is None else f"{v.mismatches or 0:,} of {v.elements:,}",
    )


def _layers(report: Report) -> str:
    if not report.layers:
        return ""
    most = max(layer.macs for layer in report.layers) or 1
    rows = (
        (
            f"<code>{escape(layer.name)}</code>",
            escape(layer.kind),
            TIMES.join(map(str, layer.shape)),
            _bar(layer.macs, most),
            f"{layer.weight_bytes:,}" if layer.weight_bytes else NOTHING,
            NOTHING if layer.sqnr_db is None else f"{layer.sqnr_db:.1f}",
        )
        for layer in report.layers
    )
    columns = ("node", "operator", "output shape", ">MACs", ">weights, B", ">SQNR, dB")
    total = sum(layer.macs for layer in report.layers)
    weights = sum(layer.weight_bytes for layer in report.layers)
    foot = ("", "", "total", f"{total:,}", f"{weights:,}", "")
    note = "SQNR: signal to quantization noise of the layer's output against the float network."
    table = _table(columns, rows, foot)
    return f'<h2>Layers</h2>{table}<p class="quiet">{note}</p>'


def _bar(value: int, most: int) -> str:
    if not value:
        return NOTHING
    return f'<span class="bar" style="--share:{value / most:.3f}">{value:,}</span>'


def _coverage(report: Report) -> str:
    if not report.coverage:
        return ""
    counts = Counter(node.state for node in report.coverage)
    summary = ", ".join(f"{n} {state}" for state, n in counts.items())
    rows = (
        (
            f"<code>{escape(n.node)}</code>",
            escape(n.op_type),
            f'<span class="state {escape(n.state)}">{escape(n.state)}</span>',
            escape(n.reason),
        )
        for n in report.coverage
    )
    table = _table(("node", "operator", "state", "reason"), rows)
    return (
        f"<h2>Coverage</h2><p>What became of each of the {len(report.coverage)} nodes of the "
        f"float model: {escape(summary)}.</p>{table}"
    )


def _notices(report: Report) -> str:
    if not report.notices:
        return ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in report.notices)
    return f"<h2>Notices</h2><ul>{lines}</ul>"


def _facts(report: Report) -> str:
    rows = [*report.facts.items(), ("machine", report.machine)]
    rows.append(("versions", ", ".join(f"{k} {v}" for k, v in report.versions.items())))
    return "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows if v)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], foot: Sequence[str] = ()) -> str:
    """Return a table of ready HTML cells; a column named `>name` is right-aligned."""
    kinds = ["num" if name.startswith(">") else "" for name in columns]

    def row(cells: Sequence[str], tag: str) -> str:
        pairs = zip(cells, kinds, strict=True)
        return "".join(f'<{tag} class="{kind}">{cell}</{tag}>' for cell, kind in pairs)

    head = row([escape(name.removeprefix(">")) for name in columns], "th")
    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    tail = f"<tfoot><tr>{row(foot, 'td')}</tr></tfoot>" if foot else ""
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        f"{tail}</table></div>"
    )


def microseconds(value: float) -> str:
    """Return microseconds with one decimal, whole above a thousand."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"
