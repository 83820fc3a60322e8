"""Columns whose names have blanks, dots, dashes and quotes are found in every format."""

from __future__ import annotations

import pytest

from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR, Field, StreamSchema
from braid.sources.formats.columns import find_column
from tests.sources.formats.every_format import FORMATS, Decode

NAMES = ("total price", "a.b", "a", "user-id", "SELECT", 'say "hi"', "a,b", " padded ", "größe", "line\nbreak")
SCHEMA = StreamSchema((*(Field(name, BIGINT) for name in NAMES), Field("Event Time", TIMESTAMP)), "Event Time", 0)


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
def test_each_column_gets_its_own_values(decode: Decode) -> None:
    rows = [
        {**{name: 100 * row + number for number, name in enumerate(NAMES)}, "Event Time": "2026-01-01T00:00:00Z"}
        for row in range(3)
    ]
    decoded = decode(rows, SCHEMA)
    assert decoded.malformed == ()
    assert [{name: row[name] for name in NAMES} for row in decoded.tuples.to_pylist()] == [
        {name: row[name] for name in NAMES} for row in rows
    ]


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
def test_null_is_told_of_the_right_column(decode: Decode) -> None:
    schema = StreamSchema((Field("a.b", VARCHAR), Field("a", VARCHAR, not_null=True), Field("t", TIMESTAMP)), "t", 0)
    rows = [{"a.b": None, "a": "x", "t": "2026-01-01 00:00:00"}, {"a.b": "y", "a": None, "t": "2026-01-01 00:00:00"}]
    decoded = decode(rows, schema)
    assert decoded.tuples.column("a").to_pylist() == ["x"]
    assert "column 'a' is NOT NULL" in decoded.malformed[0].detail


def test_blanks_around_the_names_of_a_header_count_only_where_they_must() -> None:
    assert find_column(["k", " price "], "price") == 1
    assert find_column([" price ", "price"], " price ") == 0
    assert find_column([" price ", "price"], "price") == 1
