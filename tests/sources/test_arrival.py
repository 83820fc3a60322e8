"""The time of arrival as a column: the same whenever it is read, and never earlier than that of what came before."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from braid.sources.connectors.files.connector import FileConnector
from braid.sources.connectors.push import PushConnector, PushLog
from braid.sources.connectors.registry import open_connector, open_for_planner, validate_definition
from braid.sources.core.schema import INT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage
from tests.sources.file_folders import Files, discovered

EPOCH = datetime(1970, 1, 1)
SCHEMA = StreamSchema((Field("came", TIMESTAMP, arrival=True), Field("k", INT)), "came", 0)
DEFINITION = StreamDefinition("s-1", "pushed", SCHEMA, "push", "json")


@pytest.fixture
def files(storage: Storage, tmp_path: Path) -> Files:
    return Files(tmp_path / "folder", storage)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": pa.array(numbers, pa.int32())}, schema=SCHEMA.stored.arrow)


def arrivals(storage: Storage, start: int, end: int) -> list[tuple[int, int]]:
    """Return k and the time of arrival, in microseconds, of tuples; each also read alone."""
    connector = PushConnector(storage, DEFINITION)
    chunks = list(connector.read("0", start, end))
    assert all(chunk.tuples.schema == SCHEMA.arrow for chunk in chunks)
    rows = [row for chunk in chunks for row in chunk.tuples.to_pylist()]
    alone = [
        row for n in range(start, end) for chunk in connector.read("0", n, n + 1) for row in chunk.tuples.to_pylist()
    ]
    assert rows == alone
    return [(row["k"], (row["came"] - EPOCH) // timedelta(microseconds=1)) for row in rows]


def test_pushed_tuples_have_the_time_at_which_they_came(storage: Storage) -> None:
    log = PushLog(storage, DEFINITION)
    log.append(batch(1, 2), [], 1_000, 10)
    log.append(batch(3), [], 2_000, 10)
    log.close()
    assert arrivals(storage, 0, 3) == [(1, 1_000), (2, 1_000), (3, 2_000)]


def test_no_push_is_earlier_than_one_before_it_whatever_clocks_do(storage: Storage) -> None:
    log = PushLog(storage, DEFINITION)
    log.append(batch(1), [], 5_000, 10)
    log.append(batch(2), [], 4_000, 10)
    log.append(batch(3), [], 4_000, 10)
    log.close()
    log = PushLog(storage, DEFINITION)
    log.append(batch(4), [], 3_000, 10)
    log.append(batch(5), [], 9_000, 10)
    log.close()
    assert arrivals(storage, 0, 5) == [(1, 5_000), (2, 5_001), (3, 5_002), (4, 5_003), (5, 9_000)]


def test_files_come_when_they_are_discovered(files: Files) -> None:
    options = {"path": str(files.folder)}
    validate_definition("readings", SCHEMA, "file", "json", options)
    definition = StreamDefinition("s-1", "readings", SCHEMA, "file", "json", options)
    files.put("a.json", b'{"k": 1}\n{"k": 2}\n')
    files.put("b.json", b'{"k": 3}\nnothing\n{"k": 4, "came": "2020-01-01T00:00:00Z"}\n')
    discovered(open_for_planner(definition, files.storage), 5)
    reader = open_connector(definition, files.storage)
    assert isinstance(reader, FileConnector)
    first, second = reader.read("0", 0, 5)
    assert [row["k"] for chunk in (first, second) for row in chunk.tuples.to_pylist()] == [1, 2, 3, 4]
    for chunk in (first, second):
        came = EPOCH + timedelta(microseconds=chunk.received_us)
        assert set(chunk.tuples.column("came").to_pylist()) == {came}
    assert first.received_us < second.received_us
    assert len(second.malformed) == 1
