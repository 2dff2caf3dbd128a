"""SVG scatter charts with labelled axes; colours come from the page's style sheet."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product

LEFT, RIGHT, TOP, BOTTOM = 64, 20, 18, 52  # margins of the plot, pixels
CHAR_WIDTH, LINE_HEIGHT = 6.3, 14  # pixels of a 11.5 px sans-serif label, on the wide side
RADIUS = 6
MIN_LOG_SPAN = 4.0  # a narrower range of x reads better on a linear axis


@dataclass(frozen=True, slots=True)
class Point:
    """One marker.

    Args:
        x: in the unit of the axis.
        y: in the unit of the axis.
        label: written beside the marker.
        series: style-sheet class that gives the colour: "s0", "s1", ...
        shape: "circle", "square", "triangle", "diamond" or "wedge".
        hollow: drawn as an outline, for a value that is not the whole truth.
    """

    x: float
    y: float
    label: str
    series: str
    shape: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values to pixels.

    Args:
        title: with its unit.
        ticks: values that get a line and a label.
        label: turns a tick into text.
        low: value at the start pixel.
        high: value at the end pixel.
        log: logarithmic.
    """

    title: str
    ticks: tuple[float, ...]
    label: Callable[[float], str]
    low: float
    high: float
    log: bool

    def at(self, value: float, start: float, end: float) -> float:
        """Return the pixel of `value` between `start` and `end`."""
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = math.log(low), math.log(high), math.log(v)
        return start + (v - low) / (high - low) * (end - start)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Say whether both share a point."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def contains(self, other: "Box") -> bool:
        """Say whether `other` lies inside."""
        return (
            self.left <= other.left
            and self.top <= other.top
            and other.right <= self.right
            and other.bottom <= self.bottom
        )


def linear_axis(title: str, values: Sequence[float], label: Callable[[float], str]) -> Axis:
    """Return an axis with 3 to 7 round ticks and a margin around the values."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.15 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    while (high - low) / step > 7:
        step *= 2 if round(step / 10 ** math.floor(math.log10(step))) in (1, 5) else 2.5
    first = math.ceil(low / step)
    ticks = tuple(i * step for i in range(first, math.floor(high / step) + 1))
    return Axis(title, ticks, label, low, high, False)


def positive_axis(title: str, values: Sequence[float], label: Callable[[float], str]) -> Axis:
    """Return an axis for positive values: logarithmic when they span much, else from 0."""
    low, high = min(values), max(values)
    if high / low < MIN_LOG_SPAN:
        axis = linear_axis(title, (0.0, high * 1.15), label)
        ticks = tuple(t for t in axis.ticks if 0 <= t <= high * 1.25)
        return Axis(title, ticks, label, 0.0, high * 1.25, False)
    low, high = low / 1.8, high * 1.8
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    ticks = tuple(s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high)
    return Axis(title, ticks, label, low, high, True)


def scatter(
    points: Sequence[Point], x: Axis, y: Axis, size: tuple[int, int], description: str
) -> str:
    """Return an SVG element with the points, both axes and a label beside each point.

    Args:
        points: markers, all inside both axes.
        x: horizontal axis.
        y: vertical axis.
        size: width and height in pixels.
        description: for readers who do not see the picture.
    """
    width, height = size
    plot = Box(LEFT, TOP, width - RIGHT, height - BOTTOM)
    places = [(x.at(p.x, plot.left, plot.right), y.at(p.y, plot.bottom, plot.top)) for p in points]
    taken = [Box(px - RADIUS, py - RADIUS, px + RADIUS, py + RADIUS) for px, py in places]
    marks = [_marker(p, *at) for p, at in zip(points, places, strict=True)]
    room = Box(plot.left, 0, width, plot.bottom)
    for point, (px, py) in zip(points, places, strict=True):
        marks.append(_label(point.label, px, py, taken, room))
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" class="chart">'
        f"<title>{escape(description)}</title>"
        f"{_frame(x, y, plot, height)}{''.join(marks)}</svg>"
    )


def marker_sample(series: str, shape: str) -> str:
    """Return a small SVG of one marker, for a legend."""
    mark = _marker(Point(0, 0, "", series, shape), 8, 8)
    return f'<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{mark}</svg>'


def _frame(x: Axis, y: Axis, plot: Box, height: int) -> str:
    parts = []
    for tick in x.ticks:
        at = x.at(tick, plot.left, plot.right)
        parts.append(f'<path class="grid" d="M{at:.1f} {plot.top}V{plot.bottom}"/>')
        parts.append(_text(at, plot.bottom + 17, x.label(tick), "middle"))
    for tick in y.ticks:
        at = y.at(tick, plot.bottom, plot.top)
        parts.append(f'<path class="grid" d="M{plot.left} {at:.1f}H{plot.right}"/>')
        parts.append(_text(plot.left - 8, at + 4, y.label(tick), "end"))
    parts.append(f'<path class="axis" d="M{plot.left} {plot.top}V{plot.bottom}H{plot.right}"/>')
    parts.append(_text((plot.left + plot.right) / 2, height - 10, x.title, "middle", "title"))
    parts.append(
        f'<text class="title" text-anchor="middle" transform="translate(15 '
        f'{(plot.top + plot.bottom) / 2:.1f}) rotate(-90)">{escape(y.title)}</text>'
    )
    return "".join(parts)


def _marker(point: Point, px: float, py: float) -> str:
    kind = f"mark {point.series}{' hollow' if point.hollow else ''}"
    r = RADIUS
    if point.shape == "square":
        return f'<rect class="{kind}" x="{px - r + 1:.1f}" y="{py - r + 1:.1f}" ' + (
            f'width="{2 * r - 2}" height="{2 * r - 2}"/>'
        )
    if point.shape == "diamond":
        return f'<path class="{kind}" d="M{px:.1f} {py - r:.1f}l{r} {r}l{-r} {r}l{-r} {-r}z"/>'
    if point.shape == "triangle":
        return f'<path class="{kind}" d="M{px:.1f} {py - r:.1f}l{r} {2 * r - 1}h{-2 * r}z"/>'
    if point.shape == "wedge":
        return f'<path class="{kind}" d="M{px:.1f} {py + r:.1f}l{-r} {1 - 2 * r}h{2 * r}z"/>'
    return f'<circle class="{kind}" cx="{px:.1f}" cy="{py:.1f}" r="{r - 0.5}"/>'


def _label(text: str, px: float, py: float, taken: list[Box], room: Box) -> str:
    """Return the label at the first free place around the point; add its box to `taken`."""
    width = len(text) * CHAR_WIDTH
    gap = RADIUS + 5
    for distance in range(0, 130, 7):
        for right, dy in product((True, False), (-distance, distance)):
            start = px + gap if right else px - gap - width
            middle = py + dy
            box = Box(start, middle - LINE_HEIGHT / 2, start + width, middle + LINE_HEIGHT / 2)
            if not room.contains(box) or any(box.overlaps(other) for other in taken):
                continue
            taken.append(box)
            at, anchor = (box.left, "start") if right else (box.right, "end")
            line = f'<path class="leader" d="M{px:.1f} {py:.1f}L{at:.1f} {middle:.1f}"/>'
            leader = line if distance > LINE_HEIGHT else ""
            return leader + _text(at, middle + 4, text, anchor, "label")
    return ""  # the table below the chart still names it


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )
