"""The report as one page that needs nothing else: tables and inline SVG, for light and dark screens and for paper."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from braid.bench_driver.report import plots
from braid.bench_driver.report.document import Row, write_whole
from braid.bench_driver.report.summary import (
    DEPLOYMENT,
    EVENT_TIME,
    OURS,
    PROCESSING_TIME,
    QUANTILES,
    ReportSummary,
    by_workload,
    divide,
    summarize,
)
from braid.bench_driver.report.terminal import one_line, seconds, times, unsupported_lines
from braid.bench_driver.report.text import BUSY, count
from braid.bench_driver.systems.system import OWN_GENERATOR
from braid.bench_driver.workload import load_workload

FILE_NAME = "report.html"

LATENCY = plots.Course("latency", "event-time latency, s", column=1, upper=2, zero=False)
QUEUE = plots.Course("queue_length", "tuples in the queue")
PULLS = plots.Course("pull_interval", "seconds between pulls")
RATE = plots.Course("rate", "tuples/s offered")


@dataclass(frozen=True)
class Plot:
    """A plot with its heading and what must be known to read it."""

    title: str
    caption: str
    svg: Markup


@dataclass(frozen=True)
class HtmlLine:
    """A row of a result table; `ratio` is Braid's throughput over this system's."""

    queries: str
    system: str
    cells: tuple[str, ...]
    ratio: str
    rounds: int
    note: str
    ours: bool
    own_generator: bool


@dataclass(frozen=True)
class Section:
    """A workload: its table, its plots, and how the sustainable rates were found."""

    name: str
    about: str
    source: str
    lines: tuple[HtmlLine, ...]
    plots: tuple[Plot, ...]
    searches: tuple[tuple[str, str, str], ...]


def write_page(document: Mapping[str, Any], folder: Path) -> Path:
    """Write `report.html` into a folder, whole or not at all, and return its path."""
    path = folder / FILE_NAME
    write_whole(path, render_page(document))
    return path


def render_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report."""
    summaries = summarize(document["results"], document["failures"])
    points = plots.points_each(4 * len(summaries))
    machine = document["machine"]
    load = machine.get("load_before") or [0.0]
    return _template("report.html.j2").render(
        document=document,
        taken_at=_readable(document["taken_at"]),
        machine=_flat(machine),
        versions=_flat(document["versions"]),
        settings=_flat(document["settings"]),
        seeds=sorted({row["seed"] for row in document["results"]}),
        busy=load[0] > BUSY * (machine.get("cores") or 1),
        load=load[0],
        sections=[
            _section(name, workload_summaries, points) for name, workload_summaries in by_workload(summaries).items()
        ],
        systems=_settings_of_systems(document["results"]),
        unsupported=unsupported_lines(document["unsupported"]),
        failures=[{**entry, "short": one_line(entry["reason"], 200)} for entry in document["failures"]],
        quantiles=QUANTILES,
        quick=document["settings"].get("quick", False),
    )


def _template(name: str) -> Any:
    folder = files("braid.bench_driver.report") / "templates"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals["style"] = Markup((folder / "page.css").read_text(encoding="utf-8"))
    return environment.from_string((folder / name).read_text(encoding="utf-8"))


def _section(name: str, summaries: Sequence[ReportSummary], points: int) -> Section:
    try:
        workload = load_workload(name)
        about, source = workload.about, workload.source
    except ValueError:  # a report of a version that had other workloads
        about, source = "", ""
    return Section(
        name,
        about,
        source,
        tuple(_line(summary, summaries) for summary in sorted(summaries, key=lambda s: s.case.queries)),
        tuple(_plots(summaries, points)),
        tuple(_search(summary.middle_row) for summary in summaries if summary.middle_row),
    )


def _line(summary: ReportSummary, others: Sequence[ReportSummary]) -> HtmlLine:
    case = summary.case
    braid = next((s for s in others if s.case.system == OURS and s.case.queries == case.queries), None)
    ratio = divide(braid.throughput, summary.throughput) if braid is not None and braid is not summary else None
    cells = [count(summary.throughput), count(summary.figure("overall_tuples_per_second"))]
    cells += [seconds(summary.quantile(EVENT_TIME, name)) for name in QUANTILES]
    cells += [seconds(summary.quantile(PROCESSING_TIME, name)) for name in ("p50", "p95")]
    cells += [seconds(summary.quantile(DEPLOYMENT, name)) for name in ("p50", "p95")]
    note = "" if summary.note == OWN_GENERATOR else one_line(summary.note, 200)
    return HtmlLine(
        count(case.queries),
        case.system,
        tuple(cells),
        times(ratio) if braid is not summary else "",
        len(summary.rows),
        note,
        braid is summary,
        summary.own_generator,
    )


def _plots(summaries: Sequence[ReportSummary], points: int) -> list[Plot]:
    # with one query it is the throughput above
    counts = {summary.case.queries for summary in summaries if summary.rows}
    multi_query = [] if counts == {1} else summaries
    suffix = " against number of queries" if len(counts) > 1 else ""
    drawings = (
        (
            f"Throughput{suffix}",
            "The most tuples a second and stream that the system sustains without its queue growing on and on. The"
            " median of the rounds; whiskers span them.",
            plots.against_queries(
                summaries, "sustainable tuples/s", lambda summary: summary.figures("sustainable_tuples_per_second")
            ),
        ),
        (
            f"Overall throughput{suffix}",
            "The sum of the throughputs of all queries.",
            plots.against_queries(
                multi_query, "overall tuples/s", lambda summary: summary.figures("overall_tuples_per_second")
            ),
        ),
        (
            "Event-time latency over time",
            "The median of each moment's outputs, faintly above it their maximum, warm-up included; of the round that"
            " is nearest the median.",
            plots.over_time(summaries, LATENCY, points),
        ),
        (
            "Deployment latency",
            "From the request for a query to RUNNING as the client sees it: p50, and with open markers p95.",
            plots.against_queries(
                summaries,
                "deployment latency, s",
                lambda summary: summary.quantiles(DEPLOYMENT, "p50"),
                lambda summary: summary.quantiles(DEPLOYMENT, "p95"),
            ),
        ),
        (
            "Queue length over time",
            "Tuples generated and not yet pulled, in the same round: a system that works in batches makes teeth.",
            plots.over_time(summaries, QUEUE, points),
        ),
        (
            "Pull interval over time",
            "The longest time from one pull to the next in each second: what a micro-batch takes, seen at the queue.",
            plots.over_time(summaries, PULLS, points),
        ),
        (
            "Rate offered over time",
            "Shares of the rate that the system sustains.",
            plots.over_time(summaries, RATE, points) if any(map(_fluctuates, summaries)) else "",
        ),
    )
    # the SVG is our own drawing; its texts went through matplotlib, which escapes them
    return [Plot(title, caption, Markup(svg)) for title, caption, svg in drawings if svg]


def _fluctuates(summary: ReportSummary) -> bool:
    row = summary.middle_row
    return row is not None and len({point[1] for point in row["series"].get("rate", ())}) > 1


def _search(row: Row) -> tuple[str, str, str]:
    steps = " → ".join(
        f"{plots.short(step['rate'])} {'sustained' if step['sustained'] else 'not sustained'}" for step in row["steps"]
    )
    return count(row["queries"]), row["system"], steps or "-"


def _settings_of_systems(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return each system with the source of its tuples and its settings, each set of settings once."""
    sources: dict[tuple[str, str], str] = {}
    for row in rows:
        text = json.dumps(row["settings"], indent=1, ensure_ascii=False, sort_keys=True, default=str)
        sources.setdefault((row["system"], text), row["source"])
    return [(system, source, text) for (system, text), source in sources.items()]


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name.replace("_", " "), ", ".join(f"{v}" for v in value) if isinstance(value, list) else f"{value}")
        for name, value in values.items()
        if value is not None
    ]


def _readable(text: str) -> str:
    try:
        return dt.datetime.fromisoformat(text).strftime("%d %B %Y, %H:%M %Z")
    except ValueError:
        return text
