"""Counters and histograms of many queries as arrays, so that a batch of thousands of them costs a few numpy calls.

Row 0 is ``query_id="other"``; each labelled query has a row of its own, given back when it leaves its slot. They are
written in Prometheus' text format here: its client library takes a tenth of a second for a thousand queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

OTHER = "other"
LATENCY_SECONDS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_BOUNDS = [*(str(bound) for bound in LATENCY_SECONDS), "+Inf"]


class _Histograms:
    """One histogram a row: ``counts`` has shape (rows, buckets), not cumulative; ``sums`` shape (rows,)."""

    def __init__(self, rows: int) -> None:
        self.counts = np.zeros((rows, len(_BOUNDS)), np.int64)
        self.sums = np.zeros(rows)

    def observe(self, rows: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]) -> None:
        known = ~np.isnan(seconds)
        rows, seconds = rows[known], seconds[known]
        np.add.at(self.counts, (rows, np.searchsorted(LATENCY_SECONDS, seconds)), 1)
        np.add.at(self.sums, rows, seconds)

    def clear(self, row: int) -> None:
        self.counts[row] = 0
        self.sums[row] = 0.0

    def lines(self, name: str, rows: Sequence[int], ids: Sequence[str]) -> list[str]:
        """Return the samples of some rows, whose ``query_id`` are given."""
        labels = '{query_id="\0"'
        template = "".join(f'{name}_bucket{labels},le="{bound}"}} %d\n' for bound in _BOUNDS)
        template += f"{name}_count{labels}}} %d\n{name}_sum{labels}}} %r\n"
        counts = np.cumsum(self.counts[rows], axis=1).tolist()
        sums = self.sums[rows].tolist()
        return [
            template.replace("\0", query_id) % (*counted, counted[-1], total)
            for query_id, counted, total in zip(ids, counts, sums, strict=True)
        ]

    def copy(self) -> _Histograms:
        copied = _Histograms(0)
        copied.counts, copied.sums = self.counts.copy(), self.sums.copy()
        return copied


@dataclass(frozen=True)
class Moment:
    """All series at one moment: ``labels`` has id and name by row."""

    labels: dict[int, tuple[str, str]]
    results: npt.NDArray[np.int64]
    event_time: _Histograms
    processing_time: _Histograms

    def text(self) -> str:
        """Return the series in Prometheus' text format."""
        rows = sorted(self.labels)
        ids = [self.labels[row][0] for row in rows]
        if self.results[0]:
            rows, ids = [*rows, 0], [*ids, OTHER]
        lines = _head("braid_query_results_total", "counter", "Rows of results.")
        values = zip(ids, self.results[rows].tolist(), strict=True)
        lines += [f'braid_query_results_total{{query_id="{query_id}"}} {value}\n' for query_id, value in values]
        for kind, what, histograms in (
            ("event_time", "now minus the greatest event time that contributed", self.event_time),
            ("processing_time", "from the start of the batch to its commit", self.processing_time),
        ):
            name = f"braid_query_{kind}_latency_seconds"
            lines += _head(name, "histogram", f"Latency of results: {what}.")
            lines += histograms.lines(name, rows, ids)
        lines += _head("braid_query_info", "gauge", "Names of queries; always 1.")
        lines += [
            f'braid_query_info{{query_id="{query_id}",name="{_escaped(name)}"}} 1\n'
            for query_id, name in self.labels.values()
        ]
        return "".join(lines)


class QuerySeries:
    """The series of the queries that hold slots, at most ``most`` of them labelled."""

    def __init__(self, most: int) -> None:
        self._free = list(range(most, 0, -1))
        self._labels: dict[int, tuple[str, str]] = {}
        self._row_of_slot = np.zeros(64, np.int64)
        self._results = np.zeros(most + 1, np.int64)
        self._event_time = _Histograms(most + 1)
        self._processing_time = _Histograms(most + 1)

    def add(self, slot: int, query_id: str, name: str | None) -> None:
        """Give the query in ``slot`` a row of its own, while there is one."""
        self.remove(slot)
        if slot >= len(self._row_of_slot):
            self._row_of_slot = np.pad(self._row_of_slot, (0, slot + 1))
        if self._free:
            row = self._free.pop()
            self._row_of_slot[slot] = row
            self._labels[row] = (query_id, name or "")

    def remove(self, slot: int) -> None:
        """Drop the series of the query in ``slot``, if it has any."""
        row = int(self._row_of_slot[slot]) if slot < len(self._row_of_slot) else 0
        if row:
            self._row_of_slot[slot] = 0
            del self._labels[row]
            self._results[row] = 0
            self._event_time.clear(row)
            self._processing_time.clear(row)
            self._free.append(row)

    def absorb(self, block: dict[str, Any], record: dict[str, Any]) -> None:
        """Add the rows of a block of a batch, and one latency of each kind for each slot with rows in it."""
        rows, committed = self._rows(block["slots"]), record["committed_us"]
        np.add.at(self._results, rows, np.asarray(block["counts"], np.int64))
        latest = np.array(block["latest_event_us"], np.float64)  # None becomes NaN
        self._event_time.observe(rows, (committed - latest) / 1e6)
        took = (committed - record["started_us"]) / 1e6
        self._processing_time.observe(rows, np.full(len(rows), took))

    def _rows(self, slots: Sequence[int]) -> npt.NDArray[np.int64]:
        wanted = np.asarray(slots, np.int64)
        known = wanted < len(self._row_of_slot)
        return np.where(known, self._row_of_slot[np.where(known, wanted, 0)], 0)

    def moment(self) -> Moment:
        """Return all series as they are now; costs a copy of the arrays."""
        return Moment(dict(self._labels), self._results.copy(), self._event_time.copy(), self._processing_time.copy())


def _head(name: str, kind: str, what: str) -> list[str]:
    return [f"# HELP {name} {what}\n# TYPE {name} {kind}\n"]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
