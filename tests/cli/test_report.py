"""The report page: complete, self-contained, readable without its picture."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from midge.cli.report import Latency, Layer, Node, Report, Variant, from_json, write_report
from midge.cli.report_chart import Axis, Point, linear_axis, positive_axis, scatter
from midge.core.errors import InputError

VOID = {"meta", "link", "br", "img", "rect", "circle", "path", "hr", "input"}


class Outline(HTMLParser):
    """Checks that elements nest, and collects tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture
def report() -> Report:
    """Four variants of a small network, one of them wrong in two elements."""
    return Report(
        title="digits <8 & 8>",
        metric="accuracy on 360 test images",
        variants=(
            Variant("float32", "midge core", 355, 360),
            Variant(
                "float32",
                "ONNX Runtime",
                355,
                360,
                Latency(14.2, 13.9, 15.1),
                flash_bytes=29_000,
                flash_note="weights only",
            ),
            Variant("QAT int8", "ONNX Runtime", 354, 360, Latency(19.0, 18.2, 21.0), 3600, 2),
            Variant("QAT int8", "C", 354, 360, Latency(9.0, 8.9, 9.9), 3600, 0, 4310, 15_321),
        ),
        layers=(
            Layer("stem", "Conv", (1, 16, 8, 8), 9216, 208, 38.25),
            Layer("s", "Softmax", (1, 10), 0),
        ),
        coverage=(Node("stem", "Conv", "quantized", "per channel"), Node("bn", "BN", "folded", "")),
        notices=("stem: the weight scale of channel 3 was raised",),
        facts={"seed": "0"},
        command="midge demo -o out",
        machine="a CPU, 2 cores",
        versions={"midge": "0.1.0"},
        created="2026-01-01 00:00 UTC",
    )


def parsed(page: Path) -> Outline:
    """Parse a page and check that every element is closed."""
    outline = Outline()
    outline.feed(page.read_text(encoding="utf-8"))
    assert outline.open == []
    return outline


def test_the_page_is_well_formed_and_refers_to_nothing_outside(
    report: Report, tmp_path: Path
) -> None:
    page, _ = write_report(report, tmp_path / "new" / "report")
    outline = parsed(page)
    assert outline.links == []
    assert not {"script", "link", "img", "iframe"} & set(outline.tags)
    assert not re.search(r"url\(|@import|https?:", page.read_text(encoding="utf-8"))


def test_the_page_says_everything_that_the_report_holds(report: Report, tmp_path: Path) -> None:
    text = " ".join(parsed(write_report(report, tmp_path)[0]).words)
    for part in (
        "digits <8 & 8>",
        "2 of 7,200",
        "98.33 %",
        "15,321",
        "4,310",
        "weights only",
        "1 × 16 × 8 × 8",  # noqa: RUF001
        "38.2",
        "per channel",
        "channel 3 was raised",
        "midge demo -o out",
        "a CPU, 2 cores",
        "midge 0.1.0",
    ):
        assert part in text, part


def test_there_is_a_chart_for_latency_ram_and_flash(report: Report, tmp_path: Path) -> None:
    outline = parsed(write_report(report, tmp_path)[0])
    assert outline.tags.count("figure") == 3
    text = " ".join(outline.words)
    assert "microseconds per inference" in text
    assert "RAM, bytes" in text
    assert "flash, bytes" in text


def test_a_report_without_measurements_still_renders(tmp_path: Path) -> None:
    bare = Report("m", "nothing judged", (Variant("int8", "C"),))
    text = " ".join(parsed(write_report(bare, tmp_path)[0]).words)
    assert "No output was compared" in text


def test_the_json_holds_the_same_report(report: Report, tmp_path: Path) -> None:
    data = json.loads(write_report(report, tmp_path)[1].read_text(encoding="utf-8"))
    assert from_json(data) == report


@pytest.mark.parametrize("broken", [{"schema": 99}, {"schema": 1, "title": "t"}])
def test_a_foreign_json_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"report\.json"):
        from_json(broken)


def test_the_interval_widens_as_samples_get_fewer() -> None:
    few, many = Variant("m", "e", 9, 10).interval, Variant("m", "e", 900, 1000).interval
    assert few is not None
    assert many is not None
    assert few[0] < many[0] < 0.9 < many[1] < few[1]


def test_the_interval_stays_inside_0_and_1() -> None:
    all_right, all_wrong = Variant("m", "e", 10, 10).interval, Variant("m", "e", 0, 10).interval
    assert all_right == pytest.approx((0.7224672, 1.0))
    assert all_wrong == pytest.approx((0.0, 0.2775328))


@pytest.mark.parametrize("values", [(97.2, 98.1), (50.0, 50.0), (0.0, 100.0), (99.9, 100.0)])
def test_a_linear_axis_has_a_few_round_ticks_around_the_values(values: tuple[float, ...]) -> None:
    axis = linear_axis("accuracy", values, str)
    assert 3 <= len(axis.ticks) <= 7
    assert axis.low < min(values) <= max(values) < axis.high
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)


@pytest.mark.parametrize(
    ("values", "log"), [((10.0, 20.0), False), ((10.0, 200.0), True), ((5.0, 5e6), True)]
)
def test_a_positive_axis_is_logarithmic_only_over_a_wide_span(
    values: tuple[float, ...], log: bool
) -> None:
    axis = positive_axis("us", values, str)
    assert axis.log is log
    assert len(axis.ticks) >= 2
    assert all(axis.low <= v <= axis.high for v in (*values, *axis.ticks))


def test_labels_of_close_points_do_not_overlap() -> None:
    points = [Point(10 + i / 100, 90 + i / 100, f"variant {i}", "s0", "circle") for i in range(6)]
    x = Axis("x", (0.0, 20.0), str, 0.0, 20.0, False)
    y = Axis("y", (80.0, 100.0), str, 80.0, 100.0, False)
    svg = scatter(points, x, y, (700, 500), "six points")
    places = re.findall(r'class="label" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"', svg)
    assert len(places) == 6
    assert len({(round(float(py) / 10), anchor) for _, py, anchor in places}) == 6


def test_the_time_of_the_c_is_compared_with_that_of_the_float_c_not_with_another_engine(
    tmp_path: Path,
) -> None:
    engines = ("midge core", "ONNX Runtime", "C", "C, avx2", "simulation in midge core")
    float32 = [
        Variant("float32", engine, 1, 2, Latency(us, us, us))
        for engine, us in zip(engines, (90.0, 5.0, 40.0, 2.0, 95.0), strict=True)
    ]
    int8 = [Variant("int8", e, 1, 2, Latency(20.0, 20.0, 20.0)) for e in ("C", "C, avx2")]
    written = write_report(Report("m", "t", (*float32, *int8)), tmp_path)[0]
    text = written.read_text(encoding="utf-8")
    assert "2.00 times as fast as float32, C<" in text
    legend = text[text.index('class="legend"') : text.index('class="charts"')]
    marks = re.findall(r"<(?:rect|circle|path) [^>]*/>", legend)[-len(engines) :]
    assert len(set(marks)) == len(engines)  # every engine has a mark of its own
