"""The series of queries as arrays, so that a batch of thousands of them costs a few numpy calls.

Row 0 is ``query_id="other"``; each labelled query has a row of its own, given back when it leaves its slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid.api.metrics import families
from braid.api.metrics.histograms import Histograms, family_text, label_names, labelled
from braid.session.state.query_record import QueryRecord
from braid.sources.core.latency import KNOWN_WITHIN_US

OTHER = "other"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Query:
    """The parts of a labelled query's samples that never change."""

    id: str
    info: str
    streams: tuple[str, ...]
    deployment_seconds: float

    @classmethod
    def of(cls, record: QueryRecord) -> _Query:
        names = label_names(record.labels)
        labels = {"query_id": record.id, "name": record.name or ""}
        if record.tenant is not None:
            labels["tenant"] = record.tenant
        info = labelled(labels | {name: record.labels[key] for key, name in names.items()})
        streams = (labelled({"query_id": record.id, "stream": name}) for name in record.stream_names.values())
        return cls(record.id, info, tuple(streams), (record.deployment_latency_us or 0) / 1e6)


@dataclass(frozen=True)
class LatencyMoment:
    """All series at one moment: ``queries`` are those that are labelled, by row."""

    queries: Mapping[int, _Query]
    results: Numbers
    windows: Numbers
    event_time: Histograms
    processing_time: Histograms

    @property
    def ids(self) -> list[str]:
        """The ids of the labelled queries."""
        return [query.id for query in self.queries.values()]

    def text(self, cost_shares: Mapping[str, float]) -> str:
        """Return the series in Prometheus' text format; with what is known of the cost of queries, by their ids."""
        rows = sorted(self.queries)
        queries = [self.queries[row] for row in rows]
        ids = [query.id for query in queries]
        if self.results[0]:
            rows, ids = [*rows, 0], [*ids, OTHER]
        labels = [f'query_id="{query_id}"' for query_id in ids]
        streams = [stream for query in queries for stream in query.streams]
        parts = (
            family_text(families.QUERY_RESULTS, labels, self.results[rows].tolist()),
            family_text(families.QUERY_WINDOWS, labels, self.windows[rows].tolist()),
            self.event_time.text(families.EVENT_TIME_LATENCY, rows, ids),
            self.processing_time.text(families.PROCESSING_TIME_LATENCY, rows, ids),
            family_text(
                families.COST_SHARE, (f'query_id="{query_id}"' for query_id in cost_shares), cost_shares.values()
            ),
            family_text(
                families.QUERY_DEPLOYMENT, labels[: len(queries)], (query.deployment_seconds for query in queries)
            ),
            family_text(families.QUERY_INFO, (query.info for query in queries), [1] * len(queries)),
            family_text(families.QUERY_STREAM_INFO, streams, [1] * len(streams)),
        )
        return "".join(parts)


class QuerySeries:
    """The series of the queries that hold slots, at most ``most`` of them labelled."""

    def __init__(self, most: int) -> None:
        self._free = list(range(most, 0, -1))
        self._row_of_slot = np.zeros(64, np.int64)
        self._is_session = np.zeros(64, np.bool_)
        self._queries: dict[int, _Query] = {}
        self._results = np.zeros(most + 1, np.int64)
        self._windows = np.zeros(most + 1, np.int64)
        self._event_time = Histograms(most + 1)
        self._processing_time = Histograms(most + 1)

    def add(self, slot: int, record: QueryRecord) -> None:
        """Give the query in ``slot`` a row of its own, while there is one."""
        self.remove(slot)
        if slot >= len(self._row_of_slot):
            self._row_of_slot = np.pad(self._row_of_slot, (0, slot + 1))
            self._is_session = np.pad(self._is_session, (0, slot + 1))
        query = record.query
        self._is_session[slot] = query.has_sessions
        if self._free:
            row = self._free.pop()
            self._row_of_slot[slot] = row
            self._queries[row] = _Query.of(record)

    def remove(self, slot: int) -> None:
        """Drop the series of the query in ``slot``, if it has any."""
        row = int(self._row_of_slot[slot]) if slot < len(self._row_of_slot) else 0
        if row:
            self._row_of_slot[slot] = 0
            del self._queries[row]
            self._results[row] = self._windows[row] = 0
            self._event_time.clear(row)
            self._processing_time.clear(row)
            self._free.append(row)

    def absorb(self, record: Mapping[str, Any]) -> None:
        """Add the rows of a batch, and one latency of each kind for each block and slot with rows in it."""
        committed = record["committed_us"]
        batch_seconds = (committed - record["started_us"]) / 1e6
        for block in record["results"]:
            rows = self._rows(block["slots"])
            np.add.at(self._results, rows, np.asarray(block["counts"], np.int64))
            latencies_us = committed - np.array(block["latest_event_us"], np.float64)  # None becomes NaN
            is_known = np.abs(latencies_us) < KNOWN_WITHIN_US
            self._event_time.observe(rows, np.where(is_known, latencies_us, np.nan) / 1e6)
            self._processing_time.observe(rows, np.full(len(rows), batch_seconds))
        self._count_windows([block for block in record["results"] if "windows" in block])

    def _count_windows(self, blocks: Sequence[Mapping[str, Any]]) -> None:
        """Add the windows of a batch. Each partition has some keys of a window, but all of a session."""
        if not blocks:
            return
        slots = np.concatenate([np.asarray(block["slots"], np.int64) for block in blocks])
        windows = np.concatenate([np.asarray(block["windows"], np.int64) for block in blocks])
        windows_of_slot = np.zeros(int(slots.max(initial=-1)) + 1, np.int64)
        is_session = slots < len(self._is_session)
        is_session[is_session] = self._is_session[slots[is_session]]
        np.add.at(windows_of_slot, slots[is_session], windows[is_session])
        np.maximum.at(windows_of_slot, slots[~is_session], windows[~is_session])
        (slots_with_windows,) = np.nonzero(windows_of_slot)
        np.add.at(self._windows, self._rows(slots_with_windows), windows_of_slot[slots_with_windows])

    def _rows(self, slots: Sequence[int] | Numbers) -> Numbers:
        slot_array = np.asarray(slots, np.int64)
        is_known = slot_array < len(self._row_of_slot)
        return np.where(is_known, self._row_of_slot[np.where(is_known, slot_array, 0)], 0)

    def moment(self) -> LatencyMoment:
        """Return all series as they are now; costs a copy of the arrays."""
        return LatencyMoment(
            dict(self._queries),
            self._results.copy(),
            self._windows.copy(),
            self._event_time.copy(),
            self._processing_time.copy(),
        )
