"""What was measured, as a table to read and as JSON to keep. Pure: nothing here measures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]

# a load above this share of the cores, before anything is measured, spoils the figures
BUSY = 0.25


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Return rows as aligned text; the first is the header, the columns not in `left` are right-aligned."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def seconds(value: float | None) -> str:
    """Return seconds with unit, a dash for None."""
    return "-" if value is None else f"{value:.2f} s"


def count(value: float | None) -> str:
    """Return a whole number with separators, a dash for None."""
    return "-" if value is None else f"{value:,.0f}"


def render(report: Report) -> str:
    """Return the whole report as text; what was not measured is left out."""
    machine, versions = report["machine"], report["versions"]
    load = ", ".join(f"{value:g}" for value in machine["load_before"])
    parts = [
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']};"
        f" load before {load}",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items() if version),
    ]
    if machine["load_before"][0] > BUSY * machine["cores"]:
        parts.append("The machine was busy with something else before this began: the figures are too low.")
    if report.get("start"):
        start = report["start"]
        each = ", ".join(f"{value:.1f}" for value in start["seconds"])
        parts.append(f"Start to ready: median {seconds(start['median_seconds'])} of {each}")
    if report.get("deployment"):
        parts.append(_deployment(report["deployment"]))
    if report.get("load"):
        parts.append(_load(report["load"]))
    if report.get("peer"):
        parts.append(_peer(report["peer"]))
    parts += [f"FAILED {failure['scenario']}: {failure['error']}" for failure in report.get("failures", ())]
    return "\n\n".join(parts)


def _deployment(measured: Mapping[str, Any]) -> str:
    rows = [
        ["Queries posted one by one, no tuples", "p50", "p95"],
        ["POST until RUNNING", seconds(measured["posted_p50"]), seconds(measured["posted_p95"])],
        ["deployment latency as reported", seconds(measured["reported_p50"]), seconds(measured["reported_p95"])],
    ]
    batches = (
        f"{measured['posts']} posts; {measured['batches']} empty batches in that time:"
        f" median {seconds(measured['batch_median'])}, mean {seconds(measured['batch_mean'])}"
    )
    return f"{table(rows)}\n{batches}"


def _load(measured: Sequence[Mapping[str, Any]]) -> str:
    header = ["queries", "offered/s", "tuples/s", "keeps up", "lag grows by", "lag p50", "max"]
    header += ["latency p50", "p95", "max", "rows/s", "batch", "deployed in", "memory"]
    rows = [header]
    for m in measured:
        growth = m["lag_growth"]
        rows.append(
            [
                count(m["queries"]) + (f" ({m['failed_queries']} FAILED)" if m["failed_queries"] else ""),
                count(m["offered_per_second"]),
                count(m["tuples_per_second"]),
                "yes" if m["keeps_up"] else "NO",
                "-" if growth is None else f"{growth:+.3f} s/s",
                seconds(m["lag_p50"]),
                seconds(m["lag_max"]),
                seconds(m["latency_p50"]),
                seconds(m["latency_p95"]),
                seconds(m["latency_max"]),
                count(m["rows_per_second"]),
                seconds(m["batch_mean"]),
                seconds(m["deployed_in"]),
                f"{m['memory_gib']:.1f} GiB",
            ]
        )
    read = ", ".join(f"{count(m['rows_read'])} rows of {m['readers']} of {m['queries']}" for m in measured)
    notes = (
        "SUM(price) by user_id in windows of 1 s; latency: arrival of a row at a long-polling reader less the end of"
        f" its window.\nRead by long poll: {read}; rows/s counts the rows of all queries."
    )
    return f"{table(rows)}\n{notes}"


def _peer(measured: Mapping[str, Any]) -> str:
    rows = [["tuples/s sustained at most", "queries", "median", "each run"]]
    for entry in measured["entries"]:
        each = ", ".join(count(run["tuples_per_second"]) for run in entry["runs"])
        rows.append([entry["engine"], count(entry["queries"]), count(entry["median"]), each])
    return f"{table(rows)}\n{measured['settings']}"
