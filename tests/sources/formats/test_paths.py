"""Columns that are read from a path: members of objects, places in arrays, members of structs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.errors import MalformedRequest, NotAllowed, ServiceError
from braid.sources.core.json_paths import read_path
from braid.sources.core.schema import BIGINT, DOUBLE, INT, TIMESTAMP, VARCHAR, Field, Schema, StreamSchema
from braid.sources.formats import decode
from braid.sources.formats.columns import check_paths
from braid.sources.formats.json_document import lines_of
from braid.sources.formats.ndjson import read_carefully, read_fast
from braid.sources.formats.parquet_rows import ParquetRows
from braid.sources.formats.record_batches import match_columns
from tests.kit.duck import connected
from tests.sources.formats.every_format import ARROW_FORMATS, FORMATS, JSON_FORMATS, Decode

TIME = "2026-01-01T00:00:00Z"
SCHEMA = StreamSchema(
    (
        Field("user_id", BIGINT, source="$.user.id"),
        Field("city", VARCHAR, source="$.user.address['home town']"),
        Field("k", INT),
        Field("t", TIMESTAMP, source="$.meta.at"),
    ),
    "t",
    0,
)


def row(number: int, **user: Any) -> dict[str, Any]:
    return {"k": number, "user": user, "meta": {"at": TIME, "more": [1, 2], "deep": {"er": {"x": [{"z": 1}]}}}}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$.user.id", ("user", "id")),
        ("$['user id'].x", ("user id", "x")),
        ('$["a.b"][0]', ("a.b", 0)),
        ('$."a b".größe[12]', ("a b", "größe", 12)),
        ("User ID", ("User ID",)),
        ("a.b", ("a.b",)),
    ],
)
def test_what_paths_mean(text: str, path: tuple[str | int, ...]) -> None:
    assert read_path(text) == path


@pytest.mark.parametrize("text", ["$", "$.", "$.a.", "$..a", "$[0]", "$.a[*]", "$.a[-1]", "$.a[?(@.b)]", "$a", "$['a]"])
def test_paths_that_are_refused(text: str) -> None:
    with pytest.raises(NotAllowed, match=r"as '\$\.user\.id'"):
        read_path(text)


@pytest.mark.parametrize("decode", {**JSON_FORMATS, **ARROW_FORMATS}.values(), ids={**JSON_FORMATS, **ARROW_FORMATS})
def test_members_of_objects_and_structs(decode: Decode) -> None:
    rows: list[dict[str, Any]] = [
        row(1, id=7, address={"home town": "Ulm"}),
        row(2, id=None, address=None),
        {**row(3), "user": None},
        row(4, id=9, address={"home town": None}),
    ]
    decoded = decode(rows, SCHEMA)
    assert decoded.malformed == ()
    assert decoded.tuples.schema == SCHEMA.arrow
    assert decoded.tuples.column("user_id").to_pylist() == [7, None, None, 9]
    assert decoded.tuples.column("city").to_pylist() == ["Ulm", None, None, None]
    assert decoded.tuples.column("k").to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize("decode", JSON_FORMATS.values(), ids=JSON_FORMATS)
def test_what_is_no_object_has_no_members(decode: Decode) -> None:
    rows = [row(1, id=7), {**row(2), "user": 5}, {**row(3), "user": [{"id": 1}]}, {"k": 4}]
    decoded = decode(rows, SCHEMA)
    assert decoded.tuples.column("user_id").to_pylist() == [7, None, None]
    assert "column 't' is the event time" in decoded.malformed[0].detail


@pytest.mark.parametrize("decode", JSON_FORMATS.values(), ids=JSON_FORMATS)
def test_a_value_that_does_not_fit_names_its_column(decode: Decode) -> None:
    decoded = decode([row(1, id="x"), row(2, id={"a": 1}), row(3, id=3.0)], SCHEMA)
    assert decoded.tuples.column("user_id").to_pylist() == [3]
    assert "column 'user_id' must be a BIGINT, got 'x'" in decoded.malformed[0].detail
    assert "column 'user_id' must be a BIGINT, got an object" in decoded.malformed[1].detail


@pytest.mark.parametrize("decode", JSON_FORMATS.values(), ids=JSON_FORMATS)
def test_places_in_arrays(decode: Decode) -> None:
    schema = StreamSchema(
        (Field("first", DOUBLE, source="$.items[0].price"), Field("second", DOUBLE, source="$.items[1].price"),
         Field("t", TIMESTAMP)), "t", 0,
    )  # fmt: skip
    rows = [
        {"items": [{"price": 1.5}, {"price": 2}], "t": TIME},
        {"items": [], "t": TIME},
        {"items": {"0": 1}, "t": TIME},
    ]
    decoded = decode(rows, schema)
    assert decoded.tuples.column("first").to_pylist() == [1.5, None, None]
    assert decoded.tuples.column("second").to_pylist() == [2.0, None, None]


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
def test_a_name_alone_renames_a_column_of_the_input(decode: Decode) -> None:
    schema = StreamSchema((Field("user_id", BIGINT, source="User ID"), Field("t", TIMESTAMP, source="_time")), "t", 0)
    decoded = decode([{"User ID": 5, "_time": TIME}], schema)
    assert decoded.tuples.column("user_id").to_pylist() == [5]


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([1.0, 2.5, "a", TIME, "}", "{", "\n", '"']),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "ID", "at", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
OBJECTS = st.fixed_dictionaries({}, optional={"user": VALUES, "User": VALUES, "meta": VALUES, "k": VALUES})
LINES = st.lists(
    st.one_of(
        OBJECTS.map(lambda value: json.dumps(value)),
        OBJECTS.map(lambda value: orjson.dumps(value).decode()),
        st.builds(lambda k: json.dumps(row(k, id=k)), st.integers(0, 9)),
        st.sampled_from(
            ['{"user":', '{"id": 1}}', '{"user": {"id": 1}} {"k": 1}', '{"user": {"id": NaN}}', "{}", "[{}]"]
        ),
    ),
    min_size=1,
    max_size=4,
)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_arrow_reads_is_what_reading_line_by_line_gives(lines: list[str], end: str, is_ended: bool) -> None:
    schema = Schema(tuple(Field(f.name, f.type, source=f.source) for f in SCHEMA.fields))
    body = (end.join(lines) + (end if is_ended else "")).encode()
    fast = read_fast(body, schema)
    if fast is not None:
        careful = read_carefully(body, schema)
        assert not careful.malformed
        assert fast.equals(careful.tuples)


def test_nested_objects_take_the_fast_way() -> None:
    body = b"\n".join(json.dumps(row(n, id=n, address={"home town": "}{"})).encode() for n in range(1000))
    fast = read_fast(body, SCHEMA)
    assert fast is not None
    assert fast.equals(read_carefully(body, SCHEMA).tuples)
    lines = lines_of(b"[" + body.replace(b"\n", b", ") + b"]")
    assert lines is not None
    of_array = read_fast(lines, SCHEMA)
    assert of_array is not None
    assert of_array.equals(fast)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_values_are_those_that_duckdb_finds(values: list[Any]) -> None:
    schema = Schema((Field("x", VARCHAR, source="$.user.at"),))
    rows = [{"user": {"at": value}} if i % 2 else {"user": value} for i, value in enumerate(values)]
    body = b"\n".join(map(orjson.dumps, rows))
    decoded = decode(body, "application/x-ndjson", schema)
    wrong = {fault.line - 1 for fault in decoded.malformed}
    with connected() as duck:
        for i, found in zip((i for i in range(len(rows)) if i not in wrong), decoded.tuples.column("x"), strict=True):
            query = "SELECT CASE json_type(?::JSON, '$.user.at') WHEN 'VARCHAR' THEN ?::JSON ->> '$.user.at' END"
            assert duck.execute(query, [orjson.dumps(rows[i]).decode()] * 2).fetchone() == (found.as_py(),)


def test_structs_without_the_member_are_refused() -> None:
    table = pa.table({"user": [{"name": "a"}], "k": [1], "meta": [{"at": TIME}]})
    for columns in (table, table.set_column(0, "user", pa.array([5]))):
        with pytest.raises(
            MalformedRequest, match=r"Column 'user_id', FROM '\$\.user\.id', must be a member of structs"
        ):
            match_columns(columns.schema, SCHEMA)


def test_of_a_struct_in_parquet_only_the_member_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    schema = Schema((Field("id", BIGINT, source="$.user.id"), Field("a.b", BIGINT), Field("a", BIGINT)))
    pq.write_table(pa.table({"user": [{"id": 1, "blob": "x" * 100}], "a.b": [2], "a": [3]}), path)
    parquet = ParquetRows(str(path))
    columns = match_columns(parquet.schema, schema)
    assert columns.names == ["user.id", "a.b", "a"]
    (batch,) = parquet.batches(0, columns.names, 10)
    assert batch.schema.field("user").type == pa.struct({"id": pa.int64()})
    assert match_columns(batch.schema, schema).decode(batch).tuples.to_pylist() == [{"id": 1, "a.b": 2, "a": 3}]


def test_long_texts_of_members_are_read_few_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    schema = Schema((Field("s", VARCHAR, source="$.a.s"),))
    texts = pa.array(["x" * (1 << 20)] * 1000).dictionary_encode()
    pq.write_table(pa.table({"a": pa.StructArray.from_arrays([texts], ["s"])}), path)
    assert path.stat().st_size < 2 << 20
    parquet = ParquetRows(str(path))
    rows = [batch.num_rows for batch in parquet.batches(0, match_columns(parquet.schema, schema).names, 1 << 16)]
    assert max(rows) <= 64
    assert sum(rows) == 1000


def test_times_of_int96_in_structs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = pa.array([1, 2], pa.timestamp("us"))
    table = pa.table({"a": pa.StructArray.from_arrays([times], ["t"]), "t": times})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    parquet = ParquetRows(str(path))
    with pytest.raises(MalformedRequest, match="INT96 in structs and lists are not read"):
        list(parquet.batches(0, ["a.t"], 10))
    assert sum(batch.num_rows for batch in parquet.batches(0, ["t"], 10)) == 2


def struct_body() -> bytes:
    rows = [row(n, id=n, address={"home town": "Ulm"} if n % 2 else None) for n in range(4)]
    table = pa.Table.from_pylist(rows).append_column(
        "v", pa.array([{"w": "x" * 20}] * 4, pa.struct({"w": pa.string_view()}))
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@given(
    st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255)), max_size=4
    )
)
def test_damaged_structs_raise_nothing_but_braid_errors(changes: list[tuple[int, int]]) -> None:
    schema = StreamSchema((*SCHEMA.fields, Field("w", VARCHAR, source="$.v.w")), "t", 0)
    damaged = bytearray(struct_body())
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    try:
        tuples = decode(bytes(damaged), "application/vnd.apache.arrow.stream", schema).tuples
    except ServiceError:
        return
    tuples.validate(full=True)
    tuples.to_pylist()


@pytest.mark.parametrize("format", ["csv", "avro"])
def test_formats_without_objects_refuse_paths(format: str) -> None:
    with pytest.raises(NotAllowed, match=f"format '{format}' is read without objects"):
        check_paths(SCHEMA, format)
    check_paths(Schema((Field("k", INT, source="K 1"),)), format)
