"""A report and a comparison as text for a terminal: one line per case, aligned, nothing shortened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from braid.bench_driver.report.compare import ReportComparison
from braid.bench_driver.report.summary import CORES, DEPLOYMENT, EVENT_TIME, Ratio, ReportSummary, ratios, summarize
from braid.bench_driver.report.text import count, table

DASH = "-"


def render(document: Mapping[str, Any]) -> str:
    """Return the results, Braid's ratios to its peers, what is unsupported and what failed."""
    summaries = summarize(document["results"], document["failures"])
    parts = [_results(summaries)] if summaries else ["Nothing was measured."]
    comparable = [ratio for ratio in ratios(summaries) if ratio.throughput is not None]
    if comparable:
        parts.append("Braid's figures as multiples of the peers':\n" + _ratios(comparable))
    if document["unsupported"]:
        parts.append("Unsupported:\n" + "\n".join(f"  {line}" for line in unsupported_lines(document["unsupported"])))
    return "\n\n".join(parts)


def render_comparison(comparison: ReportComparison) -> str:
    """Return two reports side by side, first what makes them hard to compare."""
    rows = [["workload", "queries", "system", "", "before", "after", "after/before", ""]]
    for line in comparison.lines:
        case = line.case
        for figure in line.figures:
            before, after = amount(figure.before, figure.unit), amount(figure.after, figure.unit)
            start = (case.workload, count(case.queries), case.system, figure.name)
            rows.append([*start, before, after, times(figure.ratio), figure.verdict])
    parts = [f"before: {comparison.before}\nafter:  {comparison.after}"]
    if comparison.warnings:
        parts.append("\n".join(f"! {warning}" for warning in comparison.warnings))
    parts.append(table(rows, left=(0, 2, 3, 7)) if comparison.lines else "Neither report has a case with figures.")
    return "\n\n".join(parts)


def unsupported_lines(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per workload, system and reason, with all its numbers of queries."""
    counts_by_case: dict[tuple[str, str, str], list[int]] = {}
    for entry in entries:
        key = (entry["workload"], entry.get("system", "braid"), entry["reason"])
        counts_by_case.setdefault(key, []).extend([] if entry["queries"] is None else [entry["queries"]])
    lines = []
    for (workload, system, reason), queries in counts_by_case.items():
        with_queries = f" with {', '.join(count(n) for n in sorted(set(queries)))} queries" if queries else ""
        lines.append(f"{workload}{with_queries} on {system}: {reason}")
    return lines


def seconds(value: float | None) -> str:
    """Return seconds with three digits that count, a dash for None."""
    if value is None:
        return DASH
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"


def times(value: float | None) -> str:
    """Return a ratio such as `12 x` or `0.83 x`, a dash for None."""
    if value is None:
        return DASH
    return f"{value:,.0f} x" if value >= 10 else f"{value:.2f} x"


def amount(value: float | None, unit: str) -> str:
    """Return a figure in its unit, a dash for None."""
    return seconds(value) if unit == "s" else count(value)


def pair(summary: ReportSummary, kind: str) -> str:
    """Return p50 and p95 of a latency."""
    low, high = summary.quantile(kind, "p50"), summary.quantile(kind, "p95")
    return DASH if low is None else f"{seconds(low)} / {seconds(high)}"


def _results(summaries: Sequence[ReportSummary]) -> str:
    titles = ("tuples/s", "overall", "latency p50 / p95", "deployed p50 / p95", "cores", "note")
    rows = [["workload", "queries", "system", *titles]]
    for summary in summaries:
        case = summary.case
        overall = count(summary.figure("overall_tuples_per_second"))
        latency, deployment = pair(summary, EVENT_TIME), pair(summary, DEPLOYMENT)
        cores = summary.figure(CORES)
        cores_text = DASH if cores is None else f"{cores:.2f}"
        figures = (count(summary.throughput), overall, latency, deployment, cores_text)
        rows.append([case.workload, count(case.queries), case.system, *figures, one_line(summary.note)])
    return table(rows, left=(0, 2, 8))


def one_line(text: str, most: int = 100) -> str:
    """Return the beginning of a text as one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _ratios(peer_ratios: Sequence[Ratio]) -> str:
    rows = [["workload", "queries", "peer", "throughput", "latency p50", "deployment p50"]]
    for ratio in peer_ratios:
        case, figures = ratio.case, (ratio.throughput, ratio.latency, ratio.deployment)
        rows.append([case.workload, count(case.queries), case.system, *map(times, figures)])
    return table(rows, left=(0, 2))
