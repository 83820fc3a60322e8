"""A body whose rows lack a column and have a name that is no column's says so: the name may be misspelt."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR, Field, StreamSchema
from braid.sources.formats import Decoded, decode
from tests.sources.formats.every_format import ARROW, JSON, NDJSON

SCHEMA = StreamSchema(
    (Field("k", BIGINT), Field("price", BIGINT), Field("city", VARCHAR, source="$.place.city"), Field("t", TIMESTAMP)),
    "t",
    0,
)
TIME = {"t": "2026-01-01T00:00:00Z"}
PLACE = {"place": {"city": "Bonn"}}


def odd(decoded: Decoded) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return decoded.missing, decoded.unknown


def ndjson(*rows: object, padding: int = 0) -> bytes:
    return b"\n".join([orjson.dumps(row) for row in rows] + [b" " * padding])


def test_a_misspelt_member_is_told_with_the_column_that_has_no_value() -> None:
    rows = [{"k": 1, "prise": 2, **PLACE, **TIME}, {"k": 3, "prise": 4, "colour": "red", **PLACE, **TIME}]
    expected = (("price",), ("prise", "colour"))
    assert odd(decode(ndjson(*rows), NDJSON, SCHEMA)) == expected
    assert odd(decode(ndjson(*rows * 1000), NDJSON, SCHEMA)) == expected, "by the quick parser"
    assert odd(decode(orjson.dumps(rows), JSON, SCHEMA)) == expected
    assert odd(decode(orjson.dumps(rows[1], option=orjson.OPT_INDENT_2), JSON, SCHEMA)) == expected
    assert odd(decode(b"not json\n\n" + ndjson(*rows), NDJSON, SCHEMA)) == expected, "malformed lines do not hide it"


@pytest.mark.parametrize(
    "row",
    [
        {"k": 1, **PLACE, **TIME},
        {"k": 1, "price": 2, "colour": "red", **PLACE, **TIME},
        {"k": 1, "price": None, "colour": "red", **PLACE, **TIME},
        {"k": 1, "PRICE": 2, "place": {}, "colour": "red", **TIME},
    ],
    ids=["left out", "of no use", "NULL", "in other case"],
)
def test_what_may_be_left_out_or_is_of_no_use_is_not_told(row: dict[str, object]) -> None:
    assert odd(decode(ndjson(row), NDJSON, SCHEMA)) == ((), ())
    assert odd(decode(orjson.dumps([row]), JSON, SCHEMA)) == ((), ())


def test_a_column_that_a_later_row_has_is_not_missing() -> None:
    rows = [{"k": 1, "colour": 2, **PLACE, **TIME}] * 100 + [{"k": 1, "price": 2, **PLACE, **TIME}]
    assert odd(decode(ndjson(*rows), NDJSON, SCHEMA)) == ((), ())


def test_a_name_like_that_of_a_column_is_told_where_some_rows_have_it() -> None:
    rows = [{"k": 1, "price": 2, **PLACE, **TIME}] * 100 + [{"k": 1, "prise": 2, "colour": "red", **PLACE, **TIME}]
    assert odd(decode(b"bad\n\n" + ndjson(*rows), NDJSON, SCHEMA)) == ((), ("prise",))
    assert odd(decode(ndjson(*rows * 100), NDJSON, SCHEMA)) == ((), ("prise",)), "by the quick parser"


def test_names_are_told_where_all_rows_are_malformed() -> None:
    row = {"k": 1, "price": 2, **PLACE, "tme": "2026-01-01T00:00:00Z"}
    for decoded in (decode(ndjson(row), NDJSON, SCHEMA), decode(orjson.dumps([row]), JSON, SCHEMA)):
        assert (decoded.tuples.num_rows, len(decoded.malformed)) == (0, 1)
        assert odd(decoded) == (("t",), ("tme",))


def test_hostile_names_fit_in_an_answer() -> None:
    names = ['"\\ud800"', f'"{"x" * 10**6}"', *(f'"n{number}"' for number in range(1000))]
    row = f'{{"t": "2026-01-01T00:00:00Z", {", ".join(f"{name}: 1" for name in names)}}}'.encode()
    for form, body in ((NDJSON, row), (JSON, b"[" + row + b"]")):
        decoded = decode(body, form, SCHEMA)
        assert decoded.tuples.num_rows == 1
        assert len(decoded.unknown) <= 50
        assert len(orjson.dumps(decoded.unknown)) < 10_000, "an answer can have it"


def test_an_object_is_missed_by_its_own_name() -> None:
    row = {"k": 1, "price": 2, "plaice": {"city": "Bonn"}, **TIME}
    assert odd(decode(ndjson(row), NDJSON, SCHEMA)) == (("city",), ("plaice",))


def test_a_misspelt_column_of_arrow_is_told() -> None:
    def body(**columns: list[object]) -> bytes:
        table = pa.table(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    schema = StreamSchema((Field("k", BIGINT), Field("price", BIGINT), Field("t", TIMESTAMP)), "t", 0)
    assert odd(decode(body(k=[1], prise=[2], t=["2026-01-01"]), ARROW, schema)) == (("price",), ("prise",))
    assert odd(decode(body(k=[1], t=["2026-01-01"]), ARROW, schema)) == ((), ())
