"""Values with parts: each format gives the tuples that DuckDB reads, and names the part that does not fit."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.errors import MalformedRequest, TooLarge
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    JSON,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    Schema,
    array_of,
    map_of,
)
from braid.sources.formats import decode, json_rows, nested
from braid.sources.formats.csv_records import CsvLayout, read_carefully
from braid.sources.formats.json_values import json_texts_of
from braid.sources.formats.limits import DecodingLimits
from braid.sources.formats.nested import MAX_VALUE_BYTES
from tests.kit.duck import connected
from tests.sources.formats.every_format import ARROW, FORMATS, JSON_FORMATS, NDJSON

DECIMAL = ColumnType("DECIMAL", 10, 2)
PLAIN: dict[ColumnType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**53), 2**53),
    DOUBLE: st.floats(-1e6, 1e6).map(lambda v: v + 0.0),
    DECIMAL: st.decimals("-9999", "9999", places=2),
    VARCHAR: st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
    DATE: st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    TIMESTAMP: st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
}
NAMES = ("a", "b", "Total price", "end")


def struct_of(**members: ColumnType) -> ColumnType:
    return ColumnType("STRUCT", members=tuple(members.items()))


def types_of_parts(inner: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[ColumnType]:
    members = st.lists(st.tuples(st.sampled_from(NAMES), inner), min_size=1, max_size=3, unique_by=lambda m: m[0])
    return st.one_of(
        inner.map(array_of),
        inner.map(lambda value: map_of(VARCHAR, value)),
        members.map(lambda pairs: ColumnType("STRUCT", members=tuple(pairs))),
    )


TYPES = types_of_parts(st.recursive(st.sampled_from(list(PLAIN)), types_of_parts, max_leaves=4))


def values_of(kind: ColumnType) -> st.SearchStrategy[Any]:
    """Return values as pyarrow gives them back, NULL in every place: maps as lists of pairs."""
    if kind.kind == "ARRAY":
        inner: st.SearchStrategy[Any] = st.lists(values_of(kind.members[0][1]), max_size=3)
    elif kind.kind == "MAP":
        entries = st.tuples(st.sampled_from(NAMES), values_of(kind.members[1][1]))
        inner = st.lists(entries, max_size=3, unique_by=lambda entry: entry[0])
    elif kind.kind == "STRUCT":
        inner = st.fixed_dictionaries({name: values_of(member) for name, member in kind.members})
    else:
        inner = PLAIN[kind]
    return st.none() | inner


@st.composite
def columns(draw: st.DrawFn) -> tuple[ColumnType, list[Any]]:
    kind = draw(TYPES)
    return kind, draw(st.lists(values_of(kind), min_size=1, max_size=5))


def as_json(value: Any, kind: ColumnType) -> Any:
    """Return a value as JSON has it."""
    if value is None:
        return None
    if kind.kind == "ARRAY":
        return [as_json(each, kind.members[0][1]) for each in value]
    if kind.kind == "MAP":
        return {key: as_json(each, kind.members[1][1]) for key, each in value}
    if kind.kind == "STRUCT":
        return {name: as_json(value[name], member) for name, member in kind.members}
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    return value


def written(column: tuple[ColumnType, list[Any]]) -> list[bytes]:
    kind, values = column
    return [orjson.dumps({"v": as_json(value, kind)}) for value in values]


@given(columns())
def test_json_gives_back_what_was_written(column: tuple[ColumnType, list[Any]]) -> None:
    kind, values = column
    lines = written(column)
    schema = Schema((Field("v", kind),))
    for body, media in ((b"\n".join(lines), NDJSON), (b"[" + b",".join(lines) + b"]", "application/json")):
        decoded = decode(body, media, schema)
        assert not decoded.malformed
        decoded.tuples.validate(full=True)
        assert decoded.tuples.column("v").to_pylist() == values
    again = [None if text is None else orjson.loads(text) for text in json_texts_of(decoded.tuples.column("v"))]
    body = b"\n".join(orjson.dumps({"v": value}) for value in again)
    if not kind.has_kind("DECIMAL"):  # whose digits Python's floats lose
        assert decode(body, NDJSON, schema).tuples.equals(decoded.tuples)


@given(columns())
def test_fields_of_csv_hold_json(column: tuple[ColumnType, list[Any]]) -> None:
    kind, values = column
    schema = Schema((Field("k", INT), Field("v", kind)))
    texts = ["" if value is None else orjson.dumps(as_json(value, kind)).decode() for value in values]
    lines = "".join(f'1,"{text.replace(chr(34), chr(34) * 2)}"\n' if text else "1,\n" for text in texts)
    decoded = read_carefully(lines.encode(), schema, CsvLayout.declared(schema, ","))
    assert decoded.tuples.column("v").to_pylist() == values


@given(columns(), st.integers(0, 2), st.integers(0, 2))
def test_arrow_is_taken_over_in_slices_and_other_layouts(
    column: tuple[ColumnType, list[Any]], before: int, after: int
) -> None:
    kind, values = column
    padded = pa.array([*values[:1] * before, *values, *values[:1] * after], kind.arrow)
    array = padded.slice(before, len(values))
    for sent in (array, array.cast(other_layout(kind))):
        sink = pa.BufferOutputStream()
        table = pa.table({"v": sent})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        decoded = decode(sink.getvalue().to_pybytes(), ARROW, Schema((Field("v", kind),)))
        assert not decoded.malformed
        decoded.tuples.validate(full=True)
        assert decoded.tuples.column("v").type == kind.arrow
        assert decoded.tuples.column("v").to_pylist() == values


def other_layout(kind: ColumnType) -> Any:
    """Return another Arrow type that values of a type may come in."""
    if kind.kind == "ARRAY":
        return pa.large_list(other_layout(kind.members[0][1]))
    if kind.kind == "MAP":
        return pa.map_(pa.string(), other_layout(kind.members[1][1]))
    if kind.kind == "STRUCT":
        return pa.struct([(name, other_layout(member)) for name, member in kind.members])
    return {VARCHAR: pa.large_string(), TIMESTAMP: pa.timestamp("us", "UTC")}.get(kind, kind.arrow)


@given(columns())
def test_values_are_those_that_duckdb_reads(column: tuple[ColumnType, list[Any]]) -> None:
    kind, values = column
    texts = [None if value is None else orjson.dumps(as_json(value, kind)).decode() for value in values]
    with connected() as duck:
        rows = duck.execute(f"SELECT CAST(unnest($1)::JSON AS {duck_type(kind)})", [texts]).fetchall()
    assert [plain(row[0]) for row in rows] == [plain(as_map(value, kind)) for value in values]


def duck_type(kind: ColumnType) -> str:
    if kind.kind == "STRUCT":
        return f"STRUCT({', '.join(f'{chr(34)}{name}{chr(34)} {duck_type(member)}' for name, member in kind.members)})"
    if kind.kind == "ARRAY":
        return f"{duck_type(kind.members[0][1])}[]"
    return f"MAP(VARCHAR, {duck_type(kind.members[1][1])})" if kind.kind == "MAP" else str(kind)


def as_map(value: Any, kind: ColumnType) -> Any:
    """Return a value with its maps as DuckDB gives them."""
    if value is None:
        return None
    if kind.kind == "ARRAY":
        return [as_map(each, kind.members[0][1]) for each in value]
    if kind.kind == "MAP":
        return {key: as_map(each, kind.members[1][1]) for key, each in value}
    if kind.kind == "STRUCT":
        return {name: as_map(value[name], member) for name, member in kind.members}
    return value


def plain(value: Any) -> Any:
    """Return a value with DuckDB's way to give maps of older versions made that of newer ones."""
    if isinstance(value, dict) and set(value) == {"key", "value"} and isinstance(value["key"], list):
        return dict(zip(value["key"], map(plain, value["value"]), strict=True))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


ORDER = struct_of(id=BIGINT, items=array_of(struct_of(sku=VARCHAR, qty=INT)), labels=map_of(VARCHAR, INT))


@pytest.mark.parametrize("form", [*JSON_FORMATS, "arrow", "parquet"])
def test_names_of_members_may_differ_in_case_and_members_may_lack(form: str) -> None:
    schema = Schema((Field("v", struct_of(id=BIGINT, name=VARCHAR, more=array_of(INT))),))
    decoded = FORMATS[form]([{"v": {"ID": 1, "other": [1]}}, {"v": None}, {"V": {"ID": 2, "other": []}}][:2], schema)
    assert decoded.tuples.to_pylist() == [{"v": {"id": 1, "name": None, "more": None}}, {"v": None}]


@pytest.mark.parametrize("form", list(JSON_FORMATS))
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("text", "column 'v' must be a STRUCT<"),
        ([1], "column 'v' must be a STRUCT<"),
        ({"id": "x"}, "column 'v.id' must be a BIGINT, got 'x'"),
        ({"items": {}}, "column 'v.items' must be an ARRAY<"),
        ({"items": [{"qty": 1}, {"qty": 1.5}]}, "column 'v.items[].qty' must be an INT, got 1.5 (it must be whole)"),
        ({"items": [7]}, "column 'v.items[]' must be a STRUCT<"),
        ({"labels": {"a": 1, "b": True}}, "column 'v.labels{}' must be an INT, got true"),
        ({"labels": [["a", 1]]}, "column 'v.labels' must be a MAP<"),
    ],
)
def test_what_does_not_fit_in_a_part_is_named(form: str, value: Any, complaint: str) -> None:
    schema = Schema((Field("v", ORDER),))
    decoded = FORMATS[form]([{"v": {"id": 1}}, {"v": value}, {"v": None}], schema)
    assert [row["v"] for row in decoded.tuples.to_pylist()] == [{"id": 1, "items": None, "labels": None}, None]
    (fault,) = decoded.malformed
    assert complaint in fault.detail


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (pa.array([{"id": 1}, {"id": None}]), None),
        (pa.array([{"id": 1.0}, {"id": 1.5}]), "'v.id' must be a BIGINT, got 1.5"),
        (pa.array([{"items": [{"qty": 1}]}, {"items": [{"qty": 2**40}]}]), "'v.items[].qty' must be an INT"),
    ],
)
def test_parts_of_arrow_that_do_not_fit_are_named(values: pa.Array, complaint: str | None) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("v", values.type)])) as writer:
        writer.write_table(pa.table({"v": values}))
    decoded = decode(sink.getvalue().to_pybytes(), ARROW, Schema((Field("v", ORDER),)))
    assert [complaint is not None and complaint in fault.detail for fault in decoded.malformed] == [True] * (
        complaint is not None
    )
    assert decoded.tuples.num_rows == 2 - len(decoded.malformed)


WIDE = Schema((Field("v", array_of(ColumnType("STRUCT", members=tuple((f"m{n}", INT) for n in range(1000))))),))


def test_arrays_of_little_text_whose_elements_take_much_are_malformed() -> None:
    most = MAX_VALUE_BYTES // 4000
    body = b'{"v": [{"m0": 1}]}\n{"v": [' + b",".join([b"{}"] * (most + 1)) + b"]}"
    decoded = decode(body, NDJSON, WIDE)
    (fault,) = decoded.malformed
    assert fault.detail == f"line 2: column 'v' must have at most {most} elements, got {most + 1}"
    assert [len(value) for value in decoded.tuples.column("v").to_pylist()] == [1]


def test_messages_show_only_the_begin_of_a_long_type() -> None:
    (fault,) = decode(b'{"v": 1}', NDJSON, WIDE).malformed
    assert fault.detail.startswith("line 1: column 'v' must be an ARRAY<STRUCT<m0 INT, m1 INT")
    assert len(fault.detail) < 200


@pytest.mark.parametrize("media", [NDJSON, "application/json"])
def test_many_such_arrays_are_refused_before_all_are_made(media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    assemble = json_rows.assemble
    monkeypatch.setattr(nested, "MAX_STEP_BYTES", 1 << 20)
    monkeypatch.setattr(json_rows, "assemble", lambda *args: made.append(args) or assemble(*args))
    row = b'{"v":[' + b",".join([b"{}"] * 100) + b"]}"
    body = b"\n".join([row] * 40) if media == NDJSON else b"[" + b",".join([row] * 40) + b"]"
    with pytest.raises(TooLarge, match="unpack to at most 8000000 bytes"):
        decode(body, media, WIDE, DecodingLimits(unpacked_bytes=8_000_000))
    assert 1 < len(made) < 30
    monkeypatch.undo()
    assert decode(body, media, WIDE).tuples.num_rows == 40


JSON_SCHEMA = Schema((Field("v", JSON),))


def test_json_columns_keep_any_json() -> None:
    values: list[Any] = [{"b": [1, 2.5, None], "a": {"c": "ü"}}, [], "text", 7, True, {"big": 2**63}]
    body = b"\n".join(orjson.dumps({"v": value}, option=orjson.OPT_INDENT_2).replace(b"\n", b" ") for value in values)
    texts = decode(body, NDJSON, JSON_SCHEMA).tuples.column("v").to_pylist()
    assert list(map(orjson.loads, texts)) == values
    assert texts[0] == '{"b":[1,2.5,null],"a":{"c":"ü"}}'
    exact = Schema((Field("v", JSON), Field("d", DECIMAL)))
    decoded = decode(b'{"v": {"n": 1.10}, "d": 1.5}', NDJSON, exact)
    assert decoded.tuples.to_pylist() == [{"v": '{"n":1.10}', "d": Decimal("1.50")}]


@pytest.mark.parametrize("schema", [JSON_SCHEMA, Schema((Field("v", JSON), Field("d", DECIMAL)))])
def test_numbers_of_json_keep_the_digits_of_integers_of_any_length(schema: Schema) -> None:
    text = '{"n":[123456789012345678901234567890,18446744073709551616,-9223372036854775809,1E+400]}'
    line = f'{{"v": {text}}}'.encode()
    for body, media in ((line, NDJSON), (b"[" + line + b"]", "application/json")):
        decoded = decode(body, media, schema)
        assert decoded.malformed == ()
        assert decoded.tuples.column("v").to_pylist() == [text]


def test_texts_of_json_are_read_from_arrow_and_csv() -> None:
    texts = ['{"a": 1}', "[1, 2]", None, "no json", '"text"']
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("v", pa.string())])) as writer:
        writer.write_table(pa.table({"v": texts}))
    decoded = decode(sink.getvalue().to_pybytes(), ARROW, JSON_SCHEMA)
    assert decoded.tuples.column("v").to_pylist() == ['{"a":1}', "[1,2]", None, '"text"']
    assert "must be a JSON, got 'no json' (it must be JSON" in decoded.malformed[0].detail
    schema = Schema((Field("k", INT), Field("v", JSON)))
    decoded = read_carefully(b'1,"{""a"": 1}"\n1,\n1,x\n', schema, CsvLayout.declared(schema, ","))
    assert decoded.tuples.column("v").to_pylist() == ['{"a":1}', None]
    assert len(decoded.malformed) == 1


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (pa.list_(pa.duration("s")), array_of(VARCHAR)),
        (pa.list_(pa.int32()), array_of(VARCHAR)),
        (pa.struct([("a", pa.string())]), array_of(INT)),
        (pa.map_(pa.int32(), pa.int32()), map_of(VARCHAR, INT)),
        (pa.list_view(pa.int32()), array_of(INT)),
        (pa.struct([("id", pa.list_(pa.int8()))]), struct_of(id=INT)),
        (pa.struct([]), struct_of(id=INT)),
        (pa.list_(pa.int8(), 2), struct_of(id=INT)),
        (pa.struct([("a", pa.int8())]), JSON),
    ],
    ids=str,
)
def test_types_of_arrow_that_do_not_fit_are_refused_before_values_are_read(sent: pa.DataType, kind: ColumnType) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("v", sent)])) as writer:
        writer.write_table(pa.schema([("v", sent)]).empty_table())
    with pytest.raises(MalformedRequest, match="Column 'v' must be castable to"):
        decode(sink.getvalue().to_pybytes(), ARROW, Schema((Field("v", kind),)))
