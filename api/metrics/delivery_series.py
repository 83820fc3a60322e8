"""The series of what has left the result log: by deliverers to sinks, or by readers.

Row 0 is ``query_id="other"``. A query has a row of its own, if one is left at its first delivery: with a sink until all
is delivered, which may be after the query is over, without one while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from braid.api.metrics import families
from braid.api.metrics.histograms import Histograms, family_text
from braid.api.metrics.query_series import OTHER
from braid.router.delivery.progress import DELIVERING, DeliveryProgress
from braid.session.state.query_record import QueryRecord
from braid.session.upkeep.deliveries import lag_seconds


class DeliverySeries:
    """At most ``most`` labelled queries with deliveries."""

    def __init__(self, most: int) -> None:
        self._free = list(range(most, 0, -1))
        # a query without a row of its own keeps row 0
        self._rows: dict[str, int] = {}
        self._latency = Histograms(most + 1)
        self._sink_rows = np.zeros(most + 1, np.int64)
        self._sink_errors = np.zeros(most + 1, np.int64)
        self._sink_refused = np.zeros(most + 1, np.int64)
        # what each sink had reported when it was asked last
        self._told: dict[str, DeliveryProgress] = {}
        # for each query with readers, the newest batch that one of them has had
        self._read_upto: dict[str, int] = {}

    def read(self, record: QueryRecord, latest: int, completed: Mapping[int, int], now_us: int) -> None:
        """Note that a reader has had a page of a query that runs, with the ends of some batches.

        ``completed`` maps their numbers to when they were committed (µs). A batch counts once, for who reads it first,
        if it came after somebody first read of the query, when ``latest`` was the newest. Readers of a query that has a
        sink do not count.
        """
        if isinstance(record.sink, dict):
            return
        newest_read = self._read_upto.setdefault(record.id, latest)
        unread = {seq: committed_us for seq, committed_us in completed.items() if seq > newest_read}
        if not unread:
            return
        self._read_upto[record.id] = max(unread)
        seconds = np.array([now_us - committed_us for committed_us in unread.values()]) / 1e6
        self._latency.observe(np.full(len(unread), self._row(record.id)), seconds)

    def leave(self, query_id: str) -> None:
        """Note that a query runs no more."""
        self._read_upto.pop(query_id, None)
        if query_id not in self._told:
            self._give_back(query_id)

    def follow(self, progress: Mapping[str, DeliveryProgress]) -> None:
        """Take note of what deliverers have reported of all sinks."""
        for query_id in self._told.keys() - progress.keys():
            del self._told[query_id]
            self._give_back(query_id)
        for query_id, current in progress.items():
            previous = self._told.get(query_id)
            if current.is_over and previous is None:
                continue
            self._add(self._row(query_id), previous or DeliveryProgress(), current)
            if current.is_over:
                del self._told[query_id]
                self._give_back(query_id)
            else:
                self._told[query_id] = current

    def _add(self, row: int, previous: DeliveryProgress, current: DeliveryProgress) -> None:
        self._sink_rows[row] += current.rows - previous.rows
        self._sink_errors[row] += current.errors - previous.errors
        self._sink_refused[row] += current.refused - previous.refused
        if current.latency_us != previous.latency_us:
            self._latency.counts[row] += np.subtract(current.latency_counts, previous.latency_counts)
            self._latency.sums[row] += (current.latency_us - previous.latency_us) / 1e6

    def _row(self, query_id: str) -> int:
        if query_id not in self._rows:
            self._rows[query_id] = self._free.pop() if self._free else 0
        return self._rows[query_id]

    def _give_back(self, query_id: str) -> None:
        row = self._rows.pop(query_id, 0)
        if row:
            self._latency.clear(row)
            self._sink_rows[row] = self._sink_errors[row] = self._sink_refused[row] = 0
            self._free.append(row)

    def text(self, states: Mapping[str, str]) -> str:
        """Return the series in Prometheus' text format; ``states`` has the state of each delivery by its query's id."""
        labelled = {query_id: row for query_id, row in self._rows.items() if row}
        rows, ids = list(labelled.values()), list(labelled)
        if self._latency.counts[0].any():
            rows, ids = [*rows, 0], [*ids, OTHER]
        latency = self._latency.text(families.DELIVERY_LATENCY, rows, ids)
        series = {query_id: (labelled[query_id], [query_id]) for query_id in self._told if query_id in labelled}
        if unlabelled := [query_id for query_id in self._told if query_id not in labelled]:
            series[OTHER] = (0, unlabelled)
        labels = [f'query_id="{query_id}"' for query_id in series]
        series_rows = [row for row, _ in series.values()]
        lag = [max(lag_seconds(self._told[query_id]) for query_id in ids) for _, ids in series.values()]
        up = [int(all(states[query_id] == DELIVERING for query_id in ids)) for _, ids in series.values()]
        return latency + "".join(
            family_text(family, labels, values)
            for family, values in (
                (families.SINK_ROWS, self._sink_rows[series_rows]),
                (families.SINK_ERRORS, self._sink_errors[series_rows]),
                (families.SINK_REFUSED, self._sink_refused[series_rows]),
                (families.SINK_LAG, lag),
                (families.SINK_UP, up),
            )
        )
