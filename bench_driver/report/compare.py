"""Two reports side by side: ratios, and which changes are beyond noise. Pure, but for reading the files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from braid.bench_driver.report.document import read_document
from braid.bench_driver.report.summary import DEPLOYMENT, EVENT_TIME, Case, ReportSummary, divide, is_change, summarize

BETTER, WORSE, SAME, UNKNOWN = "better", "worse", "within noise", ""
_SAME_MACHINE = ("processor", "cores", "usable_cores", "memory_gib")
# versions that change from one state of the project to the next anyway
_OWN_VERSIONS = ("commit", "braid")


@dataclass(frozen=True)
class Figure:
    """One figure before and after; `unit` is "tuples/s" or "s"; None where a report has none."""

    name: str
    unit: str
    before: float | None
    after: float | None
    change: bool | None

    @property
    def ratio(self) -> float | None:
        """After over before."""
        return divide(self.after, self.before)

    @property
    def verdict(self) -> str:
        """Say whether it is better or worse beyond noise; empty when there are too few rounds to say."""
        if self.before is None or self.after is None:
            return "" if self.before is self.after else "only before" if self.after is None else "only after"
        if self.change is None:
            return UNKNOWN
        if not self.change:
            return SAME
        more_is_better = self.unit != "s"
        return BETTER if (self.after > self.before) == more_is_better else WORSE


@dataclass(frozen=True)
class ComparedLine:
    """The figures of one case."""

    case: Case
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class ReportComparison:
    """Two reports by name, what makes them hard to compare, and a line for each case of either."""

    before: str
    after: str
    warnings: tuple[str, ...]
    lines: tuple[ComparedLine, ...]


def compare_files(before: Path, after: Path) -> ReportComparison:
    """Compare two reports by their files or folders.

    Raises:
        ReportError: either is not a report.
    """
    first, second = read_document(before), read_document(after)
    return compare(first, second, _name(before, first), _name(after, second))


def compare(before: Mapping[str, Any], after: Mapping[str, Any], before_name: str, after_name: str) -> ReportComparison:
    """Compare two reports; cases appear in the order of the first, then those of the second only."""
    cases_before = {s.case: s for s in summarize(before["results"], before["failures"])}
    cases_after = {s.case: s for s in summarize(after["results"], after["failures"])}
    lines = []
    for case in dict.fromkeys([*cases_before, *cases_after]):
        figures = _figures(
            cases_before.get(case, ReportSummary(case, ())), cases_after.get(case, ReportSummary(case, ()))
        )
        if figures:
            lines.append(ComparedLine(case, figures))
    return ReportComparison(before_name, after_name, tuple(_warnings(before, after)), tuple(lines))


def _figures(before: ReportSummary, after: ReportSummary) -> tuple[Figure, ...]:
    figures = []
    for name, key in (("sustainable", "sustainable_tuples_per_second"), ("overall", "overall_tuples_per_second")):
        change = is_change(before.figures(key), after.figures(key))
        figures.append(Figure(name, "tuples/s", before.figure(key), after.figure(key), change))
    for name, kind in (("latency", EVENT_TIME), ("deployment", DEPLOYMENT)):
        for quantile in ("p50", "p95"):
            change = is_change(before.quantiles(kind, quantile), after.quantiles(kind, quantile))
            value_before, value_after = before.quantile(kind, quantile), after.quantile(kind, quantile)
            figures.append(Figure(f"{name} {quantile}", "s", value_before, value_after, change))
    return tuple(figure for figure in figures if figure.before is not None or figure.after is not None)


def _warnings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    warnings = []
    for key in _SAME_MACHINE:
        value_before, value_after = before["machine"].get(key), after["machine"].get(key)
        if value_before != value_after:
            warnings.append(f"the machines differ: {key} {value_before!r} before, {value_after!r} after")
    for key in sorted({*before["versions"], *after["versions"]} - set(_OWN_VERSIONS)):
        value_before, value_after = before["versions"].get(key), after["versions"].get(key)
        if value_before != value_after:
            warnings.append(f"the versions differ: {key} {value_before!r} before, {value_after!r} after")
    for key in ("seed", "quick", "seconds"):
        value_before, value_after = before["settings"].get(key), after["settings"].get(key)
        if value_before != value_after:
            warnings.append(f"the settings differ: {key} {value_before!r} before, {value_after!r} after")
    if any(report["settings"].get("rounds", 1) < 2 for report in (before, after)):
        warnings.append("changes cannot be told from noise: that takes two rounds or more (--rounds) in both reports")
    return warnings


def _name(path: Path, document: Mapping[str, Any]) -> str:
    commit = document["versions"].get("commit")
    return f"{path} ({document['taken_at']}" + (f", commit {commit})" if commit else ")")
