"""A PySpark data source that pulls from the driver's Flight queues, as a user of stock Spark would write it.

Options: ``location``, ``path``, ``consumer``, ``tasks`` (reads at once) and ``maxRowsPerBatch`` (absent: no bound). The
schema is what the reader is told (``readStream.schema``): BIGINT, INT, DOUBLE and TIMESTAMP columns, found by name.
A new query begins with what is generated after it started, as Kafka's ``startingOffsets = latest``; what the queue does
not keep any more is passed over, as with Kafka's ``failOnDataLoss = false``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

# a task for fewer rows costs more than it brings
ROWS_WORTH_A_TASK = 20_000
# what Spark hands to the JVM at once: the flight server's batches are cut to this
ROWS_PER_ARROW_BATCH = 65_536
ARROW_TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),  # Spark requires a zone; the queue's times are UTC without one
}

Range = tuple[int, int]

_clients: dict[str, flight.FlightClient] = {}


class FlightSource(DataSource):
    """``spark.readStream.format("flight-queue")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``readStream.format``."""
        return "flight-queue"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return FlightReader(schema, self.options)  # whose names Spark compares without regard to case


class FlightReader(DataSourceStreamReader):
    """Offsets are ``{partition: next offset}``."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = arrow_schema(schema)
        self._location = options["location"]
        self._path = options["path"]
        self._consumer = options["consumer"]
        self._tasks = int(options.get("tasks", "1"))
        bound = options.get("maxRowsPerBatch")
        self._bound = None if bound is None else int(bound)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the bound that the options set."""
        return ReadAllAvailable() if self._bound is None else ReadMaxRows(self._bound)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the end of what is generated now."""
        return {partition: end for partition, (_, end) in self._retained().items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the end of the next batch, or ``start`` when nothing new is generated."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_end(start, self._retained(), most)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the ranges that the tasks read, about equally long."""
        retained = self._retained()
        return [
            InputPartition((partition, low, high))
            for partition, stop in end.items()
            for low, high in split(max(start.get(partition, 0), retained[partition][0]), stop, self._tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Pull one range."""
        number, start, end = partition.value
        request = {
            "path": self._path,
            "partition": number,
            "start": start,
            "end": end,
            "consumer": self._consumer,
        }
        reader = _client(self._location).do_get(flight.Ticket(json.dumps(request).encode()))
        for chunk in reader:
            for low in range(0, chunk.data.num_rows, ROWS_PER_ARROW_BATCH):
                yield declared(chunk.data.slice(low, ROWS_PER_ARROW_BATCH), self._schema)

    def _retained(self) -> dict[str, Range]:
        request = {"path": self._path, "consumer": self._consumer}
        action = flight.Action("offsets", json.dumps(request).encode())
        (answer,) = _client(self._location).do_action(action)
        partitions = json.loads(answer.body.to_pybytes())["partitions"]
        return {partition: (span["start"], span["end"]) for partition, span in partitions.items()}


def next_end(start: Mapping[str, int], retained: Mapping[str, Range], most: int | None) -> dict[str, int]:
    """Return where a batch from `start` ends: all that is kept, or `most` rows shared equally by the partitions."""
    share = None if most is None else max(1, most // max(1, len(retained)))
    ends = {}
    for partition, (oldest, newest) in retained.items():
        begin = max(start.get(partition, 0), oldest)
        ends[partition] = max(begin, newest if share is None else min(newest, begin + share))
    return ends


def split(start: int, end: int, tasks: int) -> list[Range]:
    """Return up to `tasks` ranges of `ROWS_WORTH_A_TASK` rows or more that are together [start, end)."""
    rows = end - start
    if rows <= 0:
        return []
    parts = max(1, min(tasks, rows // ROWS_WORTH_A_TASK))
    edges = [start + rows * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark wants batches of `schema` to have.

    Raises ValueError for a type that the queues do not have.
    """
    fields = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in ARROW_TYPES:
            raise ValueError(f"column {field.name!r} must be one of {sorted(ARROW_TYPES)}, got {kind!r}")
        fields.append(pa.field(field.name, ARROW_TYPES[kind]))
    return pa.schema(fields)


def declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the declared columns of a batch in their types; no values are copied where the width is the same."""
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        if array.type != field.type:
            array = array.view(field.type) if pa.types.is_timestamp(field.type) else array.cast(field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _client(location: str) -> flight.FlightClient:
    """Return this process's connection; Python workers live on between batches."""
    if location not in _clients:
        _clients[location] = flight.FlightClient(location)
    return _clients[location]


def source_options(location: str, path: str, consumer: str, tasks: int, most: int | None) -> dict[str, Any]:
    """Return the options of `readStream.format("flight-queue")`."""
    options = {"location": location, "path": path, "consumer": consumer, "tasks": tasks}
    return options if most is None else {**options, "maxRowsPerBatch": most}
