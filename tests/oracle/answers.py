"""Push rows, end streams, and take all rows that queries over them give; compare these with those of DuckDB."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import orjson

from tests.kit.client import Api, Json
from tests.kit.waiting import wait_until
from tests.oracle.compare import match_rows
from tests.oracle.model import Kind, Row
from tests.oracle.wire import parse_time

NDJSON = "application/x-ndjson"
SECONDS = 180.0


def unique(name: str) -> str:
    """Return a name that no other test has."""
    return f"{name}_{uuid.uuid4().hex[:8]}"


def push(api: Api, stream: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Push rows, which the service must accept."""
    lines = [orjson.dumps(row) for row in rows]
    answer = api.push(stream, NDJSON, b"\n".join(lines))
    assert answer["accepted"] == len(lines), answer


def push_batch(api: Api, stream: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Push rows, and wait until a batch has taken them in, so that those of the next call are in another."""
    lines = list(rows)
    count = api.stream(stream)["tuples"] + len(lines)
    push(api, stream, lines)
    wait_until(lambda: bool(api.stream(stream)["tuples"] == count), SECONDS, f"{stream} has {count} rows")


def end(api: Api, *streams: str) -> None:
    """End streams: all windows over them are final."""
    for stream in streams:
        api.call("POST", f"/streams/{stream}/watermark", 200, json={"end": True})


def all_rows(api: Api, query: str) -> list[dict[str, Json]]:
    """Return all rows that a query has."""
    rows: list[dict[str, Json]] = []
    cursor = None
    while True:
        page = api.page(query, after=cursor, limit=10_000)
        rows += page["rows"]
        cursor = page["cursor"]
        if page["end"] or not page["rows"]:
            return rows


def finished_rows(api: Api, query: str) -> list[dict[str, Json]]:
    """Wait until a query over streams that have ended is FINISHED, and return all its rows."""
    api.wait_state(query, "FINISHED", deadline_seconds=SECONDS)
    return all_rows(api, query)


def match_duckdb(relation: duckdb.DuckDBPyRelation, rows: Iterable[Mapping[str, Json]]) -> str | None:
    """Match rows with those of a relation, in its columns; return None when equal, else the first that differ.

    TIMESTAMP and DOUBLE are those of DuckDB; other values must be equal as JSON has them.
    """
    kinds = {column: _kind(str(kind)) for column, kind in zip(relation.columns, relation.types, strict=True)}
    expected: list[Row] = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    assert expected, "a query that selects nothing shows nothing"
    came: list[Row] = [{column: _value(row[column], kind) for column, kind in kinds.items()} for row in rows]
    return match_rows(kinds, expected, came)


def _kind(duck_type: str) -> Kind:
    return Kind(duck_type) if duck_type in ("DOUBLE", "TIMESTAMP") else Kind.VARCHAR


def _value(value: Json, kind: Kind) -> Any:
    if value is None:
        return None
    if kind is Kind.TIMESTAMP:
        return parse_time(value)
    return float(value) if kind is Kind.DOUBLE else value
