"""Random joins of three streams through a service, made and retired while tuples come, and what DuckDB says of them."""

from __future__ import annotations

import datetime as dt
import io
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kit.client import Api
from tests.kit.random_joins import (
    FIELDS,
    SECOND,
    STREAMS,
    TABLE_SCHEMA,
    TABLES,
    RandomJoin,
    comparable,
    expected,
    plan,
    random_join,
    random_tuples,
    table_of,
)
from tests.kit.waiting import wait_until
from tests.operators.pipeline import Row

ARROW = "application/vnd.apache.arrow.stream"
END = {"k": 77, "m": 77, "v": 77, "x": 0.0, "s": "end", "d": None}


class Streams:
    """Three streams and two tables of a service, and the tuples pushed, by the id of their stream in `STREAMS`."""

    def __init__(self, api: Api, folder: Path) -> None:
        """Create them, and the static tables, whose files go to ``folder``."""
        self.api, self._folder = api, folder
        self.suffix = f"_{uuid.uuid4().hex[:12]}"
        self.pushed: dict[str, list[Row]] = {stream.id: [] for stream in STREAMS}
        for stream in STREAMS:
            lateness = f" LATENESS INTERVAL '{stream.schema.lateness_us // SECOND}' SECOND"
            columns = ", ".join(f"{f.name} {f.type}{lateness if f.name == 't' else ''}" for f in FIELDS)
            api.create_stream(f"CREATE STREAM {self.name(stream.name)} ({columns}) WITH (connector = 'push')")
        columns = ", ".join(f"{f.name} {f.type}" for f in TABLE_SCHEMA.fields)
        for name, rows in TABLES.rows.items():
            path = folder / f"{name}.parquet"
            pq.write_table(rows, path)
            api.create_table(f"CREATE TABLE {self.name(name)} ({columns}) WITH (connector = 'file', path = '{path}')")

    def name(self, name: str) -> str:
        """Return what a stream is called in the service."""
        return f"{name}{self.suffix}"

    def refresh(self, tables: Mapping[str, pa.Table]) -> None:
        """Give the static tables other rows, for tuples that are pushed from now on."""
        for name, rows in tables.items():
            pq.write_table(rows, self._folder / f"{name}.parquet")
            assert not self.api.refresh_table(self.name(name))["refreshing"]

    def push(self, name: str, rows: list[Row]) -> None:
        """Push tuples."""
        if rows:
            table = table_of(rows)
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            self.api.push(self.name(name), ARROW, sink.getvalue())
            self.pushed[f"s-{name}"] += rows

    def settle(self, seconds: float = 60) -> dict[str, Any]:
        """Wait until all tuples are taken in; return what the service says of each stream, by its name in `STREAMS`."""
        reported: dict[str, Any] = {}

        def is_settled() -> bool:
            reported.update({stream.name: self.api.stream(self.name(stream.name)) for stream in STREAMS})
            # late tuples are valid, and counted among the tuples
            return all(reported[stream.name]["tuples"] == len(self.pushed[stream.id]) for stream in STREAMS)

        wait_until(is_settled, seconds, "all tuples are taken in")
        return reported


def micros(text: str | None) -> int | None:
    """Return a time as microseconds since 1970."""
    return None if text is None else round(dt.datetime.fromisoformat(text).timestamp() * SECOND)


def rows_of(api: Api, query: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query without `_partial`, read in pages of any length."""
    rows: list[tuple[Any, ...]] = []
    cursor: str | None = None
    while True:
        page = {"limit": random.Random(len(rows)).choice([3, 50, 2000])}
        params = page if cursor is None else page | {"after": cursor}
        answer = api.request("GET", f"/queries/{query}/results", params=params, headers={"Accept": ARROW})
        assert answer.status_code == 200, answer.text
        with pa.ipc.open_stream(answer.content) as reader:
            table = reader.read_all()
        if not table.num_rows:
            return rows
        rows += [tuple(row[name] for name in table.column_names if name != "_partial") for row in table.to_pylist()]
        cursor = answer.headers["Braid-Cursor"]


class JoinRun:
    """Random joins, in rounds: some are created, one may be retired, and all streams get tuples."""

    def __init__(self, api: Api, seed: int, joins: int, rounds: int, folder: Path) -> None:
        self._api = api
        self._time = 5 * SECOND
        self._rng = random.Random(seed)
        self._streams = Streams(api, folder)
        self._waiting: list[RandomJoin] = []
        while len(self._waiting) < joins:
            query = random_join(self._rng)
            if plan(query) is not None:
                self._waiting.append(query)
        self._a_round = -(-joins // (rounds - 1))
        self._running: dict[str, RandomJoin] = {}
        self._deleted: list[str] = []

    def next_round(self, disturb: Callable[[], None] = lambda: None, settle_seconds: float = 60) -> None:
        """Create some, perhaps retire one, push tuples; ``disturb`` is called when they were pushed."""
        queries, self._waiting = self._waiting[: self._a_round], self._waiting[self._a_round :]
        if queries:
            created = self._api.create_queries([{"sql": query.over(self._streams.suffix)} for query in queries])
            self._running |= {answer["id"]: query for answer, query in zip(created, queries, strict=True)}
        if self._rng.random() < 0.5:
            self._deleted.append(self._rng.choice([q for q in self._running if q not in self._deleted]))
            self._api.delete_query(self._deleted[-1])
        for stream in STREAMS:
            rows, reached = random_tuples(self._rng, self._time)
            self._streams.push(stream.name, rows)
            self._time = max(self._time, reached - SECOND)
        disturb()
        self._streams.settle(settle_seconds)

    def finish(self) -> None:
        """Move all watermarks beyond the last window."""
        for stream in STREAMS:
            self._streams.push(stream.name, [END | {"t": self._time + 100 * SECOND}])

    def verify(self) -> None:
        """Compare the rows of every join with DuckDB's over the tuples that the service took."""
        api, streams = self._api, self._streams
        reported = streams.settle()
        late = {stream.name: list(late_rows(api, streams.name(stream.name))) for stream in STREAMS}
        for name, rows in late.items():
            assert reported[name]["late"] == len(rows)
        tuples = {f"s-{name}": without(streams.pushed[f"s-{name}"], rows) for name, rows in late.items()}
        watermarks = {f"s-{name}": micros(stream["watermark"]) or 0 for name, stream in reported.items()}
        for query_id, query in self._running.items():
            is_deleted = query_id in self._deleted
            body = api.wait_deleted(query_id) if is_deleted else api.query(query_id)
            assert body["error"] is None, (query.text, body["error"])
            active_from = {
                f"s-{name.removesuffix(streams.suffix)}": micros(t) for name, t in body["active_from"].items()
            }
            active_to = min((micros(t) or 0 for t in body["active_to"].values()), default=0) if is_deleted else None
            joined = plan(query)
            assert joined is not None
            reached = min(watermarks[stream] for stream in joined.streams)
            expected_rows = expected(query, tuples, active_from, active_to, reached)
            rows_read: list[tuple[Any, ...]] = []

            def all_come(
                query_id: str = query_id,
                rows_read: list[tuple[Any, ...]] = rows_read,
                row_count: int = len(expected_rows),
            ) -> bool:
                rows_read[:] = rows_of(api, query_id)
                return len(rows_read) >= row_count

            wait_until(all_come, 60, f"{len(expected_rows)} rows of {query.text} come")
            row_counts, expected_counts = Counter(map(comparable, rows_read)), Counter(map(comparable, expected_rows))
            assert row_counts == expected_counts, {
                "only here": row_counts - expected_counts,
                "only in DuckDB": expected_counts - row_counts,
                "of": query.text,
            } | body


def late_rows(api: Api, name: str) -> list[dict[str, Any]]:
    """Return the late tuples of a stream."""
    return [letter["tuple"] for page in api.dead_letters(name) for letter in page if letter["reason"] == "late"]


def without(rows: list[Row], late: list[dict[str, Any]]) -> list[Row]:
    """Return tuples without those that were late, told apart by all their columns, in which -0.0 is 0.0."""

    def key(row: Row) -> tuple[str, ...]:
        time = row["t"] if isinstance(row["t"], int) else micros(row["t"])
        texts = {name: f"{float(row[name]) + 0.0:.3f}" for name in "kmvxd" if row[name] is not None}
        values = [str(texts.get(f.name, row[f.name])) for f in FIELDS[:-1]]
        return (*values, str(time))

    late_keys = [key(row) for row in late]
    on_time = []
    for row in rows:
        if key(row) in late_keys:
            late_keys.remove(key(row))
        else:
            on_time.append(row)
    assert not late_keys
    return on_time
