"""The report's plots as SVG text to stand inside a page: no colours and fonts of their own, but the page's.

matplotlib draws with placeholder colours, which become CSS variables (`--ink`, `--grid`, `--series-1` …), so that one
drawing serves light and dark pages.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from braid.bench_driver.report.document import thin
from braid.bench_driver.report.summary import ReportSummary, systems_of

INK, GRID = "#010101", "#020202"
# a light and a dark page need other shades of a hue; which, the page's style says
SERIES = tuple(f"#0302{number:02d}" for number in range(1, 9))
VARIABLES = {INK: "var(--ink)", GRID: "var(--grid)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)
}
# what stands in a page of its own, or twice in one of several drawings; a hundredth of a point is enough
_CUTS = (
    (r"<\?xml.*?(?=<svg)|<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", ""),
    (r' xmlns(:xlink)?="[^"]*"', ""),
    (r"xlink:href", "href"),
    (r'<g id="[^"]*"', "<g"),
    (r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px"),
    (r"font-size: 9\.5px; |( font-family: [^;\"]*;)", ""),
    (r"(\.\d\d)\d+", r"\1"),
)
Figures = Callable[[ReportSummary], list[float]]

WIDTH = 9.2
PANEL_HEIGHT = 2.3
# text and data of all time series of a page: beyond this many points each gets fewer
POINT_BUDGET = 40_000
# what a logarithmic axis spans at least, as a factor
MIN_SPAN = 10.0
_MIN_POINTS, _MAX_POINTS = 16, 160

_RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "braid",
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.ymargin": 0.08,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "path.simplify": True,
}


@dataclass(frozen=True)
class Look:
    """How a system is drawn: told apart by marker and dashes as well as by colour."""

    colour: str
    marker: str
    dashes: Any = "-"
    width: float = 1.6


_LOOKS = {
    "braid": Look(SERIES[0], "o", width=2.6),
    "spark-queries": Look(SERIES[1], "s"),
    "spark-queries-own": Look(SERIES[1], "s", "--"),
    "spark-fused": Look(SERIES[2], "^"),
    "spark-fused-own": Look(SERIES[2], "^", "--"),
    "flink-jobs": Look(SERIES[3], "D"),
    "flink-statement-set": Look(SERIES[4], "v"),
}
_OTHERS = tuple(Look(colour, marker) for colour, marker in zip(SERIES[5:], "PX*", strict=True))


@dataclass(frozen=True)
class Course:
    """A time series to draw: which of a row's `series`, its columns (1 is the first after the time), and in words."""

    series: str
    label: str
    column: int = 1
    upper: int | None = None
    zero: bool = True


def against_queries(
    summaries: Sequence[ReportSummary], label: str, figures: Figures, upper: Figures | None = None
) -> str:
    """Return a figure against the number of queries, both logarithmic; a bar per system when there is one number only.

    Whiskers span the rounds. `upper`, the p95, is a second figure above it, dotted, with open markers.
    """
    drawn = [s for s in summaries if any(value > 0 for value in figures(s))]
    if len({s.case.queries for s in drawn}) == 1:
        return _one_panel(lambda axes: _bars(axes, drawn, label, figures, upper), [], 0.9 + 0.34 * len(drawn))

    def draw(axes: Axes) -> None:
        _lines(axes, drawn, figures)
        if upper is not None:
            _lines(axes, drawn, upper, faint=True)
        axes.set_ylabel(label)

    return _one_panel(draw, drawn, 3.4) if drawn else ""


def over_time(summaries: Sequence[ReportSummary], course: Course, points: int) -> str:
    """Return a panel for each number of queries with the course of a series in each system's middle round.

    `upper` is drawn faintly above `column`.
    """
    counts = sorted({s.case.queries for s in summaries if _points(s, course)})
    if not counts:
        return ""
    systems = systems_of(summaries)
    columns = min(2, len(counts))
    rows = -(-len(counts) // columns)
    with mpl.rc_context(_RC):
        figure = Figure(figsize=(WIDTH, PANEL_HEIGHT * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for position, axes in enumerate(panels.flat):
            if position >= len(counts):
                axes.set_visible(False)
                continue
            number = counts[position]
            for summary in (s for s in summaries if s.case.queries == number):
                _draw_course(axes, summary, course, systems, points)
            axes.set_title(f"{number:,} {'query' if number == 1 else 'queries'}")
            if position + columns >= len(counts):
                axes.set_xlabel("seconds since the step began")
            _log_if_wide(axes) if not course.zero else axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(FuncFormatter(short))
        figure.supylabel(course.label, fontsize=9.5)
        _legend(figure, [s for s in summaries if _points(s, course)], systems)
        return _svg(figure, f"{course.series} over time")


def points_each(series: int) -> int:
    """Return how many points each of so many time series of a page may have."""
    return max(_MIN_POINTS, min(_MAX_POINTS, POINT_BUDGET // max(1, series)))


def look_of(system: str, systems: Sequence[str]) -> Look:
    """Return how a system is drawn; one without a look of its own gets what is left, by its place among `systems`."""
    if system in _LOOKS:
        return _LOOKS[system]
    unknown = [name for name in systems if name not in _LOOKS]
    return _OTHERS[unknown.index(system) % len(_OTHERS)]


def short(value: float, _position: object = None) -> str:
    """Return a number for an axis: 1.5 M, 20 k, 0.25."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{name}"
    return f"{value:.4g}"


def short3(value: float) -> str:
    """Return a number with three digits that count, for a label beside a bar."""
    return short(float(f"{value:.3g}"))


def _one_panel(draw: Callable[[Axes], None], summaries: Sequence[ReportSummary], height: float) -> str:
    with mpl.rc_context(_RC):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        if not axes.lines and not axes.patches:
            return ""
        if summaries:  # bars have names instead
            axes.yaxis.set_major_formatter(FuncFormatter(short))
            _legend(figure, summaries, systems_of(summaries))
        return _svg(figure, str(axes.get_ylabel() or axes.get_xlabel()))


def _bars(axes: Axes, summaries: Sequence[ReportSummary], label: str, figures: Figures, upper: Figures | None) -> None:
    systems = systems_of(summaries)
    greatest = 0.0
    for place, summary in enumerate(summaries):
        values = figures(summary)
        middle, look = median(values), look_of(summary.case.system, systems)
        whiskers = [[middle - min(values)], [max(values) - middle]]
        axes.barh(place, middle, height=0.62, color=look.colour, hatch="///" if look.dashes != "-" else None)
        if len(values) > 1:
            axes.errorbar(middle, place, xerr=whiskers, color=INK, capsize=3, elinewidth=1, linestyle="none")
        upper_value = median(upper(summary)) if upper is not None else None
        annotation = short3(middle)
        if upper_value is not None:
            axes.plot([upper_value], [place], color=INK, marker="o", markerfacecolor="none", linestyle="none")
            annotation += f", p95 {short3(upper_value)}"
        farthest = max(upper_value or 0.0, *values)
        greatest = max(greatest, farthest)
        axes.annotate(annotation, (farthest, place), xytext=(7, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(summaries)), [s.case.system for s in summaries])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(right=1.15 * greatest)
    axes.xaxis.set_major_formatter(FuncFormatter(short))
    axes.set_xlabel(label)


def _lines(axes: Axes, summaries: Sequence[ReportSummary], figures: Figures, faint: bool = False) -> None:
    systems = systems_of(summaries)
    for system in systems:
        system_summaries = sorted((s for s in summaries if s.case.system == system), key=lambda s: s.case.queries)
        points = [(s.case.queries, values) for s in system_summaries if (values := [v for v in figures(s) if v > 0])]
        if not points:
            continue
        look = look_of(system, systems)
        xs, middles = [x for x, _ in points], [median(v) for _, v in points]
        whiskers = [
            [m - min(v) for m, (_, v) in zip(middles, points, strict=True)],
            [max(v) - m for m, (_, v) in zip(middles, points, strict=True)],
        ]
        axes.errorbar(
            xs,
            middles,
            yerr=whiskers,
            color=look.colour,
            marker=look.marker,
            linestyle=":" if faint else look.dashes,
            linewidth=1.2 if faint else look.width,
            markerfacecolor="none" if faint else look.colour,
            capsize=3,
            elinewidth=1,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    counts = sorted({s.case.queries for s in summaries})
    axes.set_xticks(counts, [f"{n:,}" for n in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(counts[0] / 1.5, counts[-1] * 1.5)
    axes.set_xlabel("queries")
    _log_ticks(axes)


def _draw_course(axes: Axes, summary: ReportSummary, course: Course, systems: Sequence[str], points: int) -> None:
    course_points = _points(summary, course)
    if not course_points:
        return
    thinned = thin(course_points, points, course.series)
    look = look_of(summary.case.system, systems)
    xs = [point[0] for point in thinned]
    style: dict[str, Any] = {"color": look.colour, "linestyle": look.dashes}
    axes.plot(xs, [_or_gap(point[course.column]) for point in thinned], linewidth=min(2.0, look.width), **style)
    if course.upper is not None and course.upper < len(thinned[0]):
        upper = [_or_gap(point[course.upper]) for point in thinned]
        axes.plot(xs, upper, linewidth=0.8, alpha=0.4, **style)


def _points(summary: ReportSummary, course: Course) -> list[list[float]]:
    row = summary.middle_row
    return row["series"].get(course.series, []) if row is not None else []


def _or_gap(value: float | None) -> float:
    return float("nan") if value is None else value


def _log_if_wide(axes: Axes) -> None:
    values = [v for line in axes.lines for v in np.asarray(line.get_ydata(), dtype=float) if v > 0]
    if values and max(values) / min(values) > 30:
        axes.set_yscale("log")
        _log_ticks(axes)
    else:
        axes.set_ylim(bottom=0)


def _log_ticks(axes: Axes) -> None:
    low, high = axes.get_ylim()
    if high / low < MIN_SPAN:  # a small difference must look small, and two ticks be there
        factor = math.sqrt(MIN_SPAN * low / high)
        axes.set_ylim(low / factor, high * factor)
    # where there are few powers of ten, a tick at each would be too few to read a value
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())


def _legend(figure: Figure, summaries: Sequence[ReportSummary], systems: Sequence[str]) -> None:
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dashes, linewidth=look.width, label=name)
        for name in systems_of(summaries)
        for look in (look_of(name, systems),)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, borderaxespad=0.2, handlelength=2.4)


def _svg(figure: Figure, label: str) -> str:
    """Return the figure as an SVG element in the page's colours, with a name for those who do not see it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    for pattern, replacement in _CUTS:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r'(<use [^>]*?) style="fill: var\(--grid\)[^"]*"', r"\1", text)  # a tick's line has it already
    return re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{label}"', text, count=1)
