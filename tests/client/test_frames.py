"""Frames of pandas, Polars and Arrow against a real service: declared, pushed, and read as results."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from braid.client import AsyncClient, Client
from braid.client.frames import MAX_BODY_BYTES, arrow_of, bodies_of, declaration
from tests.kit.service import RunningService

BEGIN = datetime(2013, 1, 1, 5, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"carrier": carrier, "delay": delay, "dep_time": BEGIN + timedelta(minutes=minute)}
    for minute, (carrier, delay) in enumerate([("UA", 2.0), ("AA", 33.5), ("UA", -4.0), ("B6", None), ("AA", 12.0)])
]
FRAMES = {
    "pandas": pd.DataFrame(ROWS).astype({"carrier": "category"}),
    "polars": pl.DataFrame(ROWS),
    "arrow": pa.Table.from_pylist(ROWS),
}
LATE = "SELECT carrier, delay FROM {} WHERE delay > 10"


@pytest.fixture
def braid(service: RunningService) -> Iterator[Client]:
    with Client(service.url, timeout=60) as client:
        yield client


@pytest.fixture
def name(braid: Client) -> Iterator[str]:
    name = f"flights_{uuid.uuid4().hex}"
    yield name
    braid.drop_stream(name, cascade=True)


@pytest.mark.service
@pytest.mark.parametrize("library", FRAMES)
def test_a_frame_becomes_a_stream_and_its_results_frames_again(braid: Client, name: str, library: str) -> None:
    pushed = braid.stream_from(FRAMES[library], name, time="dep_time")
    assert (pushed["accepted"], pushed["rejected"], pushed.get("late", 0)) == (5, 0, 0)
    braid.end_stream(name)
    with braid.query(LATE.format(name), start="earliest") as query:
        query.wait_end()
        late = [{"carrier": "AA", "delay": 33.5}, {"carrier": "AA", "delay": 12.0}]
        assert query.to_arrow().select(["carrier", "delay"]).to_pylist() == late
        assert query.to_pandas()[["carrier", "delay"]].to_dict("records") == late
        assert query.to_polars().select("carrier", "delay").to_dicts() == late
        assert [{key: row[key] for key in ("carrier", "delay")} for row in query] == late
        assert "<td>33.5</td>" in query._repr_html_()
        assert f"query {query.id} FINISHED" in str(query.table())


@pytest.mark.service
def test_the_asynchronous_client_reads_as_the_blocking_one(service: RunningService, braid: Client, name: str) -> None:
    async def read() -> tuple[list[Any], list[Any]]:
        async with AsyncClient(service.url, timeout=60) as client:
            await client.stream_from(FRAMES["polars"], name)
            await client.end_stream(name)
            async with await client.query(LATE.format(name), start="earliest") as query:
                rows = [row["delay"] async for row in query]
                return rows, (await query.to_polars())["delay"].to_list()

    assert asyncio.run(read()) == ([33.5, 12.0], [33.5, 12.0])
    assert braid.stream(name)["tuples"] == 5


def test_columns_of_a_stream_come_from_the_types_of_a_frame() -> None:
    times = pa.array([3_000_000, None, 1_500_000], pa.timestamp("us"))
    frame = pa.table(
        {
            "small": pa.array([1, 2, 3], pa.int16()),
            "id": pa.array([1, 2, 3]),
            'a "b"': pa.array([Decimal("1.10")] * 3),
            "tags": [["x"], [], None],
            "place": [{"city": "x"}] * 3,
            "day": pa.array([1, 2, 3], pa.date32()),
            "time": times,
        }
    )
    assert declaration(frame, "events") == (
        'CREATE STREAM "events" ("small" INT, "id" BIGINT, "a ""b""" DECIMAL(3, 2), "tags" ARRAY<VARCHAR>,'
        ' "place" STRUCT<"city" VARCHAR>, "day" DATE, "time" TIMESTAMP LATENESS INTERVAL \'2\' SECOND)'
        " WITH (connector = 'push', format = 'json')"
    )


def test_a_frame_that_does_not_fit_a_stream_is_refused_with_its_columns() -> None:
    two = pa.table({"a": pa.array([0], pa.timestamp("s")), "b": pa.array([0], pa.timestamp("s"))})
    with pytest.raises(ValueError, match="got None; of timestamps are 'a', 'b'"):
        declaration(two, "events")
    with pytest.raises(ValueError, match=r"column 'took' must have a type that SQL has, got duration\[s\]"):
        declaration(pa.table({"took": pa.array([1], pa.duration("s"))}), "events")


def test_a_large_frame_is_pushed_in_pieces_and_an_index_without_a_name_is_not() -> None:
    frame = pd.DataFrame({"text": ["x" * 1000] * 40_000}).iloc[::2]
    bodies = list(bodies_of(frame))
    assert len(bodies) > 1
    assert max(map(len, bodies)) < 1.1 * MAX_BODY_BYTES
    tables = [pa.ipc.open_stream(body).read_all() for body in bodies]
    assert pa.concat_tables(tables).equals(arrow_of(frame), check_metadata=False)
    assert tables[0].column_names == ["text"]
    assert len(list(bodies_of(frame.iloc[:0]))) == 1
