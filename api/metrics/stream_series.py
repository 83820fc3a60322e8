"""The series of streams, how much of their evaluation queries share, and how far behind the job is."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from braid.session.shared_session import SharedSession
from braid.session.state.query_record import QueryRecord
from braid.sources.connectors.connector import Connector
from braid.sources.connectors.registry import open_connector
from braid.sources.core.errors import BraidError
from braid.sources.core.storage import Storage

_COUNTS = {
    "tuples": "Valid rows taken in.",
    "bytes": "Bytes taken in.",
    "late": "Rows late.",
    "malformed": "Rows malformed.",
    "skipped": "Offsets that were gone before they were read.",
}


class SharingSeries:
    """Counts rows, stream by stream: once for each query that reads them, and once for each shared operator.

    The first is what queries would read one by one, the second what is evaluated.
    """

    def __init__(self) -> None:
        self._queries: Counter[str] = Counter()
        self._operators: Counter[str] = Counter()
        self._users: Counter[str] = Counter()
        self._query_tuples: Counter[str] = Counter()
        self._operator_tuples: Counter[str] = Counter()

    def add(self, record: QueryRecord) -> None:
        """Note that a query runs."""
        streams = tuple(record.stream_names)
        self._queries.update(streams)
        if not self._users[record.operator]:
            self._operators.update(streams)
        self._users[record.operator] += 1

    def remove(self, record: QueryRecord) -> None:
        """Note that a query runs no more."""
        streams = Counter(tuple(record.stream_names))
        self._queries -= streams
        self._users[record.operator] -= 1
        if not self._users[record.operator]:
            del self._users[record.operator]
            self._operators -= streams

    def absorb(self, record: Mapping[str, Any]) -> None:
        """Add the rows of a batch."""
        for stream, counted in record["streams"].items():
            self._query_tuples[stream] += counted["tuples"] * self._queries[stream]
            self._operator_tuples[stream] += counted["tuples"] * self._operators[stream]

    def families(self, streams: Mapping[str, str]) -> Iterator[Metric]:
        """Yield the metrics of streams, given as names by ids; of others everything is forgotten."""
        for name, help_text, tuples in (
            ("query", "Rows, counted once for each query that reads them.", self._query_tuples),
            ("operator", "Rows, counted once for each shared operator that evaluates them.", self._operator_tuples),
        ):
            for forgotten in tuples.keys() - streams.keys():
                del tuples[forgotten]
            counter = CounterMetricFamily(f"braid_stream_{name}_tuples", help_text, labels=["stream"])
            for stream, stream_name in streams.items():
                counter.add_metric([stream_name], tuples[stream])
            yield counter


def stream_families(streams: list[dict[str, Any]], lag: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the metrics of streams, given as GET /streams shows them, with the inputs that wait by their names."""
    for name, help_text in _COUNTS.items():
        counter = CounterMetricFamily(f"braid_stream_{name}", help_text, labels=["stream"])
        for stream in streams:
            counter.add_metric([stream["name"]], stream[name])
        yield counter
    for name in ("clock", "watermark"):
        gauge = GaugeMetricFamily(f"braid_stream_{name}_seconds", f"The {name}, seconds since 1970.", labels=["stream"])
        for stream in streams:
            if stream[name] is not None:
                gauge.add_metric([stream["name"]], _seconds_of(stream[name]))
        yield gauge
    waiting = GaugeMetricFamily("braid_stream_lag_tuples", "Inputs not taken in yet.", labels=["stream"])
    for name, rows in lag.items():
        waiting.add_metric([name], rows)
    yield waiting


log = logging.getLogger("braid.lag")


class Lag:
    """Tells the lag of each stream; the connectors that it asks stay open from call to call."""

    def __init__(self, session: SharedSession, storage: Storage) -> None:
        self._session = session
        self._storage = storage
        self._connectors: dict[str, Connector] = {}

    def read(self) -> dict[str, int]:
        """Return the lag of each stream by name; a stream whose source does not answer is left out."""
        definitions = self._session.streams.definitions()
        offsets = {stream["id"]: stream["offsets"] for stream in self._session.streams.describe_all()}
        now_us = time.time_ns() // 1000
        lags = {}
        for definition in definitions:
            try:
                connector = self._connectors.get(definition.id)
                if connector is None:
                    connector = self._connectors[definition.id] = open_connector(definition, self._storage)
                available = connector.available(now_us)
            except (BraidError, OSError) as error:
                log.debug("lag unknown", extra={"fields": {"stream": definition.name, "error": str(error)}})
                continue
            read_offsets = offsets.get(definition.id, {})
            lags[definition.name] = sum(
                max(0, extent.end - read_offsets.get(partition, extent.start))
                for partition, extent in available.items()
            )
        for stream in self._connectors.keys() - offsets.keys():
            self._connectors.pop(stream, None)
        return lags


def _seconds_of(time_text: str) -> float:
    """Return an RFC 3339 time as seconds since 1970."""
    return dt.datetime.fromisoformat(time_text).timestamp()
