"""Values as JSON."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.router.row_text import ndjson, objects

DECIMALS = st.decimals(
    min_value=Decimal("-1e20"), max_value=Decimal("1e20"), places=12, allow_nan=False, allow_infinity=False
)


def parsed(table: pa.Table) -> list[Any]:
    """Return the rows as JSON, with exact decimals."""
    return [json.loads(line, parse_float=Decimal) for line in ndjson(table).splitlines()]


@settings(deadline=None)  # the first example imports
@given(st.lists(st.none() | DECIMALS))
def test_decimals_keep_their_digits(values: list[Decimal | None]) -> None:
    table = pa.table({"x": pa.array(values, pa.decimal128(38, 12))})
    decimals = [None if row["x"] is None else Decimal(row["x"]) for row in parsed(table)]
    assert decimals == values


@given(st.lists(st.none() | st.datetimes(min_value=dt.datetime(1, 1, 1), max_value=dt.datetime(9999, 12, 31))))
def test_times_have_microseconds_and_z(values: list[dt.datetime | None]) -> None:
    table = pa.table({"x": pa.array(values, pa.timestamp("us"))})
    expected = [None if v is None else v.isoformat(timespec="microseconds") + "Z" for v in values]
    assert [row["x"] for row in parsed(table)] == expected


@given(st.lists(st.none() | st.dates()))
def test_dates_are_iso(values: list[dt.date | None]) -> None:
    table = pa.table({"x": pa.array(values, pa.date32())})
    assert [row["x"] for row in parsed(table)] == [None if v is None else v.isoformat() for v in values]


@given(st.lists(st.none() | st.floats()))
def test_numbers_that_json_lacks_are_texts(values: list[float | None]) -> None:
    table = pa.table({"x": pa.array(values, pa.float64())})
    lines = [orjson.loads(line)["x"] for line in ndjson(table).splitlines()]
    lacking = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
    assert lines == [None if v is None else lacking.get(str(v), v) for v in values]


@given(
    st.lists(st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text(), st.none() | st.booleans()))
)
def test_other_values_are_themselves(rows: list[Any]) -> None:
    table = pa.table(
        {
            "n": pa.array([r[0] for r in rows], pa.int64()),
            "s": pa.array([r[1] for r in rows], pa.string()),
            "b": pa.array([r[2] for r in rows], pa.bool_()),
        }
    )
    assert [tuple(row.values()) for row in objects(table)] == rows


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["\n", " ", "}", "{", ",", '"', "\\", "\r", "\x85", "\u2028", "é"]))))
def test_texts_that_look_like_the_edge_of_a_row_stay_in_theirs(pieces: list[list[str]]) -> None:
    texts = ["".join(p) for p in pieces]
    lines = ndjson(pa.table({"a": pa.array(texts, pa.string()), "b": pa.array(texts, pa.string())}))
    assert lines.count(b"\n") == len(texts)
    assert [orjson.loads(line) for line in lines.splitlines()] == [{"a": t, "b": t} for t in texts]
    edge = "\n  },\n  {\n    "
    assert orjson.loads(ndjson(pa.table({"a": [edge]}))) == {"a": edge}
