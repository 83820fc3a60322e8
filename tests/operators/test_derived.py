"""Rows of queries as tuples of derived streams: their columns, types and event times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from braid.operators.derived import QueryBehind, as_tuples, derived_stream, queries_behind, with_time
from braid.operators.evaluation import evaluate
from braid.operators.queries import Query, Selection
from braid.operators.result_rows import compute_outputs
from braid.sources.core.schema import StreamDefinition
from tests.kit.plans import plan_select
from tests.session.sql.catalog import define, plan

NESTED = define(
    "CREATE STREAM s (id INT, c STRUCT<name VARCHAR, zip INT>, a ARRAY<INT>, m MAP<VARCHAR, INT>, j JSON,"
    " d DECIMAL(10, 2), ts TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push', format = 'json')",
    "s-1",
)
AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC).replace(tzinfo=None)
ROW: dict[str, Any] = {
    "id": 1, "c": {"name": "x", "zip": None}, "a": [1, None], "m": [("k", 3)], "j": '{"a":1}', "d": None, "ts": AT,
}  # fmt: skip


def tuples_of(query: Query, columns: pa.Table) -> tuple[StreamDefinition, pa.RecordBatch]:
    stream = derived_stream("q-1", "q", [QueryBehind("q-1", query)])
    (each,) = queries_behind(StreamDefinition.from_json(stream.to_json()))
    assert each.query == query
    timed = with_time(each.query)
    return stream, as_tuples(compute_outputs(timed, columns, columns.num_rows), stream, timed)


@pytest.mark.parametrize("listed", ["*", "id, c, a, m, j, d", "c.name, a[1] AS first, j ->> 'a' AS j, j AS doc"])
def test_rows_of_selections_are_tuples_with_the_time_of_theirs(listed: str) -> None:
    query = plan_select(f"SELECT {listed} FROM s", {"s": NESTED})
    assert isinstance(query, Selection)
    table = pa.Table.from_pylist([ROW, {**ROW, "c": None, "a": None, "j": None}], NESTED.schema.arrow)
    stream, tuples = tuples_of(query, table)
    assert tuples.schema.equals(stream.schema.arrow)
    assert tuples.column(stream.schema.event_time).to_pylist() == [AT, AT]
    assert stream.schema.hidden == (() if listed == "*" else ("ts",))
    for output in query.outputs:
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        expected = evaluate(output.expression, columns, 2).to_pylist()
        assert tuples.column(output.name).to_pylist() == expected


def test_rows_of_windows_have_the_last_moment_of_their_window() -> None:
    query = plan("SELECT gem_pack AS window_time, COUNT(*) AS n FROM purchases [RANGE 1 MINUTE] GROUP BY gem_pack")
    end = datetime(2026, 1, 1, 0, 1)
    bounds = pa.array([end], pa.timestamp("us"))
    table = pa.table({"window_start": bounds, "window_end": bounds, "key0": pa.array([7], pa.int32()), "count(*)": [3]})
    stream, tuples = tuples_of(query, table)
    assert stream.schema.event_time == "window_time_2", "an output has the name"
    assert tuples.to_pylist() == [
        {
            "window_start#": end,
            "window_end#": end,
            "window_time": 7,
            "n": 3,
            "window_time_2": datetime(2026, 1, 1, 0, 0, 59, 999_999),
        }
    ]
