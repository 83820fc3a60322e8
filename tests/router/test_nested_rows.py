"""Rows whose values have parts: in JSON as they are, in CSV as JSON, in Parquet and Arrow in types of their own."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.api.routes.rows import arrow_stream
from braid.router.row_text import json_lines, ndjson, objects, pieces
from braid.router.sinks.encoding import encode
from braid.router.sinks.postgres import type_of

ITEM = pa.struct([("sku", pa.string()), ("at", pa.timestamp("us")), ("price", pa.decimal128(6, 2))])
VALUES: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "items": [[{"sku": 'a "b"\n', "at": None, "price": Decimal("1.50")}, None], [], None],
    "labels": [[("k", 1.5), ("l", None)], None, []],
    "extra": ['{"a":[1,{"b":"},\\n"}]}', None, "7"],
    "deep": [{"x": {"y": [[1], None]}}, {"x": None}, None],
}
TABLE = pa.table(
    {
        "id": VALUES["id"],
        "items": pa.array(VALUES["items"], pa.list_(ITEM)),
        "labels": pa.array(VALUES["labels"], pa.map_(pa.string(), pa.float64())),
        "extra": pa.ExtensionArray.from_storage(pa.json_(), pa.array(VALUES["extra"])),
        "deep": pa.array(VALUES["deep"], pa.struct([("x", pa.struct([("y", pa.list_(pa.list_(pa.int32())))]))])),
    }
)
ROWS = [
    {
        "id": 1,
        "items": [{"sku": 'a "b"\n', "at": None, "price": 1.5}, None],
        "labels": {"k": 1.5, "l": None},
        "extra": {"a": [1, {"b": "},\n"}]},
        "deep": {"x": {"y": [[1], None]}},
    },
    {"id": 2, "items": [], "labels": None, "extra": None, "deep": {"x": None}},
    {"id": 3, "items": None, "labels": {}, "extra": 7, "deep": None},
]
CHUNKED = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 1), TABLE.slice(2)])


@pytest.mark.parametrize("table", [TABLE, CHUNKED], ids=["whole", "in chunks"])
def test_json_has_objects_and_arrays(table: pa.Table) -> None:
    assert [orjson.loads(line) for line in ndjson(table).splitlines()] == ROWS
    assert [orjson.loads(line) for line in json_lines(table.slice(1))] == ROWS[1:]
    assert orjson.loads(orjson.dumps(objects(table))) == ROWS
    assert b'"price":1.50' in ndjson(table)
    assert b"".join(ndjson(piece) for piece in pieces(table, 40)) == ndjson(table)


def test_csv_has_json_in_fields() -> None:
    first, _, third = csv.DictReader(io.StringIO(encode(TABLE, "csv").decode()))
    assert {name: orjson.loads(text) for name, text in first.items()} == ROWS[0]
    assert (third["items"], third["extra"], third["labels"]) == ("", "7", "{}")


def test_parquet_and_arrow_have_types_with_parts() -> None:
    parquet = pq.read_table(io.BytesIO(encode(TABLE, "parquet")))
    arrow = pa.ipc.open_stream(arrow_stream(TABLE)).read_all()
    assert arrow.schema == TABLE.schema
    assert arrow.equals(TABLE)
    for table in (parquet, arrow):
        assert table.drop_columns(["extra"]).to_pylist() == TABLE.drop_columns(["extra"]).to_pylist()
    assert pq.read_schema(io.BytesIO(encode(TABLE, "parquet"))).field("extra").type == pa.json_()


def test_postgres_keeps_them_as_jsonb() -> None:
    assert [type_of(kind) for kind in TABLE.schema.types] == ["bigint", "jsonb", "jsonb", "jsonb", "jsonb"]
