"""Tables of ClickHouse: a real server, read by its HTTP interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from router.sinks import clickhouse as connector
from router.sinks.sink import Deliverer, Sink, SinkDown, SinkRefused, Subject
from sources.errors import NotAllowed
from tests.kit.servers import ClickHouse
from tests.router.sinks.subjects import SELECTION, rows_of, selected, subject

COLUMNS = (
    "n Int64, i Nullable(Int32), x Nullable(Float64), d Nullable(Decimal(12, 2)), s Nullable(String),"
    " b Nullable(UInt8), day Nullable(Date), at Nullable(DateTime('UTC'))"
)


@contextmanager
def opened(server: ClickHouse, of: Subject, table: str, **options: str) -> Iterator[Sink]:
    said = {"url": server.url, "table": table, **options}
    connector.validate(said, of.query, "")
    with closing(connector.connect(said, Deliverer("test"))) as destination:
        yield destination.open(of, said)


def test_rows_of_all_types_are_inserted(clickhouse: ClickHouse) -> None:
    clickhouse.query(f"CREATE TABLE plain ({COLUMNS}) ENGINE = MergeTree ORDER BY n")
    mine = subject()
    rows = rows_of(mine, selected(50), 3)
    with opened(clickhouse, mine, "plain", database="default") as sink:
        sink.write(rows)
    text = clickhouse.query("SELECT * FROM plain ORDER BY n FORMAT JSONEachRow")
    found = [json.loads(line) for line in text.splitlines()]
    for got, wanted in zip(found, rows.table.to_pylist(), strict=True):
        assert int(got["n"]) == wanted["n"]
        assert got["i"] == wanted["i"]
        assert got["x"] == wanted["x"]
        assert got["s"] == wanted["s"]
        assert (got["d"] and float(got["d"])) == (wanted["d"] and float(wanted["d"]))
        assert got["b"] == (None if wanted["b"] is None else int(wanted["b"]))
        assert got["day"] == (wanted["day"] and wanted["day"].isoformat())
        assert got["at"] == (wanted["at"] and wanted["at"].strftime("%Y-%m-%d %H:%M:%S"))


def test_a_table_may_keep_what_tells_rows_apart(clickhouse: ClickHouse) -> None:
    clickhouse.query(
        f"CREATE TABLE once ({COLUMNS}, _query String, _row String) ENGINE = ReplacingMergeTree ORDER BY (_query, _row)"
    )
    mine = subject()
    rows = rows_of(mine, selected(20), 3)
    with opened(clickhouse, mine, "once") as sink:
        sink.write(rows)
        sink.write(rows)
    assert clickhouse.query("SELECT count() FROM once FINAL") == "20\n"
    assert clickhouse.query("SELECT DISTINCT _query FROM once") == f"{mine.delivery}\n"


def test_a_table_that_is_not_there_refuses(clickhouse: ClickHouse) -> None:
    mine = subject()
    with opened(clickhouse, mine, "nowhere") as sink, pytest.raises((SinkRefused, SinkDown), match="nowhere"):
        sink.write(rows_of(mine, selected(1), 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://h"}, "must have the option 'table'"),
        ({"url": "http://h", "table": "a; DROP TABLE b"}, "must be a name"),
        ({"url": "http://h", "table": "t", "password": "plain"}, "must be a reference"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        connector.validate(options, SELECTION, "")
