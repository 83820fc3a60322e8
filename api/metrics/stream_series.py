"""The series of streams, how much of their evaluation queries share, and how far behind the job is."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from braid.api.metrics import families
from braid.session.shared_session import SharedSession
from braid.session.state.query_record import QueryRecord
from braid.sources.connectors.connector import Connector
from braid.sources.connectors.registry import open_connector
from braid.sources.core.errors import ServiceError
from braid.sources.core.storage import Storage

_COUNTS = {
    "tuples": families.STREAM_TUPLES,
    "bytes": families.STREAM_BYTES,
    "late": families.STREAM_LATE,
    "malformed": families.STREAM_MALFORMED,
    "skipped": families.STREAM_SKIPPED,
}
_TIMES = {"clock": families.STREAM_CLOCK, "watermark": families.STREAM_WATERMARK}


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
        for family, tuples in (
            (families.STREAM_QUERY_TUPLES, self._query_tuples),
            (families.STREAM_OPERATOR_TUPLES, self._operator_tuples),
        ):
            for forgotten in tuples.keys() - streams.keys():
                del tuples[forgotten]
            yield family.sampled({name: tuples[stream] for stream, name in streams.items()})


def stream_families(streams: list[dict[str, Any]], lag: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the metrics of streams, given as GET /streams shows them, with the inputs that wait by their names."""
    for field, family in _COUNTS.items():
        yield family.sampled({stream["name"]: stream[field] for stream in streams})
    for field, family in _TIMES.items():
        known = [stream for stream in streams if stream[field] is not None]
        yield family.sampled({stream["name"]: _seconds_of(stream[field]) for stream in known})
    yield families.STREAM_LAG.sampled(lag)


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
            except (ServiceError, OSError) as error:
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
