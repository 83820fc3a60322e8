"""Rows of several rounds become one line each: medians over the rounds, and ratios of Braid to its peers. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import Any

from braid.bench_driver.report.document import Row
from braid.bench_driver.systems.system import OWN_GENERATOR

OURS = "braid"
QUANTILES = ("p50", "p95", "p99", "max")
EVENT_TIME = "event_time_latency_seconds"
CORES = "processor_cores"
PROCESSING_TIME = "processing_time_latency_seconds"
DEPLOYMENT = "deployment_latency_seconds"
# a search goes in steps, so less than this share is never a change, whatever the rounds say
MIN_CHANGE = 0.05

# two-sided 95 % quantiles of Student's t by degrees of freedom; beyond the last, its value
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True)
class Case:
    """What is measured: a workload with a number of queries by a system."""

    workload: str
    queries: int
    system: str


@dataclass(frozen=True)
class ReportSummary:
    """One case's rounds: `rows` with a figure, `errors` of those without."""

    case: Case
    rows: tuple[Row, ...]
    errors: tuple[str, ...] = ()

    @property
    def throughput(self) -> float | None:
        """Median sustainable tuples a second."""
        return self.figure("sustainable_tuples_per_second")

    @property
    def sustained(self) -> bool:
        """Whether every round found a rate that the system sustained."""
        return bool(self.rows) and all(row["sustained"] for row in self.rows)

    def figure(self, key: str) -> float | None:
        """Return the median over the rounds, None when no round has it."""
        values = self.figures(key)
        return median(values) if values else None

    def figures(self, key: str) -> list[float]:
        """Return a figure of each round that has it."""
        return [row[key] for row in self.rows if row.get(key) is not None]

    def quantile(self, kind: str, name: str) -> float | None:
        """Return the median over the rounds of a quantile of a latency, in seconds; None when there is none."""
        values = self.quantiles(kind, name)
        return median(values) if values else None

    def quantiles(self, kind: str, name: str) -> list[float]:
        """Return a quantile of a latency of each round that has it."""
        return [row[kind][name] for row in self.rows if row[kind] is not None]

    @property
    def middle_row(self) -> Row | None:
        """The round whose throughput is nearest the median: the one whose course is drawn."""
        middle = self.throughput
        if middle is None:
            return self.rows[-1] if self.rows else None
        return min(self.rows, key=lambda row: abs((row["sustainable_tuples_per_second"] or 0) - middle))

    @property
    def own_generator(self) -> bool:
        """Whether the system made up its tuples itself, which favours it."""
        return any(row["source"] == OWN_GENERATOR for row in self.rows)

    @property
    def note(self) -> str:
        """What must be known beside the figures; empty when there is nothing."""
        notes = []
        if self.errors and self.rows:
            notes.append(f"failed in {len(self.errors)} of {len(self.errors) + len(self.rows)} rounds")
        notes += self.errors[:1]
        if self.rows and not self.sustained:
            missing = [step["missing"] for row in self.rows for step in row["steps"] if step.get("missing")]
            notes.append(f"not sustained ({missing[0]})" if missing else "not sustained")
        notes += [row["not_measured"] for row in self.rows if row.get("not_measured")][:1]
        notes += ["own generator"] if self.own_generator else []
        return "; ".join(notes)


def summarize(rows: Iterable[Row], failures: Iterable[Mapping[str, Any]] = ()) -> list[ReportSummary]:
    """Return one summary for each case, failures make cases too.

    Ordered by workload, number of queries and system; workloads and systems in the order in which they first appear.
    """
    rows_by_case: dict[Case, list[Row]] = {}
    # a round that failed may have both a row and an entry among the failures
    errors: dict[Case, dict[Any, str]] = {}
    for row in rows:
        case = Case(row["workload"], row["queries"], row["system"])
        rows_by_case.setdefault(case, [])
        if row["error"] is None:
            rows_by_case[case].append(row)
        else:
            errors.setdefault(case, {})[row.get("round")] = row["error"]
    for failure in failures:
        case = Case(failure["workload"], failure["queries"], failure["system"])
        rows_by_case.setdefault(case, [])
        errors.setdefault(case, {}).setdefault(failure.get("round"), failure["reason"])
    workloads = list(dict.fromkeys(case.workload for case in rows_by_case))
    systems = list(dict.fromkeys(case.system for case in rows_by_case))
    cases = sorted(rows_by_case, key=lambda c: (workloads.index(c.workload), c.queries, systems.index(c.system)))
    return [ReportSummary(case, tuple(rows_by_case[case]), tuple(errors.get(case, {}).values())) for case in cases]


@dataclass(frozen=True)
class Ratio:
    """How many times Braid's figure is the peer's; None where either has none."""

    case: Case
    throughput: float | None
    latency: float | None
    deployment: float | None


def ratios(summaries: Sequence[ReportSummary]) -> list[Ratio]:
    """Return Braid's figures over each peer's, for the cases that both were measured in or tried."""
    braid_by_case = {(s.case.workload, s.case.queries): s for s in summaries if s.case.system == OURS}
    quotients = []
    for peer in summaries:
        braid = braid_by_case.get((peer.case.workload, peer.case.queries))
        if peer.case.system == OURS or braid is None:
            continue
        quotients.append(
            Ratio(
                peer.case,
                divide(braid.throughput, peer.throughput),
                divide(braid.quantile(EVENT_TIME, "p50"), peer.quantile(EVENT_TIME, "p50")),
                divide(braid.quantile(DEPLOYMENT, "p50"), peer.quantile(DEPLOYMENT, "p50")),
            )
        )
    return quotients


def divide(above: float | None, below: float | None) -> float | None:
    """Return a quotient, None when either is missing or the divisor is zero."""
    return None if above is None or not below else above / below


def is_change(before: Sequence[float], after: Sequence[float]) -> bool | None:
    """Say whether two sets of rounds differ beyond noise; None when there are too few rounds to say.

    Welch's t-test at 95 % on the logarithms (figures differ by factors), and at least `MIN_CHANGE`.
    """
    if len(before) < 2 or len(after) < 2 or min(*before, *after) <= 0:
        return None
    logs_before, logs_after = [math.log(v) for v in before], [math.log(v) for v in after]
    difference = abs(fmean(logs_after) - fmean(logs_before))
    if difference < math.log(1 + MIN_CHANGE):
        return False
    parts = (variance(logs_before) / len(logs_before), variance(logs_after) / len(logs_after))
    total = sum(parts)
    if total < 1e-18:
        return True
    freedom = total**2 / (parts[0] ** 2 / (len(logs_before) - 1) + parts[1] ** 2 / (len(logs_after) - 1))
    return difference / math.sqrt(total) > _T[min(len(_T), max(1, math.floor(freedom))) - 1]


def systems_of(items: Iterable[ReportSummary]) -> list[str]:
    """Return the systems in the order in which they first appear."""
    return list(dict.fromkeys(item.case.system for item in items))


def by_workload(items: Iterable[ReportSummary]) -> Mapping[str, list[ReportSummary]]:
    """Return summaries by workload, in the order in which they first appear."""
    grouped: dict[str, list[ReportSummary]] = {}
    for item in items:
        grouped.setdefault(item.case.workload, []).append(item)
    return grouped
