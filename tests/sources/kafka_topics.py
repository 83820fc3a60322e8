"""What tests of the Kafka connector share: a stream of three columns, messages for it, and reading it."""

from __future__ import annotations

import json

import pyarrow as pa

from braid.sources.connectors.connector import Extent
from braid.sources.connectors.kafka.connector import KafkaConnector
from braid.sources.core.schema import INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from tests.kit.waiting import wait_until

SCHEMA = StreamSchema((Field("k", INT), Field("s", VARCHAR), Field("t", TIMESTAMP)), "t", 0)
EARLIEST = {"scan.startup.mode": "earliest-offset"}


def definition_of(
    servers: str, topic: str, schema: StreamSchema = SCHEMA, format: str = "json", **options: str
) -> StreamDefinition:
    """Return a stream of a topic."""
    all_options = {"topic": topic, "properties.bootstrap.servers": servers, **options}
    return StreamDefinition("s-1", "readings", schema, "kafka", format, all_options)


def message(number: int, text: str = "é") -> bytes:
    """Return a tuple in JSON."""
    return json.dumps({"k": number, "s": text, "t": f"2026-01-01T00:00:{number % 60:02d}Z"}).encode()


def ends(source: KafkaConnector, expected: dict[str, int]) -> dict[str, Extent]:
    """Return the extents once they end there."""

    def found() -> dict[str, Extent] | None:
        extents = source.available(0)
        return extents if {name: extent.end for name, extent in extents.items()} == expected else None

    return wait_until(found, 30, lambda: f"the offsets end at {expected}, got {source.available(0)}")  # type: ignore[return-value]


def problem_of(source: KafkaConnector) -> str:
    """Return why nothing is available, once that is so."""

    def found() -> str | None:
        source.available(0)
        return source.problem

    return wait_until(found, 30, "the stream says what is wrong")  # type: ignore[return-value]


def keys(source: KafkaConnector, partition: str, start: int, end: int) -> list[int]:
    """Return column ``k`` of a range in which all is well."""
    chunks = list(source.read(partition, start, end))
    assert not [malformed for chunk in chunks for malformed in chunk.malformed]
    tuples = pa.Table.from_batches([chunk.tuples for chunk in chunks], SCHEMA.arrow)
    values: list[int] = tuples.column("k").to_pylist()
    return values
