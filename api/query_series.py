"""Counters and histograms of many queries as arrays, so that a batch of thousands of them costs a few numpy calls.

Row 0 is ``query_id="other"``; each labelled query has a row of its own, given back when it leaves its slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

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

    def buckets(self, row: int) -> list[tuple[str, float]]:
        return list(zip(_BOUNDS, np.cumsum(self.counts[row]).tolist(), strict=True))


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

    def count(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Add rows of results, by slot."""
        np.add.at(self._results, self._rows(slots), np.asarray(counts, np.int64))

    def observe(self, slots: Sequence[int], latest_event_us: Sequence[int | None], record: dict[str, Any]) -> None:
        """Observe a block's latencies: one of each kind for each slot with rows in it."""
        rows, committed = self._rows(slots), record["committed_us"]
        latest = np.asarray([np.nan if us is None else us for us in latest_event_us], np.float64)
        self._event_time.observe(rows, (committed - latest) / 1e6)
        took = (committed - record["started_us"]) / 1e6
        self._processing_time.observe(rows, np.full(len(rows), took))

    def _rows(self, slots: Sequence[int]) -> npt.NDArray[np.int64]:
        wanted = np.asarray(slots, np.int64)
        known = wanted < len(self._row_of_slot)
        return np.where(known, self._row_of_slot[np.where(known, wanted, 0)], 0)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of all queries."""
        rows = [(row, query_id) for row, (query_id, _) in sorted(self._labels.items())]
        if self._results[0]:
            rows.append((0, OTHER))
        results = CounterMetricFamily("braid_query_results", "Rows of results.", labels=["query_id"])
        for row, query_id in rows:
            results.add_metric([query_id], int(self._results[row]))
        yield results
        for name, what, histograms in (
            ("event_time", "now minus the greatest event time that contributed", self._event_time),
            ("processing_time", "from the start of the batch to its commit", self._processing_time),
        ):
            family = HistogramMetricFamily(
                f"braid_query_{name}_latency_seconds", f"Latency of results: {what}.", labels=["query_id"]
            )
            for row, query_id in rows:
                family.add_metric([query_id], histograms.buckets(row), float(histograms.sums[row]))
            yield family
        info = GaugeMetricFamily("braid_query_info", "Names of queries; always 1.", labels=["query_id", "name"])
        for query_id, name in self._labels.values():
            info.add_metric([query_id, name], 1)
        yield info
